#pragma once
// Merging partial attention results over disjoint key sets.
#include <cstdint>
#include <span>

namespace fovea {

/// Attention over some of the keys: o [rows, dv] (each row normalised over those keys), lse [rows] natural
/// log.
struct PartialState {
  const float* o = nullptr;
  const float* lse = nullptr;
};

/// Combines `parts`, in that order, into o [rows, dv] and lse [rows]:
///   M = max_r LSE_r, w_r = e^(LSE_r - M), o = sum_r (w_r / W) o_r, LSE = M + log W, W = sum_r w_r.
/// An LSE of NaN or +inf counts as -inf (the mark of an empty row in some libraries), and a part of weight 0
/// is not read, so that garbage in its o does not propagate. If all weights are 0: o = 0, lse = -inf. The
/// output may be one of the parts; `lse` may be null.
void merge_states(std::span<const PartialState> parts, int64_t rows, int dv, float* o, float* lse);

}  // namespace fovea
