#include "kernels/cpu/linear-inl.h"

namespace fovea::linear_detail {
const LinearKernels kLinearAvx2 = {simd_avx2::kMaxRows, simd_avx2::multiply, simd_avx2::convert};
}
