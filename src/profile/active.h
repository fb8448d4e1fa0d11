#pragma once
// Whether a profile is running. Code that it watches asks here: without a profile that costs one load.
#include <atomic>

namespace fovea::profile {

enum Watch : unsigned {
  kRanges = 1,  ///< ranges of host threads and counters
  kOps = 2,     ///< operations and steps, which device times are attributed to
  kNvtx = 4,    ///< NVTX ranges, for a tool that is attached to the process
  kEager = 8,   ///< decode steps run without graphs
};

/// The sum of what is watched; set by Session and attach_nvtx() alone.
inline std::atomic<unsigned> g_watched{0};

inline bool watched(unsigned any_of) {
  return (g_watched.load(std::memory_order_relaxed) & any_of) != 0;
}

}  // namespace fovea::profile
