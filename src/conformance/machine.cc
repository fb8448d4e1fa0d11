#include "conformance/machine.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "fovea/result.h"

namespace fovea::conformance {
namespace {

class HostSession : public DeviceSession {
 public:
  explicit HostSession(ThreadPool& pool) : stream_(pool) {}
  Stream& stream() override { return stream_; }

  Result<std::byte*> room(size_t bytes) override {
    AlignedArray<std::byte>& array = rooms_.emplace_back(bytes);
    if (bytes > 0) std::memset(array.data(), kPoison, bytes);
    return array.data() != nullptr ? array.data() : reinterpret_cast<std::byte*>(&nothing_);
  }
  Result<const std::byte*> put(const void* host, size_t) override {
    return static_cast<const std::byte*>(host);
  }
  Result<const std::byte*> put_parts(const std::byte* host, size_t, std::span<const ByteRange>) override {
    return host;
  }
  Status write(std::byte* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
    return {};
  }
  Result<const std::byte*> get(const std::byte* device, size_t bytes) override {
    FOVEA_TRY(copy, room(bytes));
    if (bytes > 0) std::memcpy(copy, device, bytes);
    return copy;
  }

  Status record(std::function<Status(Stream&)> work) override {
    recorded_ = std::move(work);
    return {};
  }
  Status replay() override {
    FOVEA_CHECK(recorded_ != nullptr);
    return recorded_(stream_);
  }
  Status finish() override { return {}; }

 private:
  Stream stream_;
  std::vector<AlignedArray<std::byte>> rooms_;
  std::function<Status(Stream&)> recorded_;
  alignas(64) char nothing_ = 0;
};

}  // namespace

Status Machine::fault() const {
  return {};
}

Result<std::unique_ptr<DeviceSession>> HostMachine::open_session() {
  return std::unique_ptr<DeviceSession>(std::make_unique<HostSession>(pool_));
}

}  // namespace fovea::conformance
