#pragma once
// The instances of wgmma_linear, by type; null for a combination that no plan asks for.
#include "kernels/cuda/linear/wgmma_params.h"

namespace fovea::cuda {

using WgmmaKernel = void (*)(WgmmaParams);

WgmmaKernel wgmma_kernel_f16(int columns, int groups, bool gated);
WgmmaKernel wgmma_kernel_bf16(int columns, int groups, bool gated);

/// Quantised weights: rows of the instruction, products of 64 outputs of a warpgroup (2: of 128 rows, not
/// with scales of 128 inputs).
WgmmaKernel wgmma_kernel_codes(int rows, int products, bool scaled);

/// Quantised weights that are widened on the way; `blocks` of a stage.
WgmmaKernel wgmma_kernel_widened(int columns, int blocks, bool gated, bool scaled);

}  // namespace fovea::cuda
