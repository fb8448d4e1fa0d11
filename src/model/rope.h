#pragma once
// Rotary position embedding: frequencies. Ops::rope_table() computes a step's cos and sin.
#include <vector>

#include "model/config.h"

namespace fovea {

/// Radians per position for each pair t in [0, R / 2), R = rope.rotary_dim, or head_dim if that is 0:
/// theta^(-2t / R), scaled as `rope` says (linear: f / s; llama3: low frequencies / s, high ones kept, a
/// smooth blend between; yarn: a linear ramp over t; longrope: f / divisor).
std::vector<double> rope_frequencies(const RopeConfig& rope, int head_dim);

}  // namespace fovea
