// The loops of measure_machine(), for the instruction set of the including file.
#include "kernels/cpu/machine_kernels.h"
#include "kernels/cpu/simd.h"

namespace fovea::machine_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

inline double fma_rounds(int64_t rounds, volatile float* sink) {
  constexpr int kChains = 12;  // hide 4 cycles on 2 pipes, and fit in 16 registers
  Vec sum[kChains];
  for (int c = 0; c < kChains; ++c)
    sum[c] = set1(static_cast<float>(c));
  const Vec half = set1(*sink * 0.0f + 0.5f), one = set1(1.0f);  // tends to 2: never subnormal
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c)
      sum[c] = fma(sum[c], half, one);
  for (int c = 1; c < kChains; ++c)
    sum[0] = sum[0] + sum[c];
  *sink = reduce_add(sum[0]);
  return 2.0 * Vec::kLanes * kChains * static_cast<double>(rounds);
}

inline void read_all(const float* data, size_t bytes, volatile float* sink) {
  constexpr int kSums = 8;
  Vec sum[kSums];
  for (int s = 0; s < kSums; ++s)
    sum[s] = zero();
  for (const float* end = data + bytes / sizeof(float); data != end; data += kSums * Vec::kLanes)
    for (int s = 0; s < kSums; ++s)
      sum[s] = sum[s] + load(data + s * Vec::kLanes);
  for (int s = 1; s < kSums; ++s)
    sum[0] = sum[0] + sum[s];
  *sink = reduce_add(sum[0]);
}

}  // namespace fovea::machine_detail::FOVEA_SIMD_NAMESPACE
