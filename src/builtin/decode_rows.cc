#include "builtin/decode_rows.h"

#include <algorithm>

#include "backends/cuda/kernel_choice.h"
#include "fovea/result.h"

namespace fovea {

int alike_decode_rows(const BackendInfo& info, const AttentionSpec& spec, const AttentionLimits& limits,
                      int most) {
  const Capability& capability = info.capability;
  if (!capability.features.has(Feature::verify)) return 1;
  if (capability.invariance.has(Invariance::chunking)) return most;
  if (capability.device != DeviceKind::cuda || info.families.empty()) return 1;
  const auto choice = cuda::choose_kernel(cuda::family_of(info)(spec, Phase::decode), spec,
                                          cuda::KernelUse::decode, limits, cuda::kAnySharedBytes);
  if (!choice.ok() || (choice->family != cuda::Family::sm90 && choice->family != cuda::Family::sm80))
    return 1;
  return std::min(most, choice->alike_rows());
}

}  // namespace fovea
