#include "base/usable_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace fovea {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

double quota(double microseconds, double period) {
  return microseconds > 0 && period > 0 ? microseconds / period : kNoQuota;  // v1 writes -1 for none
}

/// CPU quota of one cgroup; a missing file or "max" sets no limit.
double quota_of(const std::string& group, bool v2) {
  double microseconds = 0, period = 0;
  if (v2) {
    std::ifstream(group + "/cpu.max") >> microseconds >> period;
  } else {
    std::ifstream(group + "/cpu.cfs_quota_us") >> microseconds;
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota(microseconds, period);
}

/// The minimum over a cgroup and its ancestors.
double least_quota(const std::string& mount, std::string path, bool v2) {
  double least = kNoQuota;
  for (;;) {
    least = std::min(least, quota_of(mount + path, v2));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return least;
    path.resize(slash);
  }
}

bool has_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == "cpu") return true;
  return false;
}

/// proc/self/cgroup has lines "ID:CONTROLLERS:PATH"; v2's has no controllers.
double quota_of_process(const std::string& root) {
  double least = kNoQuota;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty())
      least = std::min(least, least_quota(root + "/sys/fs/cgroup", path, true));
    else if (has_cpu(controllers))
      least = std::min(least, least_quota(root + "/sys/fs/cgroup/" + controllers, path, false));
  }
  return least;
}

}  // namespace

int usable_cpus(const std::string& root) {
  cpu_set_t set;
  const int cpus = sched_getaffinity(0, sizeof set, &set) == 0
                       ? CPU_COUNT(&set)
                       : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<int>(
      std::clamp(std::ceil(quota_of_process(root)), 1.0, std::max(1.0, static_cast<double>(cpus))));
}

}  // namespace fovea
