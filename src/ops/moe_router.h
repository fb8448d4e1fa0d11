#pragma once
// How a mixture of experts chooses and weights the experts of a row.
#include <cstdint>

namespace fovea {

enum class MoeRouter : uint8_t {
  softmax_then_top,  ///< softmax over all experts, then the k largest (Mixtral, Qwen3-MoE)
  top_then_softmax,  ///< the k largest logits, softmax over them (gpt-oss)
  sigmoid_top,  ///< the k largest logits, each through a sigmoid that scales the expert's input (Llama 4)
  sigmoid_then_top,  ///< a sigmoid of each logit, then the k largest (DeepSeek-V3)
};

}  // namespace fovea
