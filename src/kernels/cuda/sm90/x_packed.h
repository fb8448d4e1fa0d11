#pragma once
// Pages of KvForm::x_packed. Host code, without CUDA.
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm90 {

constexpr bool is_x_packed(const KvParams& kv) {
  return kv.k_chunk_stride != 0;
}

/// LaunchRecord::variant of a decode kernel of x-packed pages.
inline constexpr uint8_t kPackedDecodeVariant = 1;

/// Whether the kernel, of select(), reads x-packed pages: a decode kernel has a variant for them, and a pass
/// in front of prefill kernels makes rows of them. Errors: page sizes that are not multiples of x = 16 bytes;
/// a decode kernel without the variant.
Status check_x_packed(const KernelInfo& kernel, int page_size);

}  // namespace fovea::cuda::sm90
