#pragma once
// Which kernel serves a phase of a layer on a device, or why none does: what plan() asks of the device that
// it runs on, and selection of any. Host code, without CUDA.
#include <optional>
#include <string>

#include "backends/cuda/kernel_choice.h"

namespace fovea::cuda {

/// choose_kernel() among those that the device has room for. Errors: a device that the row has no kernels
/// for; a kernel that needs more shared memory than a block of the device may have, with the numbers.
Result<KernelChoice> kernel_on_device(const BackendInfo& info, FamilyOf families, const AttentionSpec& spec,
                                      KernelUse use, const AttentionLimits& limits, const DeviceInfo& device);

/// The first error of kernel_on_device() that plan() may meet in this phase: for limits of few and of many
/// sequences, and for each way that AttentionConfig lets the row decode. nullopt: it meets none.
std::optional<std::string> check_device_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                                const DeviceInfo& device, Phase phase);

/// DeviceInfo::shared_bytes, or that of its compute capability.
int shared_bytes_of(const DeviceInfo& device);

}  // namespace fovea::cuda
