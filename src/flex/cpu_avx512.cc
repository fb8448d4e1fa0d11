#include "flex/cpu_kernels-inl.h"

namespace fovea::flex {
const CpuKernels kCpuAvx512 = simd_avx512::kTable;
}
