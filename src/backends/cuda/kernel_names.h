#pragma once
// Names of compiled kernels, for proofs and display. Host code, without CUDA.
#include <vector>

#include "backends/cuda/kernel_choice.h"
#include "fovea/backend_info.h"
#include "kernels/cuda/common/launch_record.h"

namespace fovea::cuda {

/// The kernels of one launch: the attention kernel, and the merge kernel if there is a separate one. Instance
/// names have: phase, type of Q, type of K and V if it differs, compiled head sizes, "masks" if compiled for
/// more than the causal limit, load mode (sm90 prefill).
std::vector<KernelName> names_of(const KernelChoice& choice, const LaunchRecord& record);

/// The attention kernels of the row's own families that its claims reach on `device`, in ascending order,
/// without split_keys and split_rows. Enumerates choose_kernel() over every type, head sizes at and next to
/// the compiled ones, with and without a mask and a soft cap, for few and many sequences.
std::vector<KernelName> reachable_kernels(const BackendInfo& info, FamilyOf families,
                                          const DeviceInfo& device);

}  // namespace fovea::cuda
