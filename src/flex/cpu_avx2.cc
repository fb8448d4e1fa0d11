#include "flex/cpu_kernels-inl.h"

namespace fovea::flex {
const CpuKernels kCpuAvx2 = simd_avx2::kTable;
}
