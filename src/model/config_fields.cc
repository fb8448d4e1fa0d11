#include "model/config_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/printable.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr double kMinTheta = 1.0, kMaxTheta = 1e15;

constexpr int64_t kMaxLength = 1 << 30;

/// A list of `size` numbers that are valid divisors.
std::vector<double> read_divisors(Fields& rope, const char* key, size_t size) {
  const Json* list = rope.find(key);
  std::vector<double> divisors;
  if (list && list->is_array() && list->size() == size)
    for (const Json& item : *list)
      if (item.is_number() && item.get<double>() >= 1e-6 && item.get<double>() <= 1e6)
        divisors.push_back(item.get<double>());
  if (divisors.size() == size) return divisors;
  rope.refuse(key, "a list of " + std::to_string(size) +
                       " numbers (half the rotary dimensions) from 1e-06 to 1e+06 is needed");
  return std::vector<double>(size, 1.0);
}

void read_llama3(Fields& rope, RopeConfig& out) {
  out.factor = rope.number("factor", 1.0, 1e6);
  out.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  out.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  out.original_max_position = rope.integer("original_max_position_embeddings", 1, kMaxLength);
  if (out.high_freq_factor < out.low_freq_factor)
    rope.refuse("high_freq_factor", "it must be low_freq_factor or more");
}

void read_yarn(Fields& rope, ModelConfig& c, RopeConfig& out) {
  out.factor = rope.number("factor", 1.0, 1e6);
  out.original_max_position = rope.integer("original_max_position_embeddings", 1, kMaxLength, c.max_position);
  out.beta_fast = rope.number("beta_fast", 1e-6, 1e6, out.beta_fast);
  out.beta_slow = rope.number("beta_slow", 1e-6, 1e6, out.beta_slow);
  if (out.beta_fast < out.beta_slow) rope.refuse("beta_fast", "it must be beta_slow or more");
  if (out.theta <= 1.0) rope.refuse("rope_theta", "yarn needs one above 1");
  out.truncate = rope.boolean("truncate", true);
  const auto magnitude = [&](double weight) { return 0.1 * weight * std::log(out.factor) + 1; };
  const double mscale = rope.number("mscale", 0, 1e3, 0), all = rope.number("mscale_all_dim", 0, 1e3, 0);
  const double implied = mscale != 0 && all != 0 ? magnitude(mscale) / magnitude(all) : magnitude(1);
  out.attention_factor = rope.number("attention_factor", 1e-6, 1e6, implied);
  const double reach = out.factor * static_cast<double>(out.original_max_position);
  c.max_position =
      std::max(c.max_position, static_cast<int64_t>(std::min(reach, static_cast<double>(kMaxLength))));
}

void read_longrope(Fields& fields, Fields& rope, const ModelConfig& c, RopeConfig& out) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  Fields& holder = rope.find(kOriginal) ? rope : fields;  // Phi-3 has it beside max_position_embeddings
  out.original_max_position = holder.integer(kOriginal, 2, kMaxLength, std::max<int64_t>(2, c.max_position));
  const auto original = static_cast<double>(out.original_max_position);
  const double stretch = static_cast<double>(c.max_position) / original;
  out.factor = rope.number("factor", 1e-6, 1e6, stretch);
  const double implied = out.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(out.factor) / std::log(original));
  out.attention_factor = rope.number("attention_factor", 1e-6, 1e6, implied);
  const auto pairs = static_cast<size_t>(out.rotary_dim / 2);
  out.short_divisors = read_divisors(rope, "short_factor", pairs);
  out.long_divisors = read_divisors(rope, "long_factor", pairs);
}

void read_rotary_dim(Fields& fields, const ModelConfig& c, const RopeTraits& traits, RopeConfig& out) {
  constexpr const char* kKey = "partial_rotary_factor";
  const double share = fields.number(kKey, 0, 1, static_cast<double>(out.rotary_dim) / c.head_dim);
  const int dim = fields.find(kKey) ? static_cast<int>(c.head_dim * share) : out.rotary_dim;
  if (dim != c.head_dim && !traits.partial)
    fields.refuse(kKey, "only 1 is supported by this architecture", ErrorCode::unsupported);
  if (dim < 2 || dim % 2 != 0)
    fields.refuse(kKey, "head_dim = " + std::to_string(c.head_dim) +
                            " times it must be an even number of dimensions, 2 or more");
  out.rotary_dim = dim;
}

/// `rope` holds rope_type and its numbers: rope_parameters (v5) or rope_scaling (v4).
void read_rope_object(Fields& fields, Fields& rope, ModelConfig& c, const RopeTraits& traits,
                      RopeConfig& out) {
  out.theta = rope.number("rope_theta", kMinTheta, kMaxTheta, out.theta);
  read_rotary_dim(rope, c, traits, out);
  const char* key = rope.find("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string(key, "default");
  if (!rope.ok() || type == "default") return;
  if (type == "linear") {
    out.scaling = RopeScaling::linear;
    out.factor = rope.number("factor", 1.0, 1e6);
  } else if (type == "llama3") {
    out.scaling = RopeScaling::llama3;
    read_llama3(rope, out);
  } else if (type == "yarn") {
    out.scaling = RopeScaling::yarn;
    read_yarn(rope, c, out);
  } else if (type == "longrope" || type == "su") {  // "su" is its older name
    out.scaling = RopeScaling::longrope;
    read_longrope(fields, rope, c, out);
  } else if (type == "dynamic") {
    rope.refuse(key,
                "it would change keys that are cached already; use default (the same up to "
                "max_position_embeddings tokens) or yarn",
                ErrorCode::unsupported);
  } else {
    rope.refuse(key, "supported rope types are default, linear, llama3, yarn, longrope",
                ErrorCode::unsupported);
  }
}

RopeConfig plain_rope(Fields& fields, const ModelConfig& c, const RopeTraits& traits) {
  RopeConfig rope;
  rope.rotary_dim = c.head_dim;
  rope.interleaved = traits.interleaved;
  rope.theta = fields.number("rope_theta", kMinTheta, kMaxTheta, traits.theta);
  read_rotary_dim(fields, c, traits, rope);
  return rope;
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

void read_rope(Fields& fields, ModelConfig& c, const RopeTraits& traits) {
  if (!fields.ok()) return;
  RopeConfig& out = c.ropes.emplace_back(plain_rope(fields, c, traits));
  const char* key = fields.find("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* object = fields.find(key);
  if (!object) return;
  if (!object->is_object()) return fields.refuse(key, "an object or null is needed");
  for (const auto& [name, value] : object->items())
    if (value.is_object())
      return fields.refuse(
          key,
          "rope parameters by layer type (\"" + printable(name) + "\") aren't supported by this architecture",
          ErrorCode::unsupported);
  Fields rope = fields.nested(key);
  read_rope_object(fields, rope, c, traits, out);
}

void read_rope_by_layer_type(Fields& fields, ModelConfig& c, const RopeTraits& full,
                             const RopeTraits& sliding) {
  if (!fields.ok()) return;
  for (LayerConfig& layer : c.layers)
    layer.rope = layer.window > 0 ? 1 : 0;
  const Json* by_type = fields.find("rope_parameters");
  if (!by_type) {
    read_rope(fields, c, full);
    RopeConfig local = plain_rope(fields, c, sliding);
    local.theta = fields.number("rope_local_base_freq", kMinTheta, kMaxTheta, sliding.theta);
    c.ropes.push_back(local);
    return;
  }
  if (!by_type->is_object()) return fields.refuse("rope_parameters", "an object is needed");
  Fields types = fields.nested("rope_parameters");
  for (const auto& [key, traits] :
       {std::pair{"full_attention", full}, std::pair{"sliding_attention", sliding}}) {
    RopeConfig& out = c.ropes.emplace_back(plain_rope(fields, c, traits));
    const Json* object = types.find(key);
    if (!object || !object->is_object()) return types.refuse(key, "an object is needed");
    Fields rope = types.nested(key);
    read_rope_object(fields, rope, c, traits, out);
  }
}

float read_softcap(Fields& fields, const char* key, float fallback) {
  if (!fields.has(key)) return fallback;
  return fields.find(key) ? static_cast<float>(fields.number(key, 1e-3, 1e4)) : 0.0f;
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

void read_layer_types(Fields& fields, ModelConfig& c, const LayerTypeDefaults& defaults) {
  if (!fields.ok()) return;
  int window = fields.has("sliding_window") ? 0 : defaults.window;
  if (fields.find("sliding_window")) window = fields.small("sliding_window", 1, kMaxLength);
  const bool slides = fields.boolean("use_sliding_window", defaults.slides);
  const int first = fields.small("max_window_layers", 0, kMaxLength, defaults.slides ? 0 : 28);
  const Json* types = fields.find("layer_types");
  if (types && (!types->is_array() || types->size() != c.layers.size()))
    return fields.refuse("layer_types", "a list of num_hidden_layers = " + std::to_string(c.num_layers) +
                                            " strings is needed");
  const auto slides_by_pattern = [&](int i) {
    return defaults.pattern > 0 && (i + 1) % defaults.pattern != 0;
  };
  for (int i = 0; i < c.num_layers; ++i) {
    LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (!types && defaults.pattern == 0) {
      if (slides && i >= first) layer.window = window;
      continue;
    }
    std::string type = slides_by_pattern(i) ? "sliding_attention" : "full_attention";
    if (types) {
      const Json& given = (*types)[static_cast<size_t>(i)];
      type = given.is_string() ? given.get<std::string>() : "";
    }
    if (type == "sliding_attention") {
      if (window == 0)
        return fields.refuse(
            "sliding_window",
            "layer " + std::to_string(i) + " has sliding_attention, which needs a window of 1 or more");
      layer.window = window;
    } else if (type == "chunked_attention" && defaults.chunk > 0) {
      layer.chunk = defaults.chunk;
    } else if (type != "full_attention") {
      const std::string known =
          defaults.chunk > 0 ? ", sliding_attention or chunked_attention" : " or sliding_attention";
      return fields.refuse("layer_types", "each must be full_attention" + known, ErrorCode::unsupported);
    }
  }
}

}  // namespace fovea
