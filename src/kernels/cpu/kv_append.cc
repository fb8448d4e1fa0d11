#include "base/cpu_features.h"
#include "kernels/cpu/kv_append_kernels.h"

namespace fovea::kv_append {

const Kernels& current_kernels() {
#if defined(__x86_64__)
  switch (current_isa()) {
    case Isa::avx512: return kAvx512Kernels;
    case Isa::avx2: return kAvx2Kernels;
    case Isa::generic: break;
  }
#endif
  return kGenericKernels;
}

}  // namespace fovea::kv_append
