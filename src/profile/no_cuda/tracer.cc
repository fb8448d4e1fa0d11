#include "profile/device_tracer.h"
#include "profile/nvtx.h"

namespace fovea::profile {

Result<std::unique_ptr<DeviceTracer>> make_cupti_tracer(Recorder&) {
  return unsupported("this build has no CUDA code");
}

Result<std::unique_ptr<DeviceTracer>> make_event_tracer(Recorder&) {
  return unsupported("this build has no CUDA code: build with -DFOVEA_CUDA=ON for times of a GPU");
}

void attach_nvtx() {}
void push_nvtx(const char*, int) {}
void pop_nvtx() {}

}  // namespace fovea::profile
