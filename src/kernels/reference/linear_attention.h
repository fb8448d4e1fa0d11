#pragma once
// Attention without softmax by its definition in fp64, row by row: what the kernels are tested against. The
// formulas are those of fovea/linear_attention.h. Single thread; calls have been checked.
#include <vector>

#include "fovea/linear_attention.h"

namespace fovea {

/// out [T, H, Dv] and the states after each sequence [B, H, Dk, Dv], in fp64 and dense; call.out and
/// call.states.out are not written.
struct LinearReference {
  std::vector<double> out, states;
};
LinearReference reference_lightning(const LightningAttention& call);
LinearReference reference_gated_delta(const GatedDeltaRule& call);

/// out [Tq, H, Dv].
std::vector<double> reference_hstu(const HstuAttention& call);
/// Whether key j is visible to row i: the mask as the header states it.
bool hstu_visible(const HstuAttention& call, int64_t keys, int64_t targets, int64_t i, int64_t j);

}  // namespace fovea
