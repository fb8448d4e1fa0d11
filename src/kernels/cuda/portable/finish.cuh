#pragma once
// The end of rows: parts of keys that are folded from the first to the last, and what becomes of a row.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/portable/elements.cuh"

namespace fovea::cuda::portable {

/// Rows whose keys come in parts. The merge kernel and the kernel that folds as it goes take the same steps:
///   O = fmaf(O, keep, add * o)
/// A part without keys changes nothing, and the first one with keys is taken as it is.
struct Folded {
  float maximum = -INFINITY, sum = 0.0f;
};
struct FoldFactors {
  float keep, add;
};
FOVEA_DEVICE FoldFactors fold(Folded& all, float maximum, float sum) {
  const float top = fmaxf(all.maximum, maximum), base = finite_max(top);
  const FoldFactors f{exp2_approx(all.maximum - base), exp2_approx(maximum - base)};
  all.sum = fmaf(all.sum, f.keep, __fmul_rn(sum, f.add));
  all.maximum = top;
  return f;
}
FOVEA_DEVICE float folded(float all, float part, const FoldFactors& f) {
  return fmaf(all, f.keep, __fmul_rn(part, f.add));
}

/// Writes a row's log-sum-exp, if `writes_lse`, and gives what O is multiplied by.
FOVEA_DEVICE float end_of_row(const AttentionParams& p, const WorkItem& item, const RowContext& r,
                              float maximum, float sum, bool writes_lse) {
  const RowEnd end = finish_row(maximum, sum_of(item, sum), p.sinks == nullptr ? nullptr : p.sinks + r.head,
                                p.lse_includes_sink);
  if (writes_lse && p.lse != nullptr)
    p.lse[static_cast<int64_t>(item.q_first + r.row) * p.kv_heads.divisor * p.group.divisor + r.head] =
        end.lse;
  return end.inverse * p.kv.v_scale;
}

}  // namespace fovea::cuda::portable
