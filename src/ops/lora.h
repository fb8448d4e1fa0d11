#pragma once
// LoRA adapters in memory, and the rows of a step that they apply to. A module with the weight W of a linear
// layer has y = x W^T + scale * (x A^T) B^T, with A [r, k] and B [n, r].
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/linear.h"

namespace fovea {

/// The linear layers of a decoder layer, as the engine stores them: `qkv` has the outputs of q, k and v,
/// `gate_up` those of gate and up.
/// With latent attention `qkv` has those of q (or its latent) and of the keys' and values' latent, `q_up`
/// what follows the queries' latent.
enum class LoraSite : uint8_t { qkv, o, gate_up, down, q_up };
inline constexpr size_t kLoraSites = 5;
/// Modules of a site at most: q, k and v.
inline constexpr int kLoraModules = 3;

/// An adapter's share of one linear layer of the engine: modules with the same input.
struct LoraWeights {
  /// One module.
  struct Module {
    PackedMatrix b;            ///< [n, r]
    int64_t first_output = 0;  ///< of the engine's layer
    int64_t first_rank = 0;    ///< its A is rows [first_rank, first_rank + r) of `a`
    float scale = 1.0f;
  };
  PackedMatrix a;  ///< [ranks of all modules, k]
  std::vector<Module> modules;

  bool empty() const { return modules.empty(); }
  int64_t bytes() const;
};

struct LoraAdapter {
  uint64_t number = 0;  ///< of the loaded adapters of an engine: never used twice, from 1
  std::string name;
  int rank = 0;  ///< the largest of its modules
  std::vector<std::array<LoraWeights, kLoraSites>> layers;
  /// [layer][expert, then the shared one]: gate_up and down. Empty, or empty layers: none is adapted.
  std::vector<std::vector<std::array<LoraWeights, 2>>> experts;
  /// On a device that is not the CPU, instead of `layers`: lora_image().
  std::vector<std::byte> image;

  const LoraWeights& at(int layer, LoraSite site) const {
    return layers[static_cast<size_t>(layer)][static_cast<size_t>(site)];
  }
  int64_t bytes() const;
};

/// The rows of a step that one adapter applies to, ascending.
struct LoraGroup {
  const LoraAdapter* adapter = nullptr;
  std::vector<int32_t> rows;
  std::vector<int32_t> logit_rows;  ///< places in ForwardInput::logit_rows
};
using LoraBatch = std::vector<LoraGroup>;

struct LoraLayout;
struct LoraStep;

/// The adapters of a step on the experts of one layer.
struct ExpertLora {
  const LoraBatch* batch = nullptr;  ///< on the CPU
  int layer = 0;
  bool logit_rows = false;   ///< rows are those of LoraGroup::logit_rows
  float* scratch = nullptr;  ///< on the CPU: lora_scratch()
  // In slots, where the device is not the CPU:
  const LoraLayout* layout = nullptr;
  const LoraStep* step = nullptr;  ///< null: a step without adapters
  int64_t block_rows = 0;          ///< LoraStep's
};

/// Floats of apply_lora()'s scratch: `ranks` of all modules of a site, k inputs and n outputs, at most.
int64_t lora_scratch(int64_t ranks, int64_t k, int64_t n);

/// y[row] += scale * (x[row] A^T) B^T for `rows`, ascending; row strides in elements. First x A^T is rounded
/// to fp32 and scaled, then the sums over r continue from y in the order of the ranks: a row's bits depend on
/// no other row.
void apply_lora(const LoraWeights& weights, std::span<const int32_t> rows, const float* x, int64_t x_stride,
                float* y, int64_t y_stride, float* scratch, ThreadPool& pool);

}  // namespace fovea
