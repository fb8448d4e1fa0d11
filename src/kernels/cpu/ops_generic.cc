#include "kernels/cpu/ops-inl.h"

namespace fovea::ops_detail {
const OpsKernels kOpsGeneric = simd_generic::kTable;
}
