#pragma once
// LoRA adapters on a device that is not the CPU. The device has slots of one size, and an adapter fills one:
// its table, then all its matrices, in the type of activations. The rows of a step are sorted by slot into
// tiles, so that one launch serves rows with different adapters and with none; the tiles are arrays of the
// step, which a captured graph reads again in every step.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/dtype.h"
#include "ops/lora.h"
#include "tensor/tensor.h"

namespace fovea {

/// One linear layer of the engine and its modules.
struct LoraPlace {
  int64_t k = 0, n = 0;  ///< inputs and outputs of the engine's layer
  int modules = 0;       ///< 0: it can't be adapted
  /// [modules]: the first output of each; then n.
  std::array<int64_t, kLoraModules + 1> first_output{};
  int line = 0;              ///< of the slot's table
  int64_t a = 0, b = 0;      ///< elements of a slot's matrices in front of its own, for each rank
  int64_t a_stride() const;  ///< elements between rows of A: k, padded

  bool empty() const { return modules == 0; }
};

/// A line of a slot's table: of one layer's modules, in the order of their outputs.
struct LoraLine {
  std::array<float, kLoraModules> scale{};  ///< 0 = the adapter lacks the module
  int32_t rank = 0;                         ///< of all modules of the slot: the adapter's, padded with zeros
};
static_assert(sizeof(LoraLine) == 16);

/// What a slot contains. With R = LoraLine::rank, the matrices of `place` are A [modules * R, a_stride()] at
/// element place.a * R, and B [n, R] at element place.b * R; padding is zero.
struct LoraLayout {
  /// Ranks are padded to multiples of it.
  static constexpr int kRanks = 8;

  DType dtype = DType::bf16;
  int max_rank = 0;  ///< of a module, padded
  std::vector<std::array<LoraPlace, kLoraSites>> layers;
  /// [layer][expert, then the shared one]: gate_up and down. Empty: the layer has none that can be adapted.
  /// The lines and matrices of consecutive experts, which have equal shapes, are at constant distances.
  std::vector<std::vector<std::array<LoraPlace, 2>>> experts;
  int64_t lines = 0;     ///< of the table
  int64_t elements = 0;  ///< of all matrices, for each rank

  const LoraPlace& at(int layer, LoraSite site) const {
    return layers[static_cast<size_t>(layer)][static_cast<size_t>(site)];
  }
  /// Whether a layer has experts that can be adapted.
  bool has_experts(int layer) const {
    return !experts.empty() && !experts[static_cast<size_t>(layer)].empty();
  }
  /// Bytes of the table, and of a slot; both are multiples of 256.
  int64_t table_bytes() const;
  int64_t slot_bytes() const;
};

/// Gives every place its line and its share of a slot. Set are dtype, max_rank, and of each place with
/// modules its k, n and outputs.
void finish(LoraLayout& layout);

/// The content of a slot with the adapter, which must have been read for `layout`. Throws std::bad_alloc.
std::vector<std::byte> lora_image(const LoraAdapter& adapter, const LoraLayout& layout);

/// Rows of a tile.
inline constexpr int kLoraTileRows = 16;

/// A tile, as the device reads it.
struct LoraTile {
  int32_t slot = -1;  ///< negative: rows without an adapter
  int32_t first = 0;  ///< place in LoraTiles::order
  int32_t rows = 0;   ///< 0 to kLoraTileRows
  int32_t unused = 0;
};
static_assert(sizeof(LoraTile) == 16);

/// Rows of a step by slot.
struct LoraTiles {
  Tensor order;  ///< i32 [T]: rows, those of a tile next to each other, ascending
  Tensor tiles;  ///< i32 [tiles, 4]: LoraTile
  /// [blocks + 1]: the tiles of rows [b * LoraStep::block_rows, ...) are [b] to [b + 1].
  std::vector<int32_t> of_block;
};

/// The adapters of a step.
struct LoraStep {
  const LoraLayout* layout = nullptr;
  Tensor slots;            ///< u8 [slots, slot_bytes()]
  Tensor counters;         ///< i32 [the most tiles, 2]: scratch of the device's kernels, zero between them
  int64_t block_rows = 0;  ///< tiles have rows of one such block
  LoraTiles rows;          ///< of the step
  LoraTiles logit_rows;    ///< places in StepTensors::logit_rows
};

/// The host's arrays of LoraTiles.
struct LoraTileList {
  std::vector<int32_t> order;
  std::vector<LoraTile> tiles;
  std::vector<int32_t> of_block;

  /// `slot_of`: of each row, negative without an adapter. With `fill` > 0 all rows are one block, which gets
  /// this many tiles, empty ones at the end.
  void build(std::span<const int32_t> slot_of, int64_t block_rows, int fill = 0);
  /// Tiles of `rows` rows in one block, at most, with `slots` slots.
  static int most(int rows, int slots);
};

/// What a model needs to know of adapters before its first step.
struct LoraLimits {
  int max_rank = 0;
  // Only on a device that is not the CPU:
  const LoraLayout* layout = nullptr;  ///< outlives the model
  int64_t block_rows = 0;              ///< LoraStep's
};

}  // namespace fovea
