#pragma once
// The kernels of this family that are compiled. A problem takes the first one of its kind, types and head
// sizes.
#include <span>

#include "kernels/cuda/sm90/select.h"

namespace fovea::cuda::sm90 {

std::span<const KernelInfo> prefill_kernels();
std::span<const KernelInfo> decode_kernels();

}  // namespace fovea::cuda::sm90
