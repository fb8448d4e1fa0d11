#pragma once
// Launches of the merge kernels. All merge left to right in the arithmetic of state.h, in fp32.
#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"
#include "kernels/cuda/plan/plan.h"

namespace fovea::cuda {

/// Where a merge writes. `out` may be null for rows that are only asked for their LSE.
struct MergeOutput {
  void* out = nullptr;  ///< [rows, heads, dv], the last two contiguous
  DType dtype = DType::bf16;
  int64_t out_row_stride = 0;    ///< elements between rows
  float* lse = nullptr;          ///< [rows, heads] natural log, or null
  const float* sinks = nullptr;  ///< [heads] or null
  bool lse_includes_sink = false;
};

/// Merges the records of a plan's merges (plan.view: partial_o, partial_lse). How many there are is read on
/// the device. `multiprocessors` of the device size the grid.
Status launch_merge_records(const PlanPolicy& policy, const PlanLayout& layout, const PlanView& plan,
                            const MergeOutput& output, int multiprocessors, CudaStream& stream);

/// `parts` partial states over disjoint keys: part 0 at `first`, part i at `rest` + (i - 1) * stride, so that
/// two tensors merge as well as one of all parts.
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

/// Merges whole tensors. O may be written over a part's of the same dtype, an LSE not. Errors: sizes that are
/// negative, no parts, pointers missing.
Status launch_merge_states(const MergeParts& parts, const MergeOutput& output, CudaStream& stream);

}  // namespace fovea::cuda
