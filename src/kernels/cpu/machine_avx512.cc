#include "kernels/cpu/machine-inl.h"

namespace fovea::machine_detail {
const MachineKernels kMachineAvx512 = {simd_avx512::fma_rounds, simd_avx512::read_all};
}
