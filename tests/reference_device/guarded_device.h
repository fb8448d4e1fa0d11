#pragma once
// A device in the host's memory that the process can't touch: its pages are protected, except while one of
// the device's own operations runs. Host code that follows a device's pointer ends with a segmentation fault.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/check.h"
#include "tensor/device.h"

namespace fovea::test {

class GuardedDevice final : public Device {
 public:
  /// Reserves `capacity` bytes of addresses, which are used once each.
  explicit GuardedDevice(size_t capacity = size_t{256} << 20) : capacity_(capacity) {
    void* base = mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FOVEA_CHECK(base != MAP_FAILED);
    base_ = static_cast<std::byte*>(base);
  }
  ~GuardedDevice() override {
    FOVEA_CHECK(live_ == 0);
    munmap(base_, capacity_);
  }
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::xpu; }  // one that no code of the engine knows
  std::string_view name() const override { return "guarded"; }

  void* allocate(size_t bytes) override {
    const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (padded > capacity_ - used_) throw std::bad_alloc();
    used_ += padded;
    ++live_;
    return base_ + used_ - padded;
  }
  void release(void*, size_t) override { --live_; }

  Status copy_from_host(void* to, const void* from, size_t bytes, Stream&) const override {
    const Open open(*this);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status copy_to_host(void* to, const void* from, size_t bytes, Stream&) const override {
    const Open open(*this);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }

  /// An operation of the device.
  class Open {
   public:
    explicit Open(const GuardedDevice& device) : device_(device) {
      if (device_.open_++ == 0) protect(PROT_READ | PROT_WRITE);
    }
    ~Open() {
      if (--device_.open_ == 0) protect(PROT_NONE);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    void protect(int access) { FOVEA_CHECK(mprotect(device_.base_, device_.capacity_, access) == 0); }
    const GuardedDevice& device_;
  };

 private:
  size_t capacity_, used_ = 0;
  std::byte* base_ = nullptr;
  int live_ = 0;
  mutable int open_ = 0;
};

}  // namespace fovea::test
