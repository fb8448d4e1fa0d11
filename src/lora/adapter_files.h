#pragma once
// Reads LoRA adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors.
#include <string>
#include <vector>

#include "fovea/result.h"
#include "ops/lora.h"
#include "ops/lora_slots.h"

namespace fovea {

/// The layers of a decoder that an adapter can have modules for.
struct LoraShape {
  int64_t hidden = 0, q = 0, kv = 0;  ///< outputs of q_proj, and of each of k_proj and v_proj
  int64_t intermediate = 0;           ///< of dense MLPs
  std::vector<bool> dense_mlp;        ///< by layer: false = experts, which can't be adapted
  std::string mlp_name = "mlp";       ///< model.layers.N.MLP_NAME.gate_proj
  bool stacked = false;               ///< the checkpoint has qkv_proj and gate_up_proj
};

/// Slots for adapters of these layers with modules of at most `max_rank`, on a device whose activations have
/// type `dtype`.
LoraLayout lora_layout(const LoraShape& shape, int max_rank, DType dtype);

/// Reads the adapter in `path`, a folder or a hub id found in the local cache, without name and number. Every
/// module's matrices are kept in their type (A's of a site that have different types in fp32). Errors name
/// the file and the key or tensor: also ranks beyond `max_rank` and modules that the model lacks. Throws
/// std::bad_alloc.
Result<LoraAdapter> read_lora_adapter(const std::string& path, const LoraShape& shape, int max_rank);

}  // namespace fovea
