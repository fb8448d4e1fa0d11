#pragma once
// WAV files: samples as fp32 in [-1, 1], mixed down to one channel.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct Audio {
  int sample_rate = 0;         ///< samples per second
  std::vector<float> samples;  ///< mono: the mean of a stereo file's channels
};

/// RIFF WAVE with PCM of 8, 16, 24 or 32 bits or float of 32 or 64 bits, one or two channels. Anything else,
/// chunks that exceed the file, and audio longer than `most_seconds` (checked before conversion to float) are
/// errors. `name` is for messages.
Result<Audio> parse_wav(std::span<const std::byte> bytes, const std::string& name,
                        std::optional<int> most_seconds = {});
Result<Audio> load_wav(const std::string& path, std::optional<int> most_seconds = {});

}  // namespace fovea
