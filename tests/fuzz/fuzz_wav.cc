// Any bytes as a WAV file: accepted samples are finite and no more than the file's bytes, a refusal is one
// line.
#include <cmath>
#include <cstdint>

#include "audio/wav.h"
#include "base/check.h"
#include "fovea/result.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto audio = fovea::parse_wav({reinterpret_cast<const std::byte*>(data), size}, "a.wav");
  if (!audio) {
    FOVEA_CHECK(audio.error().message.find('\n') == std::string::npos);
    FOVEA_CHECK(audio.error().message.size() < 1000);
    return 0;
  }
  FOVEA_CHECK(audio->sample_rate > 0 && audio->samples.size() <= size);
  for (const float sample : audio->samples)
    FOVEA_CHECK(std::isfinite(sample));
  return 0;
}
