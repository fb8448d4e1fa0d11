// DeviceQueue on CUDA: one stream of work, one of copies beside it, and events.
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_stream.h"
#include "engine/engine_gpu.h"

namespace fovea {
namespace {

class GpuGraph final : public DeviceGraph {
 public:
  GpuGraph(CudaGraph graph, CudaStream& stream) : graph_(std::move(graph)), stream_(stream) {}
  Status replay() override { return graph_.replay(stream_); }

 private:
  CudaGraph graph_;
  CudaStream& stream_;
};

class GpuQueue final : public DeviceQueue {
 public:
  GpuQueue(Device& device, Stream& stream, CudaStream copies, std::vector<CudaEvent> events)
      : device_(device), stream_(stream), copies_(std::move(copies)), events_(std::move(events)) {}

  Device& device() override { return device_; }
  Stream& stream() override { return stream_; }
  void begin_thread() override { cudaSetDevice(main().device()); }

  Status sample(const cuda::SampleArgs& args) override { return cuda::launch_sample(args, main()); }
  int64_t sample_scratch_bytes(int rows, int width) override {
    return cuda::sample_scratch_bytes(rows, width, main());
  }

  Status place(const cuda::PlaceArgs& args) override { return cuda::launch_place(args, main()); }
  Status follow(const cuda::FollowArgs& args) override { return cuda::launch_follow(args, main()); }

  Status copy_beside(void* to, const void* from, size_t bytes) override {
    FOVEA_RETURN_IF_ERROR(events_[kComputed].record(main()));
    FOVEA_RETURN_IF_ERROR(copies_.wait(events_[kComputed]));
    return copies_.copy(to, from, bytes);
  }
  Status wait_for_copies() override {
    FOVEA_RETURN_IF_ERROR(events_[kCopied].record(copies_));
    return main().wait(events_[kCopied]);
  }
  Status mark(int mark) override { return events_[static_cast<size_t>(mark)].record(main()); }
  Status mark_beside(int mark) override {
    // Also where there was nothing to copy, a mark of the copies is behind the work so far.
    FOVEA_RETURN_IF_ERROR(events_[kComputed].record(main()));
    FOVEA_RETURN_IF_ERROR(copies_.wait(events_[kComputed]));
    return events_[static_cast<size_t>(mark)].record(copies_);
  }
  Result<bool> reached(int mark) override { return events_[static_cast<size_t>(mark)].done(); }

  Status health() override {
    FOVEA_RETURN_IF_ERROR(device_.health());
    const auto done = main().done();
    return done ? Status() : Status(done.error());
  }

  Result<std::unique_ptr<DeviceGraph>> capture(const std::function<Status()>& work) override {
    FOVEA_TRY(graph, CudaGraph::capture(main(), [&](CudaStream&) { return work(); }));
    return std::unique_ptr<DeviceGraph>(std::make_unique<GpuGraph>(std::move(graph), main()));
  }

  // Events after the marks.
  static constexpr size_t kComputed = kMarks, kCopied = kMarks + 1, kEvents = kMarks + 2;

 private:
  CudaStream& main() const { return stream_.cuda(); }

  Device& device_;
  Stream& stream_;
  CudaStream copies_;
  std::vector<CudaEvent> events_;
};

}  // namespace

Result<DeviceInfo> gpu_info(int index) {
  FOVEA_TRY(device, open_cuda_device(index));
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.compute_capability = device.compute_capability;
  info.name = device.name;
  info.shared_bytes = device.shared_bytes_per_block;
  return info;
}

Result<std::unique_ptr<DeviceQueue>> make_gpu_queue(Device& device, Stream& stream, int index) {
  FOVEA_TRY(copies, CudaStream::create(index));
  std::vector<CudaEvent> events;
  for (size_t i = 0; i < GpuQueue::kEvents; ++i) {
    FOVEA_TRY(event, CudaEvent::create(index));
    events.push_back(std::move(event));
  }
  return std::unique_ptr<DeviceQueue>(
      std::make_unique<GpuQueue>(device, stream, std::move(copies), std::move(events)));
}

}  // namespace fovea
