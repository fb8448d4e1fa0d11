#pragma once
// The instances for one type.
#include "kernels/cuda/linear/wgmma_kernel.cuh"
#include "kernels/cuda/linear/wgmma_kernels.h"

namespace fovea::cuda {

template <class T, int kGroups>
WgmmaKernel wgmma_instance(int columns, bool gated) {
  switch (columns) {
    case 8: return gated ? nullptr : wgmma_linear<T, 8, kGroups, false>;
    case 16: return gated ? wgmma_linear<T, 16, kGroups, true> : wgmma_linear<T, 16, kGroups, false>;
    case 32: return gated ? wgmma_linear<T, 32, kGroups, true> : wgmma_linear<T, 32, kGroups, false>;
    case 64: return gated ? wgmma_linear<T, 64, kGroups, true> : wgmma_linear<T, 64, kGroups, false>;
    case 128: return gated ? wgmma_linear<T, 128, kGroups, true> : wgmma_linear<T, 128, kGroups, false>;
    case 256: return gated ? wgmma_linear<T, 256, kGroups, true> : wgmma_linear<T, 256, kGroups, false>;
    default: return nullptr;
  }
}

template <class T>
WgmmaKernel wgmma_instance(int columns, int groups, bool gated) {
  return groups == 1 ? wgmma_instance<T, 1>(columns, gated) : wgmma_instance<T, 2>(columns, gated);
}

}  // namespace fovea::cuda
