// Any text as config.json, and after a line "---" as generation_config.json: an accepted pair must be within
// the ranges that the model code relies on, a refusal must be one line.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/config.h"
#include "model/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n---\n";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t at = text.find(kSeparator);
  const auto config = text.substr(0, at);
  const auto generation = at == text.npos ? std::string_view() : text.substr(at + kSeparator.size());
  const auto result = fovea::parse_model_config(config, generation, "m");
  if (!result) {
    FOVEA_CHECK(result.error().message.find('\n') == std::string::npos);
    FOVEA_CHECK(result.error().message.size() < 1000);
    return 0;
  }
  const fovea::ModelConfig& c = *result;
  FOVEA_CHECK(c.vocab_size > 0 && c.vocab_size <= 10'000'000);
  FOVEA_CHECK(c.num_layers > 0 && c.num_layers <= 10'000);
  FOVEA_CHECK(c.num_kv_heads > 0 && c.num_heads % c.num_kv_heads == 0);
  FOVEA_CHECK(c.head_dim > 0 && c.head_dim % 2 == 0);
  FOVEA_CHECK(static_cast<int64_t>(c.num_heads) * c.head_dim <= 1 << 22);
  FOVEA_CHECK(c.max_position > 0 && c.norm_eps >= 0);
  for (const double f : fovea::rope_frequencies(c.ropes[0], c.head_dim))
    FOVEA_CHECK(std::isfinite(f) && f >= 0);
  for (const int32_t id : c.eos_token_ids)
    FOVEA_CHECK(id >= 0);
  return 0;
}
