#pragma once
// The devices that the engine and the embedder run on.
#include "fovea/attention.h"
#include "fovea/result.h"

namespace fovea {

/// Ok, or why no model can run on `device`.
inline Status check_device(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cpu || device.kind == DeviceKind::cuda) return {};
  return unsupported("the device is " + describe(device) +
                     "; models run on the CPU and on NVIDIA GPUs: give --device cpu or cuda");
}

}  // namespace fovea
