#pragma once
// Row-wise operations on a GPU: embedding, norms, residual additions, copies and gated activations. Pointers
// are to device memory, strides are in elements between rows, the last dimension is contiguous, T is the
// number of rows. Each row is computed in an order that follows from its width alone. Launches allocate
// nothing and read nothing on the host; with no rows they do nothing. Errors, before the launch: sizes,
// strides, types or pointers that don't go together.
#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"
#include "kernels/cpu/activation.h"

namespace fovea::cuda {

/// How an embedding table [n, dim] is stored.
enum class TableLayout : uint8_t {
  rows,      ///< row-major, rows `table_stride` elements apart; any dtype
  blocks16,  ///< 16-bit elements in panels of 16 rows x blocks of 64 columns, each block 2 KiB and swizzled
             ///< in 128 bytes
};

struct EmbedParams {
  const void* table = nullptr;  ///< [n, dim]
  DType table_dtype = DType::bf16;
  TableLayout layout = TableLayout::rows;
  int64_t table_stride = 0;  ///< TableLayout::rows only
  int64_t n = 0, dim = 0;
  const int32_t* ids = nullptr;  ///< [T]; one outside [0, n) gives a row of NaN
  float scale = 1.0f;
  float* y = nullptr;  ///< [T, dim]
  int64_t y_stride = 0;
  int64_t rows = 0;
};
/// y row t = table row ids[t] times scale, in fp32.
Status launch_embed(const EmbedParams& params, CudaStream& stream);

struct NormParams {
  const void* x = nullptr;  ///< [T, dim]
  DType x_dtype = DType::f32;
  int64_t x_stride = 0;
  const float* weight = nullptr;  ///< [dim]
  const float* bias = nullptr;    ///< [dim] = LayerNorm; null = RMSNorm
  float eps = 0.0f;
  void* y = nullptr;  ///< [T, dim]; may be x if the dtypes are equal
  DType y_dtype = DType::bf16;
  int64_t y_stride = 0;
  int64_t rows = 0, dim = 0;
};
/// RMSNorm: x / sqrt(mean(x^2) + eps) * weight. LayerNorm: (x - mean(x)) / sqrt(variance(x) + eps) * weight +
/// bias, where the variance divides by dim. In fp32, y rounded once.
Status launch_norm(const NormParams& params, CudaStream& stream);

struct AddParams {
  float* x = nullptr;  ///< [T, dim]
  int64_t x_stride = 0;
  const void* y = nullptr;  ///< [T, dim]
  DType y_dtype = DType::bf16;
  int64_t y_stride = 0;
  float scale = 1.0f;
  int64_t rows = 0, dim = 0;
};
/// x += scale * y; the sum is rounded once.
Status launch_add(const AddParams& params, CudaStream& stream);

struct AddNormParams {
  AddParams add;
  const float* weight = nullptr;  ///< as in NormParams
  const float* bias = nullptr;
  float eps = 0.0f;
  void* out = nullptr;  ///< [T, dim]; may be add.y if the dtypes and strides are equal
  DType out_dtype = DType::bf16;
  int64_t out_stride = 0;
};
/// x += scale * y, then out = norm(x): the bits of launch_add() followed by launch_norm() on x.
Status launch_add_norm(const AddNormParams& params, CudaStream& stream);

struct CastParams {
  const void* x = nullptr;  ///< [T, dim]
  DType x_dtype = DType::f32;
  int64_t x_stride = 0;
  void* y = nullptr;  ///< [T, dim]
  DType y_dtype = DType::bf16;
  int64_t y_stride = 0;
  int64_t rows = 0, dim = 0;
};
/// y = x in another dtype, rounded to nearest even.
Status launch_cast(const CastParams& params, CudaStream& stream);

struct DenseRowsParams {
  const void* x = nullptr;  ///< [x_rows, dim] of `element_bytes` each: 1, 2, 4 or 8
  int64_t x_stride = 0, x_rows = 0;
  int element_bytes = 2;
  const int32_t* ids =
      nullptr;        ///< [R]; one outside [0, x_rows) gives a row of bytes 0xff: NaN in every float type
  void* y = nullptr;  ///< [R, dim]; must not overlap x
  int64_t y_stride = 0;
  int64_t rows = 0, dim = 0;  ///< R
};
/// y row r = x row ids[r].
Status launch_gather_dense_rows(const DenseRowsParams& params, CudaStream& stream);

struct TakeTokensParams {
  const int32_t* tokens = nullptr;  ///< [slots]
  int64_t slots = 0;
  const int32_t* slot = nullptr;  ///< [T]; negative = ids[t] stays
  int32_t* ids = nullptr;         ///< [T]; -1 where a slot is `slots` or more
  int64_t rows = 0;
};
/// ids[t] = tokens[slot[t]].
Status launch_take_tokens(const TakeTokensParams& params, CudaStream& stream);

/// Where the outputs of gate and up lie in a row of 2 * width.
enum class GatedLayout : uint8_t {
  halves,  ///< gates [width], then ups [width]
  eights,  ///< gates 8j to 8j + 7 at 16j, their ups at 16j + 8 (WeightLayout::gated_blocks16); width is a
           ///< multiple of 8
};

struct GatedParams {
  const void* wide = nullptr;  ///< [T, 2 * width]
  DType wide_dtype = DType::f32;
  GatedLayout layout = GatedLayout::halves;
  int64_t wide_stride = 0;
  Activation f = Activation::silu;
  float limit =
      0.0f;  ///< above 0: gpt-oss's: g = min(gate, limit), u = clamp(up), (u + 1) * g * sigmoid(1.702 g)
  void* out = nullptr;  ///< [T, width]
  DType out_dtype = DType::f32;
  int64_t out_stride = 0;
  int64_t rows = 0, width = 0;
};
/// out = f(gate) * up in fp32, rounded once: the arithmetic of the dense layers' epilogue.
Status launch_gated(const GatedParams& params, CudaStream& stream);

}  // namespace fovea::cuda
