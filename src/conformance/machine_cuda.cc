// Runs cases on an NVIDIA GPU.
#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "backends/cuda/device_facts.h"
#include "base/thread_pool.h"
#include "conformance/machine.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"

namespace fovea::conformance {
namespace {

/// The device, its single stream, and a memory pool shared by the cases.
struct Queue {
  CudaStream stream;
  DevicePool pool;
  std::mutex mutex;
  Status fault;
};

class CudaSession : public DeviceSession {
 public:
  CudaSession(Queue& queue, std::unique_lock<std::mutex> lock)
      : queue_(queue), lock_(std::move(lock)), stream_(queue.stream) {}
  ~CudaSession() override {
    if (lock_) (void)finish();
  }
  Stream& stream() override { return stream_; }

  Result<std::byte*> room(size_t bytes) override {
    // Allocated with its exact size, so that memory checkers detect accesses beyond it.
    FOVEA_TRY(buffer, queue_.pool.allocate(std::max<size_t>(bytes, 1), queue_.stream));
    FOVEA_RETURN_IF_ERROR(queue_.stream.fill(buffer.data(), kPoison, buffer.size()));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  Result<const std::byte*> put(const void* host, size_t bytes) override {
    FOVEA_TRY(device, room(bytes));
    FOVEA_RETURN_IF_ERROR(write(device, host, bytes));
    return device;
  }
  Result<const std::byte*> put_parts(const std::byte* host, size_t bytes,
                                     std::span<const ByteRange> used) override {
    FOVEA_TRY(device, room(bytes));
    for (const ByteRange& part : used)
      FOVEA_RETURN_IF_ERROR(write(device + part.first, host + part.first, part.bytes));
    return device;
  }
  Status write(std::byte* device, const void* host, size_t bytes) override {
    return bytes > 0 ? queue_.stream.copy(device, host, bytes) : Status();
  }
  Result<const std::byte*> get(const std::byte* device, size_t bytes) override {
    std::vector<std::byte>& host = results_.emplace_back(std::max<size_t>(bytes, 1));
    if (bytes > 0) FOVEA_RETURN_IF_ERROR(queue_.stream.copy(host.data(), device, bytes));
    return host.data();
  }

  Status record(std::function<Status(Stream&)> work) override {
    FOVEA_TRY(graph, CudaGraph::capture(queue_.stream, [&](CudaStream&) { return work(stream_); }));
    graph_.emplace(std::move(graph));
    return {};
  }
  Status replay() override { return graph_->replay(queue_.stream); }

  Status finish() override {
    Status status = queue_.stream.synchronize();
    if (!status) queue_.fault = status;
    graph_.reset();
    buffers_.clear();
    lock_.unlock();
    return status;
  }

 private:
  Queue& queue_;
  std::unique_lock<std::mutex> lock_;
  Stream stream_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::vector<std::byte>> results_;
  std::optional<CudaGraph> graph_;
};

class CudaMachine : public Machine {
 public:
  CudaMachine(DeviceInfo device, CudaStream stream, DevicePool pool)
      : device_(std::move(device)), queue_{std::move(stream), std::move(pool), {}, {}} {}
  const DeviceInfo& device() const override { return device_; }
  Result<std::unique_ptr<DeviceSession>> open_session() override {
    std::unique_lock lock(queue_.mutex);
    if (!queue_.fault)
      return Error{queue_.fault.error().code, "not run: the GPU is lost since an earlier case"};
    return std::unique_ptr<DeviceSession>(std::make_unique<CudaSession>(queue_, std::move(lock)));
  }
  Status fault() const override {
    const std::unique_lock lock(queue_.mutex);
    return queue_.fault;
  }

 private:
  DeviceInfo device_;
  mutable Queue queue_;
};

/// "580.95.05"; "" where the system does not report it.
std::string kernel_driver() {
  std::ifstream version("/sys/module/nvidia/version");
  if (std::string text; version >> text) return text;
  std::ifstream proc("/proc/driver/nvidia/version");
  std::string line;
  std::getline(proc, line);
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (std::count(word.begin(), word.end(), '.') >= 1 &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return {};
}

}  // namespace

Result<Gpu> open_gpu() {
  FOVEA_TRY(device, open_cuda_device(0));
  FOVEA_TRY(stream, CudaStream::create(0));
  FOVEA_TRY(pool, DevicePool::create(0));
  Gpu gpu;
  FOVEA_TRY(facts, cuda::device_facts(0));
  facts.info.name = device.name;
  gpu.machine = std::make_unique<CudaMachine>(std::move(facts.info), std::move(stream), std::move(pool));
  const std::string driver = kernel_driver();
  gpu.driver = (driver.empty() ? "" : driver + ", ") + ("CUDA " + cuda_version_text(device.driver_version));
  gpu.compiler = "CUDA " + cuda_version_text(device.runtime_version);
  return gpu;
}

}  // namespace fovea::conformance
