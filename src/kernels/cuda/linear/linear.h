#pragma once
// Linear layers on an NVIDIA GPU: y = x W^T + bias, with what follows it fused.
//
// One arithmetic: each output is one ascending chain of k16 matrix steps (m16n8k16 or wgmma k16), accumulated
// in fp32 from zero; for float32 one ascending chain of fma. What follows is computed in fp32 by the same
// operations everywhere and rounded once. So an output's bits depend on its row of x and its row of W alone,
// not on the number of rows, the kernel or the grid.
#include <cstdint>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"
#include "kernels/cpu/activation.h"
#include "kernels/cuda/codes/code_layout.h"
#include "kernels/cuda/linear/packed_layout.h"

namespace fovea {
class CudaStream;
}

namespace fovea::cuda {

/// What becomes of v = x W^T + bias.
enum class LinearEpilogue : uint8_t {
  store,     ///< y = v
  gated,     ///< y [rows, n / 2] = activation(v[0 .. n / 2)) * v[n / 2 .. n), as GatedActivation
  logits,    ///< y = softcap * tanh(scale v / softcap), or scale v where softcap is 0
  residual,  ///< y += scale v, rounded once; y is f32
};

/// Chooses a kernel for tests; all give the same bits.
enum class LinearKernel : uint8_t {
  automatic,
  stream,  ///< wgmma, outputs divided evenly over all multiprocessors (sm_90)
  tile,    ///< wgmma, tiles of 128 rows x 256 outputs (sm_90)
  mma,     ///< mma.sync (sm_80 and later)
  // Of quantised weights: stream (few rows of narrow layers), tile (sm_90) and mma.
};

/// One launch. Strides are in elements; y must not overlap x.
struct LinearParams {
  DType dtype = DType::bf16;  ///< of weight and x
  int64_t n = 0, k = 0;       ///< outputs (gated: gates and ups), inputs; at least 1
  /// packed_layout.h, 128-byte aligned; f32: rows [n, k], dense; with a code, code_layout.h.
  const void* weight = nullptr;
  WeightCode code = WeightCode::none;  ///< e4m3: with bf16 x
  /// e4m3: what multiplies the sums: f32 [n]; with block_scales, which multiply the sum of each 128 inputs,
  /// before these are added in ascending order, [panels, ceil(k / 128), 2]: of a panel's outputs 0 to 7 and 8
  /// to 15. Null without block_scales: 1.
  const float* scales = nullptr;
  bool block_scales = false;
  const float* bias = nullptr;  ///< [n] (gated: gates, then ups) or null
  /// What precedes on the stream does not write `weight`: it may be read before that has ended.
  bool constant_weight = false;
  /// With constant_weight: the bytes that each CTA may read that early. Small kernels in front are slower
  /// while much is read beside them, as what they read waits behind it.
  int64_t early_bytes = INT64_MAX;
  /// The next kernel on the stream begins no earlier than all kernels in front of this one have ended, so
  /// that it may read x before its own wait.
  bool late_dependents = false;
  const void* x = nullptr;  ///< [rows, k]; 16-bit: 16-byte aligned
  int64_t x_stride = 0;     ///< 16-bit: a multiple of 8
  int64_t rows = 0;         ///< 0 does nothing
  void* y = nullptr;        ///< [rows, n], gated [rows, n / 2]
  int64_t y_stride = 0;
  DType y_dtype = DType::bf16;  ///< `dtype` or f32
  LinearEpilogue epilogue = LinearEpilogue::store;
  Activation activation = Activation::silu;  ///< gated
  float limit = 0.0f;                        ///< gated: as GatedActivation::limit; 0 = none
  float scale = 1.0f;                        ///< logits, residual
  float softcap = 0.0f;                      ///< logits; 0 = off
  LinearKernel kernel = LinearKernel::automatic;
};

/// Queues the layer on the stream. Allocates nothing and does not wait, so it can be captured in a graph.
/// Errors: parameters outside the above, with what is allowed; a kernel that the device cannot run.
Status launch_linear(const LinearParams& params, CudaStream& stream);

/// Layers of one shape, each with its own matrix and its own columns of x and y: the heads of latent
/// attention. Weights of 16 bits, without bias, LinearEpilogue::store. Distances from a head's to the next's;
/// x_head a multiple of 8.
struct HeadLinearParams {
  LinearParams first;
  int64_t heads = 0;               ///< 1 to 65535
  int64_t weight_head = 0;         ///< bytes, a multiple of 128
  int64_t x_head = 0, y_head = 0;  ///< elements
};

/// Queues all heads as one launch; the bits are those of launch_linear() for each. Errors as there.
Status launch_head_linear(const HeadLinearParams& params, CudaStream& stream);

/// Rows of a row-major 16-bit matrix that become part of a packed weight.
struct PackParams {
  int64_t n = 0, k = 0;       ///< of the whole weight (gated: gates and ups)
  const void* src = nullptr;  ///< [rows, k] on the device, 2-byte aligned
  int64_t src_stride = 0;     ///< elements
  PackedPart part = PackedPart::plain;
  int64_t first_row = 0, rows = 0;  ///< the slice of the part: [0, n) of plain, [0, n / 2) of gate and up
  void* dst = nullptr;              ///< packed_bytes(n, k, part != plain), 16-byte aligned
};

/// Packs the slice, and zeros the padding of its rows; the slice with a part's last row zeros the rows of
/// padding after it too. Slices may come in any order.
Status launch_pack(const PackParams& params, CudaStream& stream);

}  // namespace fovea::cuda
