#include "kernels/cpu/linear-inl.h"

namespace fovea::linear_detail {
const LinearKernels kLinearAvx512 = {simd_avx512::kMaxRows, simd_avx512::multiply, simd_avx512::convert};
}
