#include "flex/cpu_kernels.h"

#include "base/cpu_features.h"

namespace fovea::flex {

const CpuKernels& cpu_kernels() {
#if defined(__x86_64__)
  switch (current_isa()) {
    case Isa::avx512: return kCpuAvx512;
    case Isa::avx2: return kCpuAvx2;
    case Isa::generic: break;
  }
#endif
  return kCpuGeneric;
}

}  // namespace fovea::flex
