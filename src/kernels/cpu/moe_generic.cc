#include "kernels/cpu/moe-inl.h"

namespace fovea::moe_detail {
const MoeKernels kMoeGeneric = simd_generic::kTable;
}
