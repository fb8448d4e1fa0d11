#include "backends/cuda/device_facts.h"

#include <atomic>

namespace fovea::cuda {
namespace {

std::atomic<int> shared_bytes, multiprocessors;

}  // namespace

void limit_devices(const DeviceLimits& limits) {
  shared_bytes = limits.shared_bytes;
  multiprocessors = limits.multiprocessors;
}

DeviceLimits device_limits() {
  return {shared_bytes, multiprocessors};
}

}  // namespace fovea::cuda
