// Any text as config.json, and after a line "---" as generation_config.json: an accepted pair must be within
// the ranges that the model code relies on, a refusal must be one line. For attention that the same text
// describes for any architecture, it must be possible to choose a backend.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "attention/batch_check.h"
#include "base/check.h"
#include "model/attention_shapes.h"
#include "model/config.h"
#include "model/gemma.h"
#include "model/granite.h"
#include "model/llama4.h"
#include "model/rope.h"

namespace {

void check_shapes(std::string_view config) {
  const auto shapes = fovea::parse_attention_shapes(config, "m/config.json");
  if (!shapes) {
    FOVEA_CHECK(shapes.error().message.find('\n') == std::string::npos);
    FOVEA_CHECK(shapes.error().message.size() < 1000);
    return;
  }
  FOVEA_CHECK(shapes->specs.size() == shapes->layers.size());
  FOVEA_CHECK(!shapes->specs.empty() || shapes->other_layers > 0);
  FOVEA_CHECK(shapes->runnable == shapes->why_not.empty());
  for (const fovea::AttentionSpec& spec : shapes->specs)
    FOVEA_CHECK(fovea::check_spec(spec).ok() && spec.page_size == 0 && spec.dtype == shapes->dtype);
  for (const int layers : shapes->layers)
    FOVEA_CHECK(layers > 0 && layers <= 10'000);
  for (const std::string& note : shapes->notes)
    FOVEA_CHECK(note.find('\n') == std::string::npos && note.size() < 300);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n---\n";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t at = text.find(kSeparator);
  const auto config = text.substr(0, at);
  const auto generation = at == text.npos ? std::string_view() : text.substr(at + kSeparator.size());
  check_shapes(config);
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
  FOVEA_CHECK(c.head_dim > 0 && (c.head_dim % 2 == 0 || c.ropes.empty()));
  FOVEA_CHECK(static_cast<int64_t>(c.num_heads) * c.head_dim <= 1 << 22);
  FOVEA_CHECK(c.max_position > 0 && c.norm_eps >= 0);
  FOVEA_CHECK((c.kind == fovea::ModelKind::encoder_decoder) == c.encoder.has_value());
  if (c.encoder)
    FOVEA_CHECK(c.encoder->num_heads > 0 && c.encoder->num_layers > 0 && c.encoder->max_position > 0 &&
                c.encoder->intermediate_size > 0 && c.encoder->mel_bins >= 0);
  for (const fovea::RopeConfig& rope : c.ropes) {
    FOVEA_CHECK(rope.rotary_dim >= 0 && rope.rotary_dim <= c.head_dim && rope.rotary_dim % 2 == 0);
    FOVEA_CHECK(std::isfinite(rope.attention_factor));
    for (const double f : fovea::rope_frequencies(rope, c.head_dim))
      FOVEA_CHECK(std::isfinite(f) && f >= 0);
  }
  FOVEA_CHECK(c.layers.size() == static_cast<size_t>(c.num_layers));
  for (const fovea::LayerConfig& layer : c.layers) {
    FOVEA_CHECK(layer.window >= 0 && layer.chunk >= 0);
    FOVEA_CHECK(layer.rope >= -1 && layer.rope < static_cast<int>(c.ropes.size()));
    FOVEA_CHECK(!layer.moe || c.moe.num_experts > 0);
  }
  if (c.moe.num_experts > 0) {
    FOVEA_CHECK(c.moe.experts_per_token > 0 && c.moe.experts_per_token <= c.moe.num_experts);
    FOVEA_CHECK(c.moe.intermediate_size > 0 && c.moe.shared_intermediate_size >= 0);
    FOVEA_CHECK(!c.moe.mxfp4 || (c.hidden_size % 32 == 0 && c.moe.intermediate_size % 32 == 0));
  }
  FOVEA_CHECK(std::isfinite(c.attention_scale) && std::isfinite(c.embedding_scale));
  const auto granite = fovea::family_settings<fovea::GraniteSettings>(c);
  FOVEA_CHECK(std::isfinite(granite.residual_scale) && std::isfinite(granite.logit_scale));
  const auto temperature = fovea::family_settings<fovea::Llama4Settings>(c).temperature;
  FOVEA_CHECK(temperature.scale >= 0 && temperature.floor >= 1);
  FOVEA_CHECK(c.attention_softcap >= 0 && fovea::family_settings<fovea::GemmaSettings>(c).logit_softcap >= 0);
  for (const int32_t id : c.eos_token_ids)
    FOVEA_CHECK(id >= 0);
  return 0;
}
