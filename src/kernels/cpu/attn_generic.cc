#include "kernels/cpu/attn_item-inl.h"

namespace fovea::attn {

const Kernels kGenericKernels = {&FOVEA_SIMD_NAMESPACE::run_item, &FOVEA_SIMD_NAMESPACE::run_combine};

}  // namespace fovea::attn
