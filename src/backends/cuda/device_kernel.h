#pragma once
// Which kernel serves a phase of a layer on a device, or why none does. plan() uses it for the current
// device, selection for any device. Host code, without CUDA.
#include <optional>
#include <string>

#include "backends/cuda/kernel_choice.h"

namespace fovea::cuda {

/// choose_kernel() among the kernels that fit in the device's shared memory. Errors: a device for which the
/// row has no kernels; a kernel that needs more shared memory than a block of the device may have, with the
/// numbers.
Result<KernelChoice> kernel_on_device(const BackendInfo& info, FamilyOf families, const AttentionSpec& spec,
                                      KernelUse use, const AttentionLimits& limits, const DeviceInfo& device);

/// The first error of kernel_on_device() that plan() may meet in this phase: for limits of few and of many
/// sequences, and for each kernel family that AttentionConfig can select for decode. With packed pages the
/// first of both phases. nullopt: no error.
std::optional<std::string> check_device_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                                const DeviceInfo& device, Phase phase);

/// DeviceInfo::shared_bytes, or the value for its compute capability if that is 0.
int shared_bytes_of(const DeviceInfo& device);

}  // namespace fovea::cuda
