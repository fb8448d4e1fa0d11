#pragma once
// The epilogue of a row: combining the partial results of its splits, from the first to the last, and its
// final scale and LSE.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/portable/elements.cuh"

namespace fovea::cuda::portable {

/// The softmax state of a row over the splits combined so far. The combine kernel and the fp32 kernel, which
/// combines each split as it ends, do the same arithmetic:
///   O = fmaf(O, keep, add * o)
/// A split without keys changes nothing, and the first one with keys is taken as it is.
struct CombinedState {
  float maximum = -INFINITY, sum = 0.0f;
};
struct CombineFactors {
  float keep, add;
};
FOVEA_DEVICE CombineFactors combine_state(CombinedState& all, float maximum, float sum) {
  const float top = fmaxf(all.maximum, maximum), base = finite_max(top);
  const CombineFactors f{exp2_approx(all.maximum - base), exp2_approx(maximum - base)};
  all.sum = fmaf(all.sum, f.keep, __fmul_rn(sum, f.add));
  all.maximum = top;
  return f;
}
FOVEA_DEVICE float combine(float all, float part, const CombineFactors& f) {
  return fmaf(all, f.keep, __fmul_rn(part, f.add));
}

/// Stores the log-sum-exp of a row, if `writes_lse`, and returns the factor that O is multiplied by.
FOVEA_DEVICE float finish_row_and_store_lse(const AttentionParams& p, const WorkItem& item,
                                            const RowContext& r, float maximum, float sum, bool writes_lse) {
  const RowEnd end = finish_row(maximum, sum_of(item, sum), p.sinks == nullptr ? nullptr : p.sinks + r.head,
                                p.lse_includes_sink);
  if (writes_lse && p.lse != nullptr)
    p.lse[static_cast<int64_t>(item.q_first + r.row) * p.kv_heads.divisor * p.group.divisor + r.head] =
        end.lse;
  return end.inverse * p.kv.v_scale;
}

}  // namespace fovea::cuda::portable
