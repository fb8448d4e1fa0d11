#include "kernels/cuda/linear/wgmma_widened.cuh"

#include "kernels/cuda/linear/wgmma_kernels.h"

namespace fovea::cuda {
namespace {

template <int kColumns, int kBlocks, bool kScaled>
WgmmaKernel instance(bool gated) {
  return gated ? wgmma_widened<kColumns, kBlocks, kWidenGroups, true, kScaled>
               : wgmma_widened<kColumns, kBlocks, kWidenGroups, false, kScaled>;
}

template <int kColumns, int kBlocks>
WgmmaKernel instance(bool gated, bool scaled) {
  return scaled ? instance<kColumns, kBlocks, true>(gated) : instance<kColumns, kBlocks, false>(gated);
}

}  // namespace

WgmmaKernel wgmma_kernel_widened(int columns, int blocks, bool gated, bool scaled) {
  switch (columns * 8 + blocks) {
    case 32 * 8 + 2: return instance<32, 2>(gated, scaled);
    case 32 * 8 + 4: return instance<32, 4>(gated, scaled);
    case 64 * 8 + 2: return instance<64, 2>(gated, scaled);
    case 64 * 8 + 4: return instance<64, 4>(gated, scaled);
    default: return nullptr;
  }
}

}  // namespace fovea::cuda
