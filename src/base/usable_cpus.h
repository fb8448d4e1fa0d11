#pragma once
#include <string>

namespace fovea {

/// CPUs that this process may keep busy: those of its affinity mask, and no more than the CPU quotas of its
/// cgroups (v2's cpu.max, v1's cpu.cfs_quota_us, of the process's own group and all above it) pay for,
/// rounded up. At least 1. `root`: the folder that holds proc/ and sys/.
int usable_cpus(const std::string& root = "/");

}  // namespace fovea
