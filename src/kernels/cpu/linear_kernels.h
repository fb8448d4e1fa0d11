#pragma once
// The kernels of linear.cc for one instruction set (linear-inl.h).
#include <cstddef>
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea::linear_detail {

/// Outputs of a panel. A panel is [k][kPanel] weights: one 64-byte line of 16-bit weights for each k.
inline constexpr int64_t kPanel = 32;

/// Continues the chains of `rows` x `columns` outputs by `depth` steps of k.
struct Block {
  const std::byte* weight;  // the first panel, at the block's first k
  int64_t panel_stride;     // bytes from a panel to the next
  int64_t columns;          // outputs; the last panel may be partly used
  const float* x;           // [depth][rows]
  int rows;                 // 1 .. LinearKernels::max_rows
  int64_t depth;
  float* y;  // [rows] rows, y_stride elements apart
  int64_t y_stride;
  const float* bias;  // added at the end of the chains; null otherwise
  bool first;         // the chains start here, at 0, rather than at y
};

struct LinearKernels {
  int max_rows;
  void (*multiply)(const Block& block, DType storage);
  /// n elements, aligned to their size, rounded to nearest even.
  void (*convert)(const void* from, DType from_type, void* to, DType to_type, int64_t n);
};

extern const LinearKernels kLinearGeneric;
extern const LinearKernels kLinearAvx2;
extern const LinearKernels kLinearAvx512;

}  // namespace fovea::linear_detail
