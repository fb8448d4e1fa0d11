#pragma once
// NVIDIA GPUs as devices of tensors. In a build without CUDA (tensor/no_cuda) the functions return an error
// that says so.
#include <cstdint>
#include <memory>

#include "device/stream.h"
#include "fovea/result_fwd.h"
#include "tensor/device.h"

namespace fovea {

/// "cuda:ORDINAL". Allocations are cudaMalloc's, which rounds each up to 512 bytes and takes memory from the
/// driver in blocks of 2 MiB: allocate few large ones. Copies run on the CUDA stream that they are given.
/// Errors: as open_cuda_device().
Result<std::unique_ptr<Device>> make_cuda_device(int ordinal);

/// A new queue of work on the GPU. Errors: as open_cuda_device().
Result<std::shared_ptr<Stream>> make_cuda_stream(int ordinal);

struct DeviceMemory {
  int64_t free = 0, total = 0;  ///< bytes, as the driver says: what other programs hold is not free
};
Result<DeviceMemory> cuda_device_memory(int ordinal);

}  // namespace fovea
