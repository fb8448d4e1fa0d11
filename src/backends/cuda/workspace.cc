#include <algorithm>

#include "attention/batch_check.h"
#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/step_layout.h"

namespace fovea::cuda {

Result<size_t> cuda_workspace_bytes(const BackendInfo& info, FamilyOf family, const AttentionSpec& spec,
                                    const AttentionLimits& limits) {
  FOVEA_RETURN_IF_ERROR(check_supported(info, spec));
  FOVEA_RETURN_IF_ERROR(check_limits(limits));
  size_t bytes = 0;
  for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
    const Phase phase = use == KernelUse::decode ? Phase::decode : Phase::prefill;
    if (!info.capability.phases.has(phase)) continue;
    // Covers any device, as the size depends on limits only: kernels with few query rows per block have more
    // work items.
    for (const int shared_bytes : {kAnySharedBytes, shared_bytes_of(80), shared_bytes_of(86)}) {
      FOVEA_TRY(kernel, choose_kernel(family(spec, phase), spec, use, limits, shared_bytes));
      FOVEA_TRY(layout, step_layout(spec, kernel, limits));
      bytes = std::max(bytes, layout.bytes);
    }
  }
  return bytes;
}

}  // namespace fovea::cuda
