#pragma once
// Online softmax of one row in base 2, and the end of a row.
#include <cuda_runtime.h>

#include "base/mutation.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

/// The row max to subtract from scores: 0 while a row has seen no key, so that -inf - -inf does not occur.
__device__ __forceinline__ float finite_max(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

/// A finished row: O = inverse * (unnormalised O), and its log-sum-exp (natural).
struct RowEnd {
  float inverse, lse;
};
/// `maximum` and `sum` (log2 units) of all its keys; `sink` is null or the head's learned logit.
__device__ __forceinline__ RowEnd finish_row(float maximum, float sum, const float* sink,
                                             bool lse_includes_sink) {
  RowEnd end;
  if (sink == nullptr) {
    end.inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    end.lse = sum > 0.0f ? (maximum + log2f(sum)) * kLn2 : -INFINITY;
    // A NaN from a visible key propagates.
    if (sum != sum) end.inverse = end.lse = sum;
    return end;
  }
  const float sink2 = *sink * kLog2e;
  const float top = fmaxf(maximum, sink2);
  const float base = finite_max(top);
  const float scaled = sum * exp2f(maximum - base);  // maximum = -inf: sum is 0
  const float total = scaled + exp2f(sink2 - base) * (mutated(Mutation::sink_twice) ? 2.0f : 1.0f);
  end.inverse = sum > 0.0f ? exp2f(maximum - base) / total : 0.0f;
  end.lse = lse_includes_sink ? (top == -INFINITY ? top : (top + log2f(total)) * kLn2)
                              : (sum > 0.0f ? (maximum + log2f(sum)) * kLn2 : -INFINITY);
  if (sink2 == INFINITY) {
    end.inverse = 0.0f;
    if (lse_includes_sink) end.lse = INFINITY;
  }
  if (sum != sum) end.inverse = end.lse = sum;
  return end;
}

}  // namespace fovea::cuda
