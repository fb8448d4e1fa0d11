#pragma once
// The instances of wgmma_linear, by type; null for a combination that no plan asks for.
#include "kernels/cuda/linear/wgmma_params.h"

namespace fovea::cuda {

using WgmmaKernel = void (*)(WgmmaParams);

WgmmaKernel wgmma_kernel_f16(int columns, int groups, bool gated);
WgmmaKernel wgmma_kernel_bf16(int columns, int groups, bool gated);

}  // namespace fovea::cuda
