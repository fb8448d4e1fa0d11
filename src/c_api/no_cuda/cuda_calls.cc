#include "c_api/device.h"
#include "fovea/result.h"

namespace fovea::c_api {
namespace {

Error absent() {
  return unsupported(
      "device is cuda, and this build has no CUDA code; build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

}  // namespace

Result<DeviceInfo> open_cuda_device_info(int) {
  return absent();
}

Status on_cuda_stream(int, void*, FunctionRef<Status(Stream&)>) {
  return absent();
}

Result<Memory> allocate_cuda(int, size_t) {
  return absent();
}

Status narrow_cuda(std::span<const Narrowing>, uint32_t*, Stream&) {
  return absent();
}

Status check_narrowed_cuda(std::span<const Narrowing>, const uint32_t*, Stream&) {
  return absent();
}

Status append_cuda(const AppendParams&, Stream&) {
  return absent();
}

Status copy_pages_cuda(const CopyPages&, Stream&) {
  return absent();
}

Status gather_cuda(const GatherRows&, Stream&) {
  return absent();
}

Status merge_cuda(const MergeCall&, Stream&) {
  return absent();
}

}  // namespace fovea::c_api
