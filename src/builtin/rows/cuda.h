#pragma once
// What the project's CUDA kernels do, for the rows of all backends that they serve.
#include <optional>

#include "fovea/attention.h"

namespace fovea::rows {

/// Of src/kernels/cuda/sm80.
Capability sm80_capability();

/// Of src/kernels/cuda/sm90, with those of sm80 for what they have no kernel for: all that FlashAttention 3
/// is asked for on compute capability 9.0. No ALiBi, which means version 2 (default_flash_version).
Capability sm90_capability();

/// Of src/kernels/cuda/portable: all that those of sm80 have, and other dtypes, head sizes and layouts.
Capability portable_capability();

/// Combinations that the sm80 kernels lack, with what to change.
std::optional<Reason> check_sm80(const AttentionSpec& spec, const DeviceInfo& device);

/// BackendInfo::check_kernels of the rows with CUDA kernels: plan()'s own question (cuda::kernel_on_device)
/// for limits of few and of many sequences.
std::optional<Reason> check_cuda_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                         const DeviceInfo& device, Phase phase);

/// BackendInfo::kernel_family of these rows.
std::optional<KernelFamily> cuda_kernel_family(const BackendInfo& info, const AttentionSpec& spec,
                                               Phase phase);

}  // namespace fovea::rows
