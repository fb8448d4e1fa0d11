#include "kernels/cpu/moe-inl.h"

namespace fovea::moe_detail {
const MoeKernels kMoeAvx512 = simd_avx512::kTable;
}
