#pragma once
// Writes LoRA adapters in PEFT's format for tests, and merges them into weights.
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "safetensors_writer.h"
#include "temp_dir.h"

namespace fovea::test {

/// A linear layer [n, k] of a model, and the root mean square of its weights.
struct LinearShape {
  int64_t n = 0, k = 0;
  double rms = 0.05;
};

struct AdapterOptions {
  int rank = 4;
  double alpha = 6;
  bool rslora = false;
  DType dtype = DType::f32;
  uint32_t seed = 1;
  std::string targets = R"(["q_proj"])";  ///< JSON
  std::string more = {};  ///< further members of adapter_config.json, each with a leading comma
};

/// What the written adapter adds to a module's weights: [n, k], row-major.
using Deltas = std::map<std::string, std::vector<double>>;

inline float rounded_to(float x, DType dtype) {
  return dtype == DType::f32   ? x
         : dtype == DType::f16 ? fp16_to_float(float_to_fp16(x))
                               : bf16_to_float(float_to_bf16(x));
}

inline std::string adapter_config(const AdapterOptions& o) {
  return R"({"peft_type":"LORA","task_type":"CAUSAL_LM","r":)" + std::to_string(o.rank) +
         ",\"lora_alpha\":" + std::to_string(o.alpha) + ",\"use_rslora\":" + (o.rslora ? "true" : "false") +
         ",\"target_modules\":" + o.targets + ",\"bias\":\"none\",\"lora_dropout\":0.1" + o.more + "}";
}

/// Writes folder `name` of `dir` with matrices for `modules` that change each output about as much as its own
/// weights do.
inline Deltas write_adapter(const TempDir& dir, const std::string& name,
                            const std::map<std::string, LinearShape>& modules, const AdapterOptions& o) {
  std::mt19937 rng(o.seed);
  std::normal_distribution<float> normal;
  const double scale = o.alpha / (o.rslora ? std::sqrt(o.rank) : o.rank);
  const auto rank = static_cast<size_t>(o.rank);
  SafetensorsWriter writer;
  Deltas deltas;
  for (const auto& [module, shape] : modules) {
    const auto n = static_cast<size_t>(shape.n), k = static_cast<size_t>(shape.k);
    std::vector<float> a(rank * k), b(n * rank);
    for (float& x : a)
      x = rounded_to(normal(rng), o.dtype);
    const auto deviation = static_cast<float>(0.7 * shape.rms / (scale * std::sqrt(o.rank)));
    for (float& x : b)
      x = rounded_to(deviation * normal(rng), o.dtype);
    writer.add("base_model.model." + module + ".lora_A.weight", {o.rank, shape.k}, a, o.dtype);
    writer.add("base_model.model." + module + ".lora_B.weight", {shape.n, o.rank}, b, o.dtype);
    std::vector<double>& delta = deltas[module];
    delta.resize(n * k);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < k; ++j)
        for (size_t r = 0; r < rank; ++r)
          delta[i * k + j] +=
              scale * static_cast<double>(b[i * rank + r]) * static_cast<double>(a[r * k + j]);
  }
  dir.write(name + "/adapter_config.json", adapter_config(o));
  dir.write(name + "/adapter_model.safetensors", writer.bytes());
  return deltas;
}

}  // namespace fovea::test
