#pragma once
// A device in host memory that other code cannot access: its pages are protected, except while one of the
// device's own operations runs. Host code that dereferences a device pointer gets a segmentation fault.
// Operations are queued and run later, at the latest when the host waits, so their operands must stay valid.
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fovea/result.h"
#include "tensor/device.h"

namespace fovea::test {

class GuardedDevice final : public Device {
 public:
  /// Reserves `capacity` bytes of address space. Released addresses are not reused.
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

  DeviceKind kind() const override { return DeviceKind::xpu; }  // a kind that the engine has no code for
  std::string_view name() const override { return "guarded"; }

  void* allocate(size_t bytes) override {
    const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (padded > capacity_ - used_) throw std::bad_alloc();
    used_ += padded;
    ++live_;
    return base_ + used_ - padded;
  }
  void release(void*, size_t) override {
    FOVEA_CHECK(queue_.empty());  // queued operations may still use it
    --live_;
  }

  /// Bytes allocated so far, released ones included.
  size_t used() const { return used_; }

  Status copy_from_host(void* to, const void* from, size_t bytes, Stream&) const override {
    return copy_later(to, from, bytes);
  }
  Status copy_to_host(void* to, const void* from, size_t bytes, Stream&) const override {
    return copy_later(to, from, bytes);
  }
  Status synchronize(Stream&) const override {
    run(ended_ + queue_.size());
    return {};
  }

  /// Queues an operation, which may access the memory while it runs.
  void queue(std::function<void()> operation) const { queue_.push_back(std::move(operation)); }
  /// Numbers of operations queued so far, and of those that have run.
  uint64_t queued() const { return ended_ + queue_.size(); }
  uint64_t ended() const { return ended_; }
  /// Removes the operations after the first `count` from the queue, and returns them: what a capture does.
  std::vector<std::function<void()>> take_back(uint64_t count) const {
    FOVEA_CHECK(ended_ <= count && count <= queued());
    const auto first = queue_.begin() + static_cast<std::ptrdiff_t>(count - ended_);
    std::vector<std::function<void()>> taken(std::make_move_iterator(first),
                                             std::make_move_iterator(queue_.end()));
    queue_.erase(first, queue_.end());
    return taken;
  }
  /// Runs operations in order until ended() is at least `count`.
  void run(uint64_t count) const {
    FOVEA_CHECK(count <= queued());
    if (count <= ended_) return;
    const Open open(*this);
    for (; ended_ < count; ++ended_) {
      const auto operation = std::move(queue_.front());
      queue_.pop_front();
      operation();
    }
  }

  /// The memory is accessible while an Open exists.
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
  Status copy_later(void* to, const void* from, size_t bytes) const {
    queue([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
    return {};
  }

  size_t capacity_, used_ = 0;
  std::byte* base_ = nullptr;
  int live_ = 0;
  mutable int open_ = 0;
  mutable std::deque<std::function<void()>> queue_;
  mutable uint64_t ended_ = 0;
};

}  // namespace fovea::test
