#pragma once
// What the engine needs of an NVIDIA GPU. In a build without CUDA (engine/no_cuda) the functions return an
// error that says so.
#include <memory>

#include "engine/device_queue.h"
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"
#include "ops/ops.h"

namespace fovea {

/// Errors: as open_cuda_device().
Result<DeviceInfo> gpu_info(int index);

/// The queue of `stream`, a stream of make_cuda_stream() on `device`; both must outlive it.
Result<std::unique_ptr<DeviceQueue>> make_gpu_queue(Device& device, Stream& stream, int index);

/// Declaration order matters: each member is destroyed before those it uses.
struct EngineGpu {
  int index = 0;
  std::unique_ptr<Device> device;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<DeviceQueue> queue;

  /// Makes the GPU current for the calling thread. Errors: as make_cuda_ops().
  static Result<EngineGpu> open(int index, DType activations);
};

}  // namespace fovea
