#include "kernels/cpu/machine-inl.h"

namespace fovea::machine_detail {
const MachineKernels kMachineAvx2 = {simd_avx2::fma_rounds, simd_avx2::read_all};
}
