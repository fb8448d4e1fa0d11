#pragma once
// The weights of the models of tests/goldens, and which of them LoRA adapters can change.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float16.h"
#include "files/checkpoint.h"
#include "model/model_test_support.h"
#include "tests/support/lora_adapter.h"

namespace fovea::test {

inline Weights weights_of(const std::string& dir) {
  auto checkpoint = Checkpoint::open(dir);
  FOVEA_CHECK(checkpoint.ok());
  Weights weights;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    TensorValues& values = weights[std::string(tensor.name())];
    for (const uint64_t size : tensor.entry->shape)
      values.shape.push_back(static_cast<int64_t>(size));
    const DType type = *tensor.entry->type.dtype();
    const size_t count = tensor.bytes() / size_of(type);
    for (size_t i = 0; i < count; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, tensor.data + i * size_of(type), size_of(type));
      values.values.push_back(type == DType::f32   ? std::bit_cast<float>(word)
                              : type == DType::f16 ? fp16_to_float(static_cast<uint16_t>(word))
                                                   : bf16_to_float(static_cast<uint16_t>(word)));
    }
  }
  return weights;
}

/// The linear layers of the decoder's layers whose last name is one of `names`.
inline std::map<std::string, LinearShape> modules_of(const Weights& weights,
                                                     const std::vector<std::string>& names) {
  std::map<std::string, LinearShape> out;
  for (const auto& [name, tensor] : weights) {
    if (tensor.shape.size() != 2 || !name.starts_with("model.layers.") || !name.ends_with(".weight"))
      continue;
    const std::string module = name.substr(0, name.size() - 7);
    const std::string last = module.substr(module.rfind('.') + 1);
    if (std::ranges::find(names, last) == names.end()) continue;
    double squares = 0;
    for (const float x : tensor.values)
      squares += static_cast<double>(x) * static_cast<double>(x);
    out[module] = {tensor.shape[0], tensor.shape[1],
                   std::sqrt(squares / static_cast<double>(tensor.values.size()))};
  }
  return out;
}

inline const std::vector<std::string> kAll = {"q_proj",  "k_proj",    "v_proj",   "o_proj",      "gate_proj",
                                              "up_proj", "down_proj", "qkv_proj", "gate_up_proj"};

}  // namespace fovea::test
