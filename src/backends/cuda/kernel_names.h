#pragma once
// Names of compiled kernels, for proofs and for people. Host code, without CUDA.
#include <vector>

#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/common/launch_record.h"

namespace fovea::cuda {

/// The kernels of one launch: the attention kernel, and the one that merges where that is a kernel of its
/// own. Instances: phase, type of Q, type of K and V where it is another, head sizes it is compiled for,
/// "masks" where it is compiled for more than the causal limit, how keys are loaded (sm90's prefill).
std::vector<KernelName> names_of(const KernelChoice& choice, const LaunchRecord& record);

/// The attention kernels of the row's own families that what it claims reaches on `device`, in ascending
/// order, without split_keys and split_rows: choose_kernel() asked for every type, for head sizes at and
/// beside those that kernels are compiled for, with and without a mask and a soft cap, for few and many
/// sequences.
std::vector<KernelName> reachable_kernels(const BackendInfo& info, FamilyOf families,
                                          const DeviceInfo& device);

}  // namespace fovea::cuda
