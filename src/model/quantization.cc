#include "model/quantization.h"

#include <nlohmann/json.hpp>

namespace fovea {
namespace {

using Json = nlohmann::json;

/// Null if it is absent.
const Json& at(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

constexpr const char* kSupported =
    "supported are 8-bit float weights by tensor, by channel or by block of 128 x 128, and gpt-oss's mxfp4; "
    "else "
    "use the float32, float16 or bfloat16 checkpoint";

/// One entry of compressed-tensors' config_groups.
std::string read_group(const std::string& name, const Json& group, WeightQuantization& out) {
  const Json& weights = at(group, "weights");
  const auto refused = [&](const char* key, const Json& value, const char* allowed) {
    return "quantised weights of " + name + " have " + key + " " + value.dump() + ", not " + allowed + "; " +
           kSupported;
  };
  if (!weights.is_object()) return "quantised weights of " + name + " are not described; " + kSupported;
  if (at(weights, "num_bits") != 8) return refused("num_bits", at(weights, "num_bits"), "8");
  if (at(weights, "type") != "float") return refused("type", at(weights, "type"), "\"float\"");
  const Json& symmetric = at(weights, "symmetric");
  if (!symmetric.is_null() && symmetric != true) return refused("symmetric", symmetric, "true");
  const Json& strategy = at(weights, "strategy");
  if (strategy == "block") {
    const Json& block = at(weights, "block_structure");
    if (block != Json::array({128, 128})) return refused("block_structure", block, "[128,128]");
    out.blocks = true;
  } else if (strategy != "tensor" && strategy != "channel") {
    return refused("strategy", strategy, "\"tensor\", \"channel\" or \"block\"");
  }
  out.fp8 = true;
  return {};
}

}  // namespace

WeightQuantization read_weight_quantization(const Json& config, std::string& problem) {
  WeightQuantization out;
  const Json& method = at(config, "quant_method");
  if (method == "compressed-tensors") {
    const Json& groups = at(config, "config_groups");
    if (!groups.is_object()) return out;
    for (const auto& [name, group] : groups.items())
      if (problem.empty()) problem = read_group(name, group, out);
    return out;
  }
  if (method == "fp8") {
    const Json& block = at(config, "weight_block_size");
    const Json& format = at(config, "fmt");
    if (!block.is_null() && block != Json::array({128, 128}))
      problem = "weight_block_size is " + block.dump() + "; [128,128] and none are supported";
    else if (!format.is_null() && format != "e4m3" && format != "float8_e4m3fn")
      problem = "fmt is " + format.dump() + "; \"e4m3\" is supported";
    out.fp8 = true;
    out.blocks = !block.is_null();
    return out;
  }
  if (method == "modelopt" && at(config, "quant_algo") == "FP8") {
    out.fp8 = true;
    return out;
  }
  problem = std::string("quantised weights of this kind aren't supported; ") + kSupported;
  return out;
}

}  // namespace fovea
