#pragma once
// A mixture of experts on the CPU: each expert's rows are collected, run through its MLP, and added back.
#include "ops/ops.h"

namespace fovea {

class ThreadPool;

/// Ops::experts and Ops::expert_scratch.
void run_experts_on_cpu(const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                        const Tensor& scratch, const Tensor& out, ThreadPool& pool);
int64_t cpu_expert_scratch(const ExpertWeights& weights, int experts_per_token, int64_t max_rows);

/// gated_linear() of fp32 rows with row strides in elements.
void gated_linear_on_cpu(const LinearWeight& gate_up, const GatedActivation& activation, const float* x,
                         int64_t x_stride, int64_t rows, float* wide, int64_t wide_stride, float* out,
                         int64_t out_stride, ThreadPool& pool);
/// gated_activate() likewise: wide [rows, 2 width], out [rows, width].
void gated_activate_on_cpu(const GatedActivation& activation, const float* wide, int64_t wide_stride,
                           int64_t rows, int64_t width, float* out, int64_t out_stride, ThreadPool& pool);

}  // namespace fovea
