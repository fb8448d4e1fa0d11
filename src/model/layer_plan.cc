#include "model/layer_plan.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr int kMaxLayers = 10'000, kMaxLength = 1 << 30;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<LayerSort> sort_of(std::string_view name) {
  if (one_of(name, {"full_attention", "attention", "global", "global_attention", "full", "a", "hybrid",
                    "full_attention_nope", "nope_attention", "default", "m_attention"}))
    return LayerSort::full;
  if (one_of(name, {"sliding_attention", "sliding_window", "local", "local_attention", "swa"}))
    return LayerSort::sliding;
  if (name == "chunked_attention") return LayerSort::chunked;
  if (one_of(name, {"linear_attention", "mamba", "mamba2", "conv", "recurrent", "linear", "gdn", "kda",
                    "lightning_attention", "mlp", "moe", "r", "m"}))
    return LayerSort::other;
  return std::nullopt;
}

/// A list with one name per layer; false if `key` is absent.
bool read_names(Fields& f, const char* key, LayerPlan& plan) {
  const Json* list = f.find(key);
  if (!list) return false;
  if (!list->is_array() || list->size() != plan.layers.size()) {
    f.refuse(key, "a list of one name for each of the " + std::to_string(plan.layers.size()) +
                      " layers is needed");
    return true;
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const Json& name = (*list)[i];
    const auto sort = name.is_string() ? sort_of(name.get_ref<const std::string&>()) : std::nullopt;
    if (!sort) {
      f.refuse(key,
               "each must be full_attention, sliding_attention, chunked_attention, linear_attention, "
               "mamba, conv or another name of these",
               ErrorCode::unsupported);
      return true;
    }
    plan.layers[i] = *sort;
    if (*sort == LayerSort::other) plan.set_other(i, name.get<std::string>());
  }
  return true;
}

/// A list of 0 and 1, one per layer.
bool read_bits(Fields& f, const char* key, LayerPlan& plan, LayerSort zero, LayerSort one,
               const std::string& other) {
  const Json* list = f.find(key);
  if (!list) return false;
  const auto is_bit = [](const Json& x) { return x.is_number_integer() && (x == 0 || x == 1); };
  if (!list->is_array() || list->size() != plan.layers.size() || !std::ranges::all_of(*list, is_bit)) {
    f.refuse(key,
             "a list of 0 or 1 for each of the " + std::to_string(plan.layers.size()) + " layers is needed");
    return true;
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    plan.layers[i] = (*list)[i] == 0 ? zero : one;
    if (plan.layers[i] == LayerSort::other) plan.set_other(i, other);
  }
  return true;
}

/// Indices, counted from `first`, of the layers that are `in`; all others are `out`.
bool read_members(Fields& f, const char* key, LayerPlan& plan, int first, LayerSort in, LayerSort out,
                  const std::string& other) {
  const Json* list = f.find(key);
  if (!list) return false;
  std::vector<bool> member(plan.layers.size());
  for (const Json& item : list->is_array() ? *list : Json::array({*list})) {
    const int64_t last = first + static_cast<int64_t>(plan.layers.size()) - 1;
    const bool fits =
        item.is_number_integer() && (!item.is_number_unsigned() || item.get<uint64_t>() <= INT32_MAX);
    const int64_t layer = fits ? item.get<int64_t>() : -1;
    if (!fits || layer < first || layer > last) {
      f.refuse(key, "a list of layers from " + std::to_string(first) + " to " + std::to_string(last) +
                        " is needed");
      return true;
    }
    member[static_cast<size_t>(layer - first)] = true;
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    plan.layers[i] = member[i] ? in : out;
    if (plan.layers[i] == LayerSort::other) plan.set_other(i, other);
  }
  return true;
}

/// Nemotron-H: one letter per layer, M = Mamba, * = attention, - = MLP.
bool read_letters(Fields& f, LayerPlan& plan) {
  constexpr const char* kKey = "hybrid_override_pattern";
  if (!f.find(kKey)) return false;
  const std::string letters = f.string(kKey, "");
  if (letters.size() != plan.layers.size() || letters.find_first_not_of("M*-E") != std::string::npos) {
    f.refuse(kKey, "a letter for each of the " + std::to_string(plan.layers.size()) +
                       " layers is needed: M, *, - or E");
    return true;
  }
  for (size_t i = 0; i < letters.size(); ++i)
    if (letters[i] != '*') plan.set_other(i, letters[i] == 'M' ? "mamba" : "mlp");
  return true;
}

/// GPT-Neo: [[["global", "local"], 12]].
bool read_attention_types(Fields& f, LayerPlan& plan) {
  constexpr const char* kKey = "attention_types";
  const Json* list = f.find(kKey);
  if (!list) return false;
  const std::string help = "a list of [[names], times] that covers the " +
                           std::to_string(plan.layers.size()) + " layers is needed";
  size_t at = 0;
  for (const Json& entry : list->is_array() ? *list : Json::array({*list})) {
    const bool shaped = entry.is_array() && entry.size() == 2 && entry[0].is_array() && !entry[0].empty() &&
                        entry[1].is_number_unsigned() && entry[1].get<uint64_t>() <= kMaxLayers;
    if (!shaped) return f.refuse(kKey, help), true;
    for (uint64_t n = entry[1].get<uint64_t>(); n > 0 && at < plan.layers.size(); --n)
      for (const Json& name : entry[0]) {
        const auto sort = name.is_string() ? sort_of(name.get_ref<const std::string&>()) : std::nullopt;
        if (!sort || *sort == LayerSort::other || at == plan.layers.size()) return f.refuse(kKey, help), true;
        plan.layers[at++] = *sort;
      }
  }
  if (at != plan.layers.size()) f.refuse(kKey, help);
  return true;
}

/// Every `period`-th layer is `each`, beginning with layer `offset`.
void set_every(LayerPlan& plan, int period, int offset, LayerSort each, LayerSort rest,
               const std::string& other) {
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    plan.layers[i] = static_cast<int>(i) % period == offset ? each : rest;
    if (plan.layers[i] == LayerSort::other) plan.set_other(i, other);
  }
}

/// Lists and periods of layers without softmax attention.
bool read_linear_layers(Fields& f, LayerPlan& plan) {
  if (read_letters(f, plan)) return true;
  if (read_members(f, "attn_layer_indices", plan, 0, LayerSort::full, LayerSort::other, "mamba")) return true;
  if (read_bits(f, "attn_type_list", plan, LayerSort::other, LayerSort::full, "lightning attention"))
    return true;
  const Json* kda = f.find("linear_attn_config");
  if (kda && kda->is_object()) {
    Fields nested = f.nested("linear_attn_config");
    return read_members(nested, "full_attn_layers", plan, 1, LayerSort::full, LayerSort::other,
                        "linear attention");
  }
  if (f.find("full_attention_interval")) {
    const int n = f.small("full_attention_interval", 1, kMaxLayers);
    set_every(plan, n, n - 1, LayerSort::full, LayerSort::other, "linear attention");
    return true;
  }
  if (f.find("attn_layer_period")) {
    const int n = f.small("attn_layer_period", 1, kMaxLayers);
    set_every(plan, n, f.small("attn_layer_offset", 0, n - 1, 0), LayerSort::full, LayerSort::other, "mamba");
    return true;
  }
  return false;
}

bool slides_by_default(std::string_view type) {
  return !type.starts_with("qwen2") && !type.starts_with("qwen3");
}

}  // namespace

const char* present(Fields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (fields.find(key)) return key;
  return *keys.begin();
}

int read_window(Fields& f) {
  const char* key =
      present(f, {"sliding_window", "sliding_window_size", "attention_window_size", "window_size"});
  if (!f.find(key)) return 0;
  return f.small(key, 0, kMaxLength);
}

LayerPlan read_layer_plan(Fields& f, std::string_view model_type, int count, int window) {
  LayerPlan plan(count);
  if (!f.ok()) return plan;
  if (read_names(f, "layer_types", plan) || read_names(f, "layers_block_type", plan) ||
      read_attention_types(f, plan) || read_linear_layers(f, plan))
    return plan;
  if (read_bits(f, "hybrid_layer_pattern", plan, LayerSort::full, LayerSort::sliding, "")) return plan;
  if (read_members(f, "cross_attention_layers", plan, 0, LayerSort::cross, LayerSort::full, "")) return plan;
  const char* key = present(f, {"sliding_window_pattern", "_sliding_window_pattern"});
  if (window > 0 && f.find(key)) {
    const int n = f.small(key, 1, kMaxLayers);
    set_every(plan, n, n - 1, LayerSort::full, LayerSort::sliding, "");
  } else if (f.find("global_attn_every_n_layers")) {  // ModernBERT
    set_every(plan, f.small("global_attn_every_n_layers", 1, kMaxLayers), 0, LayerSort::full,
              LayerSort::sliding, "");
  } else if (window > 0 && f.boolean("use_sliding_window", slides_by_default(model_type))) {
    const int first = f.small("max_window_layers", 0, kMaxLayers, 0);
    for (int i = first; i < count; ++i)
      plan.layers[static_cast<size_t>(i)] = LayerSort::sliding;
  }
  return plan;
}

LayerPlan read_linear_plan(Fields& f, int count) {
  LayerPlan plan(count);
  if (f.ok()) read_linear_layers(f, plan);
  return plan;
}

}  // namespace fovea
