#include "kernels/cpu/kv_append-inl.h"

namespace fovea::kv_append {
const Kernels kAvx2Kernels = simd_avx2::kKvAppend;
}
