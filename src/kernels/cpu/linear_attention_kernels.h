#pragma once
// The kernels of linear_attention.cc for one instruction set (linear_attention-inl.h).
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea::linear_attention_detail {

/// The rows of one sequence and head: row t of q is at q + t * q_stride, and so on; strides in elements.
struct RowPointers {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* out = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  DType dtype = DType::f32;
};

/// The recurrence of one sequence, head and block of columns of v: lightning attention (delta = false), or
/// the gated delta rule.
struct RecurrenceBlock {
  RowPointers rows;  ///< v and out at the block's first column
  int64_t tokens = 0;
  int dk = 0, columns = 0;       ///< columns <= the table's `columns`
  const float* decay = nullptr;  ///< [tokens] with decay_stride: exp(g)
  const float* beta = nullptr;   ///< with beta_stride; null = 1
  int64_t decay_stride = 0, beta_stride = 0;
  float scale = 1.0f;
  bool delta = false, normalize = false;
  const float* state_in = nullptr;  ///< [dk] rows, state_stride apart; null = zeros
  float* state_out = nullptr;       ///< or null
  int64_t state_stride = 0;
  float* scratch = nullptr;  ///< recurrence_scratch() floats
};

/// HSTU: rows [row_begin, row_end) of one sequence and head.
struct HstuBlock {
  RowPointers rows;  ///< k and v of the sequence's row 0; q and out of `first_row`
  int64_t first_row = 0, row_begin = 0, row_end = 0, keys = 0;
  int dk = 0, dv = 0;
  float alpha = 1.0f, divisor = 1.0f;
  const int32_t* seen_begin =
      nullptr;  ///< [rows]: row i also sees the keys [seen_begin, seen_end), besides i
  const int32_t* seen_end = nullptr;
  const float* position_bias = nullptr;  ///< of distance 0
  const float* time_bias = nullptr;
  const int64_t* time_bounds = nullptr;
  int time_buckets = 0;
  const int64_t* times = nullptr;  ///< of the sequence's row 0
  float* scratch = nullptr;        ///< hstu_scratch() floats
};

inline constexpr int kHstuKeys = 64;  ///< keys of a tile
inline constexpr int kHstuRows = 64;  ///< rows of a block at most
inline constexpr int kRowPad = 64;    ///< floats that rows in scratch memory are padded to

constexpr int64_t padded(int64_t n) {
  return (n + kRowPad - 1) / kRowPad * kRowPad;
}
/// The state block, and two rows each of q and k.
constexpr int64_t recurrence_scratch(int64_t dk) {
  return dk * kRowPad + 4 * padded(dk);
}
/// q rows, a transposed tile of K, a tile of V, weights of a row group, sums.
constexpr int64_t hstu_scratch(int64_t dk, int64_t dv) {
  return kHstuRows * padded(dk) + dk * kHstuKeys + kHstuKeys * padded(dv) + kHstuRows * kHstuKeys +
         kHstuRows * padded(dv) + padded(dk);
}

struct LinearAttentionKernels {
  int columns;  ///< of v in a block of the recurrence
  void (*recurrence)(const RecurrenceBlock&);
  void (*hstu)(const HstuBlock&);
};

extern const LinearAttentionKernels kLinearAttentionGeneric;
extern const LinearAttentionKernels kLinearAttentionAvx2;
extern const LinearAttentionKernels kLinearAttentionAvx512;

}  // namespace fovea::linear_attention_detail
