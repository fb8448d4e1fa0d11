#pragma once
#include <cstdint>

namespace fovea::cuda {

/// What a launch has queued.
struct LaunchRecord {
  bool attention = false;  ///< the attention kernel itself: not for a step without work
  bool merge = false;      ///< a kernel of its own that merges splits
  /// Which of the kernels that are compiled for one policy: sm90's PrefillWay; 0 of the other families.
  uint8_t variant = 0;
};

}  // namespace fovea::cuda
