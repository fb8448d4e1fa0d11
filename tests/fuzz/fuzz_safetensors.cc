// Any bytes as a safetensors file: an accepted one must be consistent, a refusal must be one line.
#include <cstdint>

#include "base/check.h"
#include "files/safetensors.h"
#include "fovea/result.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto result = fovea::parse_safetensors(file, "m");
  if (!result) {
    FOVEA_CHECK(result.error().message.find('\n') == std::string::npos);
    FOVEA_CHECK(result.error().message.size() < 1000);
    return 0;
  }
  uint64_t covered = 0;
  for (const auto& entry : *result) {
    FOVEA_CHECK(entry.begin <= entry.end && entry.begin >= 8 && entry.end <= size);
    FOVEA_CHECK(&entry == &result->front() || (&entry)[-1].name < entry.name);
    uint64_t bits = static_cast<uint64_t>(entry.type.bits);
    for (const uint64_t dim : entry.shape)
      bits *= dim;
    FOVEA_CHECK(bits == (entry.end - entry.begin) * 8);
    covered += entry.end - entry.begin;
  }
  FOVEA_CHECK(covered <= size - 8);
  return 0;
}
