#include "kernels/cpu/linear-inl.h"

namespace fovea::linear_detail {
const LinearKernels kLinearGeneric = {simd_generic::kMaxRows, simd_generic::multiply, simd_generic::convert};
}
