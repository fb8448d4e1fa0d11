// Llama 2, 3, 3.1, 3.2, 3.3 and their fine-tunes (transformers' LlamaForCausalLM): RMSNorm, grouped-query
// attention with rotary positions (llama3 scaling from 3.1 on), gated SiLU MLP. Biases where the config says.
#include "model/family.h"

namespace fovea {

const Family kLlamaFamily = {
    .architecture = "LlamaForCausalLM",
    .model_type = "llama",
    .default_head_dim = 0,
    .qk_norm = false,
    .read = read_decoder,
};

}  // namespace fovea
