#pragma once
// The arithmetic of merge_states on the GPU: states are merged left to right, with the same bits whether they
// are combined one by one (MergeState::combine) or by merge_states_kernel, which knows the largest exponent
// before it sums.
//
// A part is (O, LSE), O normalised over its keys, LSE natural. With s = LSE * log2(e), n = ceil(s) and b =
// 2^(s - n) in (1/2, 1], its weight relative to 2^M is b * 2^(n - M). Only whole powers of two depend on M,
// so rescaling a running sum when M grows is exact (down to 2^-126):
//   combine:  O = part * w + O * 2^(M_old - M),   W likewise      kernel:  M known first, O = part * w + O
// are the same roundings in the same order. At the end O / W and LSE = (M + log2 W) ln 2. A row with one part
// that is not empty keeps that part's O and LSE as they are, so that splitting keys that a row does not see
// changes nothing.
#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace fovea::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

/// a * b rounded: never part of a fused multiply-add, which would give other bits in other kernels.
FOVEA_HOST_DEVICE inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// 2^n for a whole n, 0 below -126: exact powers of two are products that can't round.
FOVEA_HOST_DEVICE inline float power_of_two(float n) {
  return n < -126.0f ? 0.0f : ldexpf(1.0f, static_cast<int>(n));
}

/// The LSE with NaN and +inf, which mark an empty part, replaced by -inf.
FOVEA_HOST_DEVICE inline float clean_lse(float lse) {
  return lse < INFINITY ? lse : -INFINITY;
}

/// A part's weight: mantissa * 2^exponent.
struct PartWeight {
  float mantissa = 0.0f;       ///< (1/2, 1]; 0 = an empty part
  float exponent = -INFINITY;  ///< whole
};

FOVEA_HOST_DEVICE inline PartWeight part_weight(float lse) {
  lse = clean_lse(lse);
  if (lse == -INFINITY) return {};
  const float s = product(lse, kLog2E);
  const float n = ceilf(s);
  return {exp2f(s - n), n};
}

/// How a part enters the running sum of a row: O = product(O, keep), then, unless weight is 0, O =
/// fmaf(part, weight, O).
struct CombineFactors {
  float keep = 1.0f, weight = 0.0f;
};

/// The merged parts of one row, without O.
struct MergeState {
  float exponent = -INFINITY;  ///< M; the largest exponent so far
  float weight = 0.0f;         ///< W, relative to 2^M
  float lse = -INFINITY;       ///< of the only part
  int parts = 0;               ///< that are not empty

  /// Adds the next part.
  FOVEA_HOST_DEVICE CombineFactors combine(float part_lse) {
    const PartWeight part = part_weight(part_lse);
    if (part.mantissa == 0.0f) return {};
    if (++parts == 1) {  // O is the part itself until there is a second one
      exponent = part.exponent;
      weight = part.mantissa;
      lse = part_lse;
      return {0.0f, 1.0f};
    }
    const float most = fmaxf(exponent, part.exponent);
    const float shrink = power_of_two(exponent - most);
    const float added = part.mantissa * power_of_two(part.exponent - most);
    const CombineFactors factors{parts == 2 ? weight * shrink : shrink, added};
    weight = weight * shrink + added;
    exponent = most;
    return factors;
  }

  /// The final divisor of O.
  FOVEA_HOST_DEVICE float divisor() const { return parts > 1 ? weight : 1.0f; }
  /// -inf for a row without keys.
  FOVEA_HOST_DEVICE float merged_lse() const {
    return parts > 1 ? product(exponent + log2f(weight), kLn2) : lse;
  }
};

/// The factor by which a learned sink logit scales O, and the LSE that includes the sink. A row without keys
/// has O = 0 already.
struct SinkResult {
  float factor = 1.0f, lse = -INFINITY;
};

FOVEA_HOST_DEVICE inline SinkResult apply_sink(float lse, float sink) {
  if (lse == -INFINITY) return {1.0f, sink};
  const float most = fmaxf(lse, sink);
  if (most == INFINITY) return {0.0f, INFINITY};
  return {1.0f / (1.0f + expf(sink - lse)), most + log1pf(expf(fminf(lse, sink) - most))};
}

}  // namespace fovea::cuda
