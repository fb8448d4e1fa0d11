#include "attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fovea {
namespace {

// Elements summed in a local array, so that the output may be one of the parts.
constexpr int kBlock = 128;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// A part's LSE, with NaN and +inf (marks of an empty row) replaced by -inf.
float clean(float lse) {
  return std::isnan(lse) || lse == kInf ? -kInf : lse;
}

}  // namespace

void merge_states(std::span<const PartialState> parts, int64_t rows, int dv, float* o, float* lse) {
  for (int64_t row = 0; row < rows; ++row) {
    float max = -kInf;
    for (const PartialState& part : parts)
      max = std::fmax(max, clean(part.lse[row]));
    if (max == -kInf) max = 0.0f;
    float total = 0.0f;
    for (const PartialState& part : parts)
      total += std::exp(clean(part.lse[row]) - max);
    for (int first = 0; first < dv; first += kBlock) {
      const int n = std::min(kBlock, dv - first);
      float sum[kBlock] = {};
      for (const PartialState& part : parts) {
        const float weight = std::exp(clean(part.lse[row]) - max);
        if (!(weight > 0.0f)) continue;
        const float* in = part.o + row * dv + first;
        for (int d = 0; d < n; ++d)
          sum[d] += (weight / total) * in[d];
      }
      std::copy_n(sum, n, o + row * dv + first);
    }
    if (lse != nullptr) lse[row] = total > 0.0f ? max + std::log(total) : -kInf;
  }
}

}  // namespace fovea
