#include "flex/cpu_kernels-inl.h"

namespace fovea::flex {
const CpuKernels kCpuGeneric = simd_generic::kTable;
}
