#include "kernels/cpu/moe-inl.h"

namespace fovea::moe_detail {
const MoeKernels kMoeAvx2 = simd_avx2::kTable;
}
