#pragma once
// LoRA adapters on an NVIDIA GPU (README.md): the rows of a step in tiles of one adapter each.
//
// One arithmetic: a row's bits depend on its values and its adapter's alone. Of 16-bit types: x A^T has 32
// chains of m16n8k16, of which chain i takes the inputs [128 i, 128 i + 128), and those 4096, 8192, ...
// further on. Four in a row are a part; a part is the sum of its chains in ascending order, and so is x A^T
// of the parts. The result, scaled in fp32, is cut into two numbers of the type tf32, high and low; the
// adapter's share is a chain of m16n8k8 over ascending ranks, first high, then low, from zero on, and is
// added to y in fp32. fp32: chains of fma.
#include <cstdint>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"
#include "kernels/cuda/linear/linear.h"

namespace fovea {
class CudaStream;
}

namespace fovea::cuda {

inline constexpr int kLoraRows = 16;     ///< of a tile, at most
inline constexpr int kLoraInputs = 512;  ///< of a part, of 4096
inline constexpr int kLoraParts = 8;     ///< at most

/// One linear layer's modules, and a step's tiles.
struct LoraParams {
  DType dtype = DType::bf16;  ///< of x and the matrices
  /// Slots of slot_bytes each, 16-byte aligned: a table, whose line `line` is {f32 scale [3], i32 rank}, then
  /// matrices from byte `matrices` on. A [modules * rank, a_stride] begins at element a * rank of these, B
  /// [n, rank] at element b * rank. Ranks are multiples of 8, scale 0 = no such module.
  const void* slots = nullptr;
  int64_t slot_bytes = 0, matrices = 0, a = 0, b = 0;
  int line = 0;
  int64_t k = 0, a_stride = 0;     ///< inputs; elements, a multiple of 8
  int64_t n = 0;                   ///< outputs
  int modules = 1;                 ///< 1 to 3
  int64_t first_output[4] = {};    ///< of each module, then n
  int max_rank = 0;                ///< of a slot, a multiple of 8
  const int32_t* order = nullptr;  ///< rows, those of a tile next to each other
  const int32_t* tiles = nullptr;  ///< [num_tiles, 4]: slot (negative = none), place in `order`, rows, unused
  int64_t num_tiles = 0;
  const void* x = nullptr;  ///< [rows, k]; 16-bit: 16-byte aligned, the stride a multiple of 8
  int64_t x_stride = 0;
  float* low = nullptr;  ///< x A^T: f32 scratch [places in `order`, lora_parts(), modules * max_rank]
  /// Scratch of 16-bit types: [num_tiles, 2], zero in front of each launch and after it.
  int32_t* counters = nullptr;
  /// x may be read before the kernel in front has ended: that has LinearParams::late_dependents.
  bool early_input = false;
};

/// Partial sums of each rank.
int64_t lora_parts(DType dtype, int64_t k);

/// y [rows, n] of `dtype` += scale * (x A^T) B^T, rounded once, for the tiles' rows. Queues one launch (fp32:
/// two); allocates nothing.
Status launch_lora(const LoraParams& params, void* y, int64_t y_stride, CudaStream& stream);

/// The second half of a gated linear layer: all rows of the tiles, also those without an adapter, which get
/// the bits of LinearEpilogue::gated.
struct LoraGatedParams {
  const float* wide = nullptr;  ///< the layer's sums, without scales and bias; row 0 is row `first_row`
  int64_t wide_stride = 0, first_row = 0;
  /// Columns of `wide` are in the order of packed_row(gated), else gates, then ups.
  bool interleaved = true;
  int64_t first_tile = 0, num_tiles = 0;  ///< of LoraParams::tiles
  /// y, y_stride, scales, bias, activation and limit of a gated layer with n outputs. Of scales only those of
  /// outputs: null with block_scales.
  LinearParams layer;
};
Status launch_lora_gated(const LoraParams& params, const LoraGatedParams& gated, CudaStream& stream);

}  // namespace fovea::cuda
