#include "tensor/device.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/aligned.h"
#include "fovea/result.h"

namespace fovea {

void* Device::allocate_host(size_t bytes) {
  return detail::allocate_aligned(bytes, 1);
}

void Device::release_host(void* data, size_t) {
  std::free(data);
}

namespace {

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "cpu"; }

  void* allocate(size_t bytes) override { return detail::allocate_aligned(bytes, 1); }
  void release(void* data, size_t) override { std::free(data); }

  Status copy_from_host(void* to, const void* from, size_t bytes, Stream&) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status copy_to_host(void* to, const void* from, size_t bytes, Stream& stream) const override {
    return copy_from_host(to, from, bytes, stream);
  }
  Status synchronize(Stream&) const override { return {}; }
};

}  // namespace

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

Status copy(const Tensor& from, const Tensor& to, Stream& stream) {
  FOVEA_CHECK(from.device && to.device && from.dtype == to.dtype && from.rank == to.rank &&
              from.shape == to.shape && from.contiguous() && to.contiguous());
  const size_t bytes = static_cast<size_t>(from.elements()) * size_of(from.dtype);
  if (from.device == &cpu_device()) return to.device->copy_from_host(to.data, from.data, bytes, stream);
  FOVEA_CHECK(to.device == &cpu_device());
  return from.device->copy_to_host(to.data, from.data, bytes, stream);
}

}  // namespace fovea
