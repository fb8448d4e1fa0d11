#pragma once
// Reads LoRA adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors.
#include <array>
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
  std::vector<bool> dense_mlp;        ///< by layer: false = experts
  std::string mlp_name = "mlp";       ///< model.layers.N.MLP_NAME.gate_proj
  bool stacked = false;               ///< the checkpoint has qkv_proj and gate_up_proj
  /// Latent attention: outputs of kv_a_proj_with_mqa (0 = other attention), of q_a_proj (0 = it has q_proj),
  /// and of q_b_proj or q_proj. `q` then is the number of inputs of o_proj.
  int64_t record = 0, q_rank = 0, queries = 0;
  int64_t experts = 0;  ///< of a layer that can be adapted: matrices of their own in the checkpoint
  int64_t expert_intermediate = 0, shared_intermediate = 0;  ///< the second 0 = no shared expert
  std::string expert_block = "mlp.";  ///< model.layers.N.EXPERT_BLOCKexperts.N.gate_proj
  std::array<std::string, 3> expert_parts = {"gate_proj", "up_proj", "down_proj"};
  std::string shared_name = "shared_expert";
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
