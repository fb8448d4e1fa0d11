#include "model/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/float16.h"
#include "base/printable.h"
#include "fovea/result.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr const char* kFix = "; quantise the checkpoint's KV cache again, or remove its scales to use 1.0";

std::string number(float value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

Result<float> read_scale(const CheckpointTensor& tensor) {
  const auto& shape = tensor.entry->shape;
  if (!std::ranges::all_of(shape, [](uint64_t n) { return n == 1; }))
    return unsupported(tensor.where() + " has shape " + shape_string(shape) +
                       "; only one KV scale for a layer is supported: a scalar or shape [1]" + kFix);
  const auto dtype = tensor.entry->type.dtype();
  if (!dtype)
    return unsupported(tensor.where() + " has dtype " + std::string(tensor.entry->type.name) +
                       "; KV scales may be F32, F16 or BF16" + kFix);
  float value = 0;
  if (*dtype == DType::f32) {
    std::memcpy(&value, tensor.data, 4);
  } else {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.data, 2);
    value = *dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
  }
  if (!(value > 0) || !std::isfinite(value))
    return invalid(tensor.where() + " is " + number(value) + "; a KV scale must be a positive number" + kFix);
  return value;
}

/// The scale of K or V (`letter`) of one layer.
struct Found {
  const CheckpointTensor* tensor = nullptr;  ///< null = there is none
  float value = 0;
};

Result<Found> find_scale(const Checkpoint& checkpoint, int layer, char letter,
                         std::vector<const CheckpointTensor*>& used) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
  const std::string own = std::string(1, letter) + "_scale", projection = std::string(1, letter) + "_proj.";
  Found found;
  for (const std::string& name : {own, "attn." + own, projection + own, projection + "output_scale",
                                  "qkv_proj." + own, std::string("kv_scale")}) {
    const CheckpointTensor* tensor = checkpoint.find(prefix + name);
    if (tensor == nullptr) continue;
    FOVEA_TRY(value, read_scale(*tensor));
    if (found.tensor != nullptr && value != found.value)
      return invalid(tensor->where() + " is " + number(value) + ", but \"" + printable(found.tensor->name()) +
                     "\" is " + number(found.value) + "; both name the same KV scale and must agree" + kFix);
    found = {tensor, value};
    used.push_back(tensor);
  }
  return found;
}

std::string range(const std::vector<float>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return least == most ? number(least) : number(least) + ".." + number(most);
}

}  // namespace

std::string KvScales::summary() const {
  return "layers 0-" + std::to_string(k.size() - 1) + " (k " + range(k) + ", v " + range(v) + ")";
}

KvCacheScheme kv_cache_scheme(const Json& config) {
  KvCacheScheme out;
  if (!config.is_object()) return out;
  const auto groups = config.find("config_groups");
  const auto scheme = config.find("kv_cache_scheme");
  if (scheme == config.end() || scheme->is_null()) return out;
  out.only = config.value("quant_method", Json()) == "compressed-tensors" &&
             (groups == config.end() || groups->is_null() || groups->empty());
  const auto is = [&](const char* key, const Json& wanted) {
    const auto it = scheme->find(key);
    return it == scheme->end() || it->is_null() || *it == wanted;
  };
  out.scales = scheme->is_object() && is("num_bits", 8) && is("type", "float") && is("strategy", "tensor") &&
               is("dynamic", false) && is("symmetric", true);
  if (!out.scales)
    out.problem =
        "kv_cache_scheme may only have num_bits 8, type float, strategy tensor, dynamic false, symmetric "
        "true";
  return out;
}

Result<KvScales> read_kv_scales(const Checkpoint& checkpoint, int num_layers, bool promised,
                                std::vector<const CheckpointTensor*>& used) {
  KvScales scales;
  const CheckpointTensor* first = nullptr;
  int missing = -1;  // the first layer without scales
  for (int layer = 0; layer < num_layers; ++layer) {
    FOVEA_TRY(k, find_scale(checkpoint, layer, 'k', used));
    FOVEA_TRY(v, find_scale(checkpoint, layer, 'v', used));
    if ((k.tensor == nullptr) != (v.tensor == nullptr)) {
      const CheckpointTensor& given = k.tensor ? *k.tensor : *v.tensor;
      return invalid(given.where() + " has no counterpart for " + (k.tensor ? "V" : "K") + " of layer " +
                     std::to_string(layer) + "; KV scales come in pairs" + kFix);
    }
    if (k.tensor == nullptr) {
      if (missing < 0) missing = layer;
      continue;
    }
    if (first == nullptr) first = k.tensor;
    scales.k.push_back(k.value);
    scales.v.push_back(v.value);
  }
  if (first != nullptr && missing >= 0)
    return invalid(first->where() + " is a KV scale, but layer " + std::to_string(missing) +
                   " has none; all layers need them, or none" + kFix);
  if (first == nullptr && promised)
    return invalid(
        checkpoint.source() +
        ": no KV scales (model.layers.0.self_attn.k_scale, ...), which config.json's "
        "quantization_config.kv_cache_scheme requires; copy or download the model again, or remove "
        "kv_cache_scheme to use 1.0");
  return scales;
}

}  // namespace fovea
