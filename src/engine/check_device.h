#pragma once
// The devices that the engine and the embedder run on.
#include "fovea/attention.h"
#include "fovea/result.h"

namespace fovea {

/// Ok, or why no model can run on `device`.
inline Status check_device(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cpu) return {};
  return unsupported("the device is " + describe(device) +
                     "; embeddings are computed on the CPU only: give --device cpu, or leave it out");
}

}  // namespace fovea
