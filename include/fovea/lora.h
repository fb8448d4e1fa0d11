#pragma once
// LoRA adapters (PEFT's format) of a decoder. An adapter adds scale * (x A^T) B^T to the outputs
// of linear layers; its matrices are not merged into the weights, so that requests with different adapters,
// and without one, share steps. A request's bits are those that it has alone.
#include <cstdint>
#include <string>
#include <vector>

namespace fovea {

/// The largest rank of any adapter, and of LoraConfig::max_rank.
inline constexpr int kMaxLoraRank = 512;

/// An adapter to load.
struct LoraModule {
  std::string name;  ///< by which requests choose it
  std::string path;  ///< a folder with adapter_config.json and adapter_model.safetensors, or such a hub id
};

struct LoraConfig {
  bool enabled = false;             ///< adapters may be loaded; implied by `modules`
  std::vector<LoraModule> modules;  ///< loaded at the start
  int max_rank = 64;  ///< of an adapter's matrices, 1 to kMaxLoraRank; sets aside scratch memory
  /// Different adapters in one step; others wait. 0 = no limit, on a GPU `modules`, 4 to 32: each has a slot.
  int max_loras = 0;
  /// Adapters that are loaded at a time. 0 = no limit.
  int max_loaded = 0;

  bool on() const { return enabled || !modules.empty(); }
};

/// A loaded adapter.
struct LoraInfo {
  std::string name, path;
  int rank = 0;         ///< the largest of its matrices
  int64_t bytes = 0;    ///< of its matrices in memory
  int64_t created = 0;  ///< seconds since 1970 when it was loaded
};

}  // namespace fovea
