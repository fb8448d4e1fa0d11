#pragma once
// Which keys a query row sees.
#include "kernels/cuda/common/mask.cuh"

namespace fovea::cuda::sm90 {

/// The keys [first, last) that a row sees. All masks of these kernels leave one interval.
struct KeyInterval {
  int first, last;
};
__device__ __forceinline__ KeyInterval seen_keys(const MaskParams& m, const WorkItem& item, int position) {
  KeyInterval seen{0, item.n_k};
  if (m.causal) seen.last = min(seen.last, position + 1);
  if (m.window_right >= 0 && m.window_right < seen.last - position) seen.last = position + m.window_right + 1;
  if (m.window_left >= 0) seen.first = max(seen.first, position - m.window_left);
  if (m.chunk > 0) {
    const int begin = floor_divide(position, m.chunk) * m.chunk;
    seen.first = max(seen.first, begin);
    if (m.chunk < seen.last - begin) seen.last = begin + m.chunk;
  }
  return seen;
}

}  // namespace fovea::cuda::sm90
