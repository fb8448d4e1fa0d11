#pragma once
// Refuses addresses that kernels on a device must not follow.
#include <initializer_list>

#include "fovea/result.h"

namespace fovea::cuda {

struct NamedAddress {
  const char* name;
  const void* address;  ///< null is left to others
};

/// Each lies in the memory of CUDA device `device`, or in managed memory. Queues nothing; may be called
/// while a stream is captured. Error: the first that doesn't, by its name and where it lies.
Status check_on_device(std::initializer_list<NamedAddress> addresses, int device);

}  // namespace fovea::cuda
