// Vectors over a row of any length, for the instruction set of the including file.
#pragma once
#include <cstdint>

#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Calls f(offset, lanes) for each vector of n elements; only the last may have fewer than Vec::kLanes.
template <class F>
FOVEA_INLINE void for_each_vector(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes)
    f(i, Vec::kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

FOVEA_INLINE Vec load_part(const float* p, int lanes) {
  return lanes == Vec::kLanes ? load(p) : load_n(p, lanes);
}
FOVEA_INLINE void store_part(float* p, Vec v, int lanes) {
  if (lanes == Vec::kLanes)
    store(p, v);
  else
    store_n(p, v, lanes);
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
