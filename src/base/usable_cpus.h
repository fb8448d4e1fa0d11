#pragma once
#include <string>

namespace fovea {

/// CPUs that this process can use: those of its affinity mask, limited by the CPU quotas of its cgroup and
/// all ancestors (v2's cpu.max, v1's cpu.cfs_quota_us), rounded up. At least 1. `root`: the directory that
/// contains proc/ and sys/.
int usable_cpus(const std::string& root = "/");

}  // namespace fovea
