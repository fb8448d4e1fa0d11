#include "kernels/cpu/kv_append-inl.h"

namespace fovea::kv_append {
const Kernels kGenericKernels = simd_generic::kKvAppend;
}
