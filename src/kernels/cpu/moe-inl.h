// The row kernels of moe.h, for the instruction set of the including file.
#include "kernels/cpu/moe_kernels.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::moe_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

inline void scale(const float* x, float factor, float* y, int64_t n) {
  const Vec s = set1(factor);
  for_each_vector(n, [&](int64_t i, int lanes) { store_part(y + i, load_part(x + i, lanes) * s, lanes); });
}

inline void add_scaled(float* x, float factor, const float* y, int64_t n) {
  const Vec s = set1(factor);
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(x + i, fma(s, load_part(y + i, lanes), load_part(x + i, lanes)), lanes);
  });
}

inline void clamped_swiglu(const float* gate, const float* up, float limit, float* out, int64_t n) {
  const Vec top = set1(limit), bottom = set1(-limit), one = set1(1.0f), alpha = set1(1.702f);
  for_each_vector(n, [&](int64_t i, int lanes) {
    // min and max return their second operand where one is NaN: it stays.
    const Vec g = min(top, load_part(gate + i, lanes));
    const Vec u = max(bottom, min(top, load_part(up + i, lanes)));
    // With e = e^-|z| <= 1 nothing overflows: sigmoid(z) = 1 / (1 + e) for z >= 0, e / (1 + e) below.
    const Vec z = g * alpha;
    const Vec e = exp(min(z, zero() - z));
    const Vec glu = g * select_less(z, zero(), e, one) / (one + e);
    store_part(out + i, (u + one) * glu, lanes);
  });
}

constexpr MoeKernels kTable = {scale, add_scaled, clamped_swiglu};

}  // namespace fovea::moe_detail::FOVEA_SIMD_NAMESPACE
