#include "kernels/cpu/kv_append-inl.h"

namespace fovea::kv_append {
const Kernels kAvx512Kernels = simd_avx512::kKvAppend;
}
