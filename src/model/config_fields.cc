#include "model/config_fields.h"

#include <string>

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr double kMinTheta = 1.0, kMaxTheta = 1e15;

/// `rope` holds rope_type and its numbers: rope_parameters (v5) or rope_scaling (v4).
void read_rope_scaling(Fields& rope, RopeConfig& out) {
  const char* key = rope.find("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string(key, "default");
  if (rope.number("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    rope.refuse("partial_rotary_factor", "only 1 is supported by this architecture", ErrorCode::unsupported);
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    rope.refuse(key, "supported rope types are default, linear, llama3", ErrorCode::unsupported);
    return;
  }
  out.scaling = type == "linear" ? RopeScaling::linear : RopeScaling::llama3;
  out.factor = rope.number("factor", 1.0, 1e6);
  if (out.scaling == RopeScaling::linear) return;
  out.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  out.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  out.original_max_position = rope.integer("original_max_position_embeddings", 1, 1 << 30);
  if (out.high_freq_factor <= out.low_freq_factor)
    rope.refuse("high_freq_factor", "it must be above low_freq_factor");
}

}  // namespace

void read_sizes(Fields& fields, ModelConfig& c, int default_head_dim) {
  c.vocab_size = fields.small("vocab_size", 1, 10'000'000);
  c.hidden_size = fields.small("hidden_size", 1, 1 << 20);
  c.intermediate_size = fields.small("intermediate_size", 1, 1 << 22);
  c.num_layers = fields.small("num_hidden_layers", 1, 10'000);
  c.num_heads = fields.small("num_attention_heads", 1, 1 << 16);
  c.num_kv_heads = fields.small("num_key_value_heads", 1, 1 << 16, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  "it must divide num_attention_heads = " + std::to_string(c.num_heads));
  if (fields.find("head_dim")) {
    c.head_dim = fields.small("head_dim", 2, 1 << 16);
  } else if (default_head_dim > 0 && !fields.has("head_dim")) {
    c.head_dim = default_head_dim;
  } else {
    c.head_dim = c.hidden_size / c.num_heads;
    if (c.hidden_size % c.num_heads != 0)
      fields.refuse("head_dim", "without it, num_attention_heads = " + std::to_string(c.num_heads) +
                                    " must divide hidden_size = " + std::to_string(c.hidden_size));
  }
  if (c.head_dim < 2 || c.head_dim % 2 != 0)
    fields.refuse("head_dim", "it must be even for rotary positions, not " + std::to_string(c.head_dim));
  if (static_cast<int64_t>(c.num_heads) * c.head_dim > 1 << 22)
    fields.refuse("head_dim", "num_attention_heads x head_dim may be at most " + std::to_string(1 << 22));
  c.max_position = fields.integer("max_position_embeddings", 1, 1 << 30);
  c.layers.assign(static_cast<size_t>(c.num_layers), {});
}

void read_rope(Fields& fields, ModelConfig& config) {
  RopeConfig& out = config.ropes.emplace_back();
  out.theta = fields.number("rope_theta", kMinTheta, kMaxTheta, out.theta);
  if (fields.number("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "only 1 is supported by this architecture",
                  ErrorCode::unsupported);
  const bool v5 = fields.find("rope_parameters") != nullptr;
  const char* key = v5 ? "rope_parameters" : "rope_scaling";
  const Json* object = fields.find(key);
  if (!object) return;
  if (!object->is_object()) return fields.refuse(key, "an object or null is needed");
  for (const auto& [name, value] : object->items())
    if (value.is_object())
      return fields.refuse(key,
                           "rope parameters by layer type (\"" + printable(name) + "\") aren't supported",
                           ErrorCode::unsupported);
  Fields rope = fields.nested(key);
  out.theta = rope.number("rope_theta", kMinTheta, kMaxTheta, out.theta);
  read_rope_scaling(rope, out);
}

Activation read_activation(Fields& fields, const char* key, Activation fallback) {
  if (!fields.find(key)) return fallback;
  const std::string name = fields.string(key, "");
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  fields.refuse(key, "supported are silu (swish), gelu, gelu_pytorch_tanh (gelu_new), relu",
                ErrorCode::unsupported);
  return fallback;
}

void read_layer_types(Fields& fields, ModelConfig& c, bool slides) {
  constexpr int64_t kMaxWindow = 1 << 30;
  const int window = fields.find("sliding_window") ? fields.small("sliding_window", 1, kMaxWindow) : 0;
  const Json* types = fields.find("layer_types");
  if (!types) {
    const int first = fields.small("max_window_layers", 0, 1 << 30, 0);
    if (window > 0 && fields.boolean("use_sliding_window", slides))
      for (int i = first; i < c.num_layers; ++i)
        c.layers[static_cast<size_t>(i)].window = window;
    return;
  }
  if (!types->is_array() || types->size() != c.layers.size())
    return fields.refuse("layer_types", "a list of num_hidden_layers strings is needed");
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if ((*types)[i] == "sliding_attention" && window > 0)
      c.layers[i].window = window;
    else if ((*types)[i] == "sliding_attention")
      return fields.refuse("sliding_window",
                           "layer_types has sliding_attention, which needs a window of 1 or more");
    else if ((*types)[i] != "full_attention")
      return fields.refuse("layer_types", "each must be full_attention or sliding_attention",
                           ErrorCode::unsupported);
  }
}

}  // namespace fovea
