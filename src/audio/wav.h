#pragma once
// WAV files: samples as fp32 in [-1, 1], mixed down to one channel.
#include <cstddef>
#include <cstdint>
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

/// How a WAV file stores a sample.
struct WavFormat {
  uint16_t tag = 0;  ///< 1 = PCM, 3 = float
  uint16_t channels = 0, bits = 0;
  size_t frame_bytes() const { return size_t{channels} * (bits / 8u); }
};

/// A WAV file in memory, whose samples are converted on demand: a long file costs no more than its bytes.
class WavFile {
 public:
  /// As parse_wav(), except for samples that are not finite. `bytes` must outlive this.
  static Result<WavFile> parse(std::span<const std::byte> bytes, const std::string& name);

  int sample_rate() const { return sample_rate_; }
  /// Samples of one channel.
  int64_t samples() const { return static_cast<int64_t>(data_.size() / format_.frame_bytes()); }
  double seconds() const { return static_cast<double>(samples()) / sample_rate_; }
  /// Samples [first, first + count), mono, which must be in the file. One that is not finite is an error.
  Result<std::vector<float>> read(int64_t first, int64_t count) const;

 private:
  std::string name_;
  WavFormat format_;
  int sample_rate_ = 0;
  std::span<const std::byte> data_;
};

/// RIFF WAVE with PCM of 8, 16, 24 or 32 bits or float of 32 or 64 bits, one or two channels. Anything else,
/// chunks that exceed the file, and audio longer than `most_seconds` (checked before conversion to float) are
/// errors. `name` is for messages.
Result<Audio> parse_wav(std::span<const std::byte> bytes, const std::string& name,
                        std::optional<int> most_seconds = {});
Result<Audio> load_wav(const std::string& path, std::optional<int> most_seconds = {});

}  // namespace fovea
