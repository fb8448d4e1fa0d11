#pragma once
// Grouping of rows by expert, and the weighted sum of the experts' results.
#include "kernels/cuda/experts/grouped.h"

namespace fovea::cuda {

/// Sorts the pairs by expert, then by row: a CTA for each expert. Fills begin, row, pair and position.
Status launch_group(const Grouping& groups, cudaStream_t stream);

struct CombineParams {
  Grouping groups;
  const int32_t* experts = nullptr;  ///< [rows, experts_per_token]
  const float* weights = nullptr;    ///< likewise; null = 1
  int experts_per_token = 0;
  const float* results = nullptr;  ///< [pairs, hidden] by position
  const void* shared = nullptr;    ///< [rows, hidden] or null
  DType shared_dtype = DType::f32;
  int64_t shared_stride = 0;
  const void* x = nullptr;  ///< [rows, hidden] of out_dtype: the output of identity experts
  int64_t x_stride = 0;
  int identity_experts = 0;  ///< ids from groups.num_experts on
  void* out = nullptr;
  DType out_dtype = DType::bf16;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int hidden = 0;
};
/// out = shared + weights * results in ascending expert id, in fp32, rounded once. A row with an id out of
/// range is NaN.
Status launch_combine(const CombineParams& params, cudaStream_t stream);

}  // namespace fovea::cuda
