#pragma once
// What becomes of a finished sum of a grouped product, in fp32.
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/rows/activation.cuh"
#include "kernels/cuda/rows/four.cuh"

namespace fovea::cuda {

/// The factor of a position's sums.
FOVEA_DEVICE float sum_scale(const GroupedProduct& p, int position) {
  return p.scales == nullptr ? 1.0f : p.scales[p.groups.pair[position]];
}

/// Bias of output `output` of an expert; `part` 1 = the up of a gated pair.
FOVEA_DEVICE float bias_of(const GroupedProduct& p, bool gated, int expert, int part, int output) {
  if (p.weights.bias == nullptr || output >= p.outputs) return 0.0f;
  const int64_t n = gated ? 2 * p.outputs : p.outputs;
  return p.weights.bias[expert * n + part * p.outputs + output];
}

FOVEA_DEVICE float finished(const GroupedProduct& p, float sum, float scale, float bias) {
  if (p.scales != nullptr) sum = __fmul_rn(sum, scale);
  return p.weights.bias == nullptr ? sum : __fadd_rn(sum, bias);
}

}  // namespace fovea::cuda
