#pragma once
// Capabilities of the project's CUDA kernels, for the rows of all backends that they serve.
#include <optional>

#include "fovea/attention.h"

namespace fovea::rows {

/// Capability of src/kernels/cuda/sm80.
Capability sm80_capability();

/// Capability of src/kernels/cuda/sm90, with sm80 kernels for what sm90 lacks: everything that selects
/// FlashAttention 3 on compute capability 9.0. No ALiBi, which selects version 2 (default_flash_version).
Capability sm90_capability();

/// Capability of src/kernels/cuda/portable: that of sm80, and more dtypes, head sizes and layouts.
Capability portable_capability();

/// Combinations that the sm80 kernels lack, with what to change.
std::optional<Reason> check_sm80(const AttentionSpec& spec, const DeviceInfo& device);

/// BackendInfo::check_kernels of the rows with CUDA kernels: the check of plan() (cuda::kernel_on_device) for
/// limits of few and of many sequences.
std::optional<Reason> check_cuda_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                         const DeviceInfo& device, Phase phase);

/// BackendInfo::kernel_family of these rows.
std::optional<KernelFamily> cuda_kernel_family(const BackendInfo& info, const AttentionSpec& spec,
                                               Phase phase);

}  // namespace fovea::rows
