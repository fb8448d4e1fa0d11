#pragma once
// Rotary position embedding: frequencies and the cos/sin rows of one step.
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/config.h"

namespace fovea {

/// Radians per position for each pair t in [0, R / 2), R = rope.rotary_dim, or head_dim if that is 0:
/// theta^(-2t / R), scaled as `rope` says (linear: f / s; llama3: low frequencies / s, high ones kept, a
/// smooth blend between; yarn: a linear ramp over t; longrope: f / divisor).
std::vector<double> rope_frequencies(const RopeConfig& rope, int head_dim);

/// cos and sin [T, frequencies.size()] of positions[T] x frequencies, times `factor`, in fp64 rounded once to
/// fp32. A row depends on its position only.
void rope_rows(std::span<const double> frequencies, double factor, std::span<const int32_t> positions,
               float* cos, float* sin, ThreadPool& pool);

}  // namespace fovea
