// Qwen3 dense models (transformers' Qwen3ForCausalLM): Llama's decoder with an RMSNorm over each head of q
// and k before the rotation, and a head size of its own (128 unless the config says otherwise).
#include "model/family.h"

namespace fovea {

const Family kQwen3Family = {
    .architecture = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .default_head_dim = 128,
    .qk_norm = true,
    .read = read_decoder,
};

}  // namespace fovea
