#pragma once
// Launch of merge_states: left to right in the arithmetic of state.h, in fp32.
#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"

namespace fovea::cuda {

/// Where a merge writes. `out` may be null if only the LSE is wanted.
struct MergeOutput {
  void* out = nullptr;  ///< [rows, heads, dv], the last two contiguous
  DType dtype = DType::bf16;
  int64_t out_row_stride = 0;    ///< elements between rows
  float* lse = nullptr;          ///< [rows, heads] natural log, or null
  const float* sinks = nullptr;  ///< [heads] or null
  bool lse_includes_sink = false;
};

/// `parts` partial states over disjoint keys: part 0 at `first`, part i at `rest` + (i - 1) * stride. Two
/// separate tensors can be merged this way as well as one that holds all parts.
struct MergeParts {
  struct Part {
    const void* o = nullptr;     ///< [rows, heads, dv] contiguous, normalised
    const float* lse = nullptr;  ///< [rows, heads] natural log; -inf, +inf and NaN mark an empty row
  };
  Part first, rest;
  int64_t o_stride = 0, lse_stride = 0;  ///< elements between parts of `rest`
  int parts = 0;
  int rows = 0, heads = 0, dv = 0;
  DType dtype = DType::bf16;  ///< of O
};

/// Merges whole tensors. The output O may be in place of a part's O of the same dtype; the output LSE must
/// not be in place of a part's. Errors: negative sizes, no parts, missing pointers.
Status launch_merge_states(const MergeParts& parts, const MergeOutput& output, CudaStream& stream);

}  // namespace fovea::cuda
