#pragma once
// The operations on the CPU: the kernels of kernels/cpu, each divided among the stream's threads.
#include "kernels/cpu/linear.h"
#include "ops/ops.h"

namespace fovea {

/// One for all CPU streams; it has no state. Weights are panels of float32, float16 or bfloat16.
Ops& cpu_ops();

/// A linear layer's weights in the host's memory as PackedMatrix packs them; no bias where `bias` is empty.
LinearWeight packed_weight(const PackedView& weight, std::span<const float> bias = {});
/// The reverse, of packed weights.
PackedView packed_view(const LinearWeight& weight);

}  // namespace fovea
