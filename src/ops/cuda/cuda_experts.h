#pragma once
// Mixtures of experts on an NVIDIA GPU: the kernels of kernels/cuda/experts, the shared MLP and adapters.
#include "fovea/result_fwd.h"
#include "ops/ops.h"

namespace fovea {

/// Ops::experts and Ops::expert_scratch of `ops`, whose linear layers compute the shared MLP.
Status cuda_experts(Ops& ops, const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                    const Tensor& scratch, const Tensor& out, Stream& stream);
int64_t cuda_expert_scratch(const Ops& ops, const ExpertWeights& weights, int experts_per_token,
                            int64_t max_rows);

}  // namespace fovea
