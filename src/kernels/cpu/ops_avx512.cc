#include "kernels/cpu/ops-inl.h"

namespace fovea::ops_detail {
const OpsKernels kOpsAvx512 = simd_avx512::kTable;
}
