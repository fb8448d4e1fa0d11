#include "kernels/cpu/ops-inl.h"

namespace fovea::ops_detail {
const OpsKernels kOpsAvx2 = simd_avx2::kTable;
}
