#include "model/mla_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fovea {
namespace {

constexpr int kLargestPart = 1 << 15;

}  // namespace

double read_mla_rope_scale(Fields& fields) {
  const char* key = fields.find("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const nlohmann::json* object = fields.find(key);
  if (!object) return 1.0;
  if (!object->is_object()) {
    fields.refuse(key, "an object or null is needed");
    return 1.0;
  }
  Fields rope = fields.nested(key);
  if (rope.string(rope.find("rope_type") ? "rope_type" : "type", "default") == "default") return 1.0;
  const double all = rope.number("mscale_all_dim", 0, 1e3, 0.0), factor = rope.number("factor", 1, 1e6, 1.0);
  const double mscale = factor > 1 && all > 0 ? 0.1 * all * std::log(factor) + 1.0 : 1.0;
  return mscale * mscale;
}

void read_mla_sizes(Fields& fields, ModelConfig& c, const MlaDefaults& defaults) {
  if (!fields.boolean("use_mla", true))
    fields.refuse("use_mla", "only true is supported by this architecture", ErrorCode::unsupported);
  c.vocab_size = fields.small("vocab_size", 1, 10'000'000);
  c.hidden_size = fields.small("hidden_size", 1, 1 << 20);
  const std::optional<int64_t> wide =
      defaults.intermediate_size > 0 ? std::optional<int64_t>(defaults.intermediate_size) : std::nullopt;
  c.intermediate_size = fields.small(defaults.intermediate_key, 1, 1 << 22, wide);
  c.num_layers = defaults.blocks * fields.small(defaults.layers_key, 1, 10'000);
  c.num_heads = fields.small("num_attention_heads", 1, 1 << 16);
  c.max_position = fields.integer("max_position_embeddings", 1, 1 << 30);
  c.layers.assign(static_cast<size_t>(c.num_layers), {});
  MlaConfig& m = c.mla;
  if (fields.find("q_lora_rank"))
    m.q_rank = fields.small("q_lora_rank", 1, kLargestPart);
  else if (!fields.has("q_lora_rank"))
    m.q_rank = defaults.q_rank;
  m.kv_rank = fields.small("kv_lora_rank", 1, kLargestPart, defaults.kv_rank);
  m.nope_dim = fields.small("qk_nope_head_dim", 1, kLargestPart, defaults.nope_dim);
  m.rope_dim = fields.small("qk_rope_head_dim", 2, kLargestPart, defaults.rope_dim);
  m.v_dim = fields.small("v_head_dim", 1, kLargestPart, defaults.v_dim);
  if (m.rope_dim % 2 != 0) fields.refuse("qk_rope_head_dim", "it must be even for rotary positions");
  c.num_kv_heads = 1;
  c.head_dim = m.record();
  if (static_cast<int64_t>(c.num_heads) * c.head_dim > 1 << 24)
    fields.refuse("num_attention_heads",
                  "times kv_lora_rank + qk_rope_head_dim it may be at most " + std::to_string(1 << 24));
  const double dim = m.qk_dim();
  c.attention_scale = read_mla_rope_scale(fields) / std::sqrt(dim);
}

void read_mla_rope(Fields& fields, ModelConfig& c, const RopeTraits& traits) {
  c.head_dim = c.mla.rope_dim;
  read_rope(fields, c, traits);
  c.head_dim = c.mla.record();
}

}  // namespace fovea
