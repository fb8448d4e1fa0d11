#pragma once
#include <cstdint>

namespace fovea::cuda {

/// What a launch has queued.
struct LaunchRecord {
  bool attention = false;  ///< the attention kernel itself: not for a step without work
  bool combine = false;    ///< a separate combine kernel
  /// Which of the kernels of one policy: sm90's PrefillVariant::index(); 0 in the other families.
  uint8_t variant = 0;
};

}  // namespace fovea::cuda
