#include "kernels/cpu/machine-inl.h"

namespace fovea::machine_detail {
const MachineKernels kMachineGeneric = {simd_generic::fma_rounds, simd_generic::read_all};
}
