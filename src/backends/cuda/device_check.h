#pragma once
// Refuses addresses that kernels on a device must not follow.
#include <initializer_list>

#include "fovea/result_fwd.h"

namespace fovea::cuda {

struct NamedAddress {
  const char* name;
  const void* address;  ///< null is not checked
};

/// Checks that each address is in the memory of CUDA device `device` or in managed memory. Queues nothing;
/// may be called while a stream is captured. Error: the first that is not, with its name and location.
Status check_on_device(std::initializer_list<NamedAddress> addresses, int device);

}  // namespace fovea::cuda
