#include "backends/cuda/device_kernel.h"

#include <vector>

#include "attention/resolve_name.h"
#include "fovea/attention.h"

namespace fovea::cuda {
namespace {

/// Limits of few and of many sequences: few_sequences() is all that distinguishes limits here.
constexpr AttentionLimits kFew = {1, 64, 4096, 4096}, kMany = {256, 8192, 1 << 20, 1 << 15};

/// The row's default, and those that AttentionConfig::flashinfer_use_tensor_cores can select.
std::vector<FamilyOf> families_of(const BackendInfo& info) {
  std::vector<FamilyOf> out = {family_of(info)};
  for (const bool tensor_cores : {true, false})
    if (const FamilyOf other = family_of(info, tensor_cores); other != out.front()) out.push_back(other);
  return out;
}

}  // namespace

int shared_bytes_of(const DeviceInfo& device) {
  return device.shared_bytes > 0 ? device.shared_bytes : fovea::shared_bytes_of(device.compute_capability);
}

Result<KernelChoice> kernel_on_device(const BackendInfo& info, FamilyOf families, const AttentionSpec& spec,
                                      KernelUse use, const AttentionLimits& limits,
                                      const DeviceInfo& device) {
  if (!runs_on(info.capability, device))
    return unsupported(info.label() + " has no kernels for " + describe(device));
  const int shared_bytes = shared_bytes_of(device);
  const Phase phase = use == KernelUse::decode ? Phase::decode : Phase::prefill;
  FOVEA_TRY(choice, choose_kernel(families(spec, phase), spec, use, limits, shared_bytes));
  if (choice.kernel.shared_bytes <= shared_bytes) return choice;
  return unsupported("the " + std::string(to_string(choice.family)) + " " + std::string(to_string(phase)) +
                     " kernel for head sizes " + std::to_string(spec.head_dim) + " and " +
                     std::to_string(spec.v_head_dim) + " needs " +
                     std::to_string(choice.kernel.shared_bytes) + " bytes of shared memory a block; " +
                     describe(device) + " has " + std::to_string(shared_bytes));
}

std::optional<std::string> check_device_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                                const DeviceInfo& device, Phase phase) {
  for (const FamilyOf families : families_of(info))
    for (const AttentionLimits& limits : {kFew, kMany})
      for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
        // workspace_bytes() asks for both phases, and no other family serves packed pages in one of them.
        if (!is_x_packed(spec) && (use == KernelUse::decode) != (phase == Phase::decode)) continue;
        const auto kernel = kernel_on_device(info, families, spec, use, limits, device);
        if (!kernel.ok()) return kernel.error().message;
      }
  return {};
}

}  // namespace fovea::cuda
