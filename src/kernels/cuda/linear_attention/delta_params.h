#pragma once
// The parameters of the gated delta rule's kernel on Hopper.
#include <cuda.h>

#include "kernels/cuda/linear_attention/params.h"

namespace fovea::cuda {

/// Tensor maps have boxes of 64 columns of one head and 64 rows.
struct DeltaParams {
  RecurrenceParams call;
  CUtensorMap q, k, v, out;
};

}  // namespace fovea::cuda
