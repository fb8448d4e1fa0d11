#pragma once
// Execution of calls: on the process's thread team, or on a CUDA device and the caller's stream.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "c_api/tensor.h"
#include "device/stream.h"
#include "fovea/attention_spec.h"

namespace fovea::c_api {

/// Opens `device`. Errors: an unsupported type; no CUDA in this build, no driver, no such device.
Result<DeviceInfo> open_device(fovea_device device);

/// For a call without an object: it runs on the device of its first tensor.
Result<Arguments> arguments_of(const fovea_tensor* tensor, const char* name);

/// Calls `body` with the device's stream: on the CPU the process's thread team, which runs one call at a
/// time; on a GPU `handle`, with the device current.
Status on_stream(fovea_device device, void* handle, FunctionRef<Status(Stream&)> body);

/// Allocates device memory, 256-byte aligned. May be called during stream capture: the allocation is not
/// part of the graph.
using Memory = std::shared_ptr<std::byte>;
Result<Memory> allocate(fovea_device device, size_t bytes);

// GPU functions (src/c_api/cuda); in a build without CUDA all of them return an error.

Result<DeviceInfo> open_cuda_device_info(int id);
Status on_cuda_stream(int id, void* handle, FunctionRef<Status(Stream&)> body);
Result<Memory> allocate_cuda(int id, size_t bytes);
/// An index array and its dense int32 copy, in device memory. Strides in elements.
struct Narrowing {
  std::string_view name;
  const void* from = nullptr;
  bool wide = true;  ///< int64; otherwise int32 that is not dense
  int32_t* to = nullptr;
  int64_t rows = 1, columns = 0, from_stride = 0, from_column_stride = 1;
  bool checked = true;  ///< values outside int32 are an error; false for page tables
};
/// Queues all copies. Values outside int32 are clamped to its range, to values that no valid offset, length
/// or page has; *beyond (device memory) then marks the array with such a value.
Status narrow_cuda(std::span<const Narrowing> arrays, uint32_t* beyond, Stream& stream);
/// Waits for the stream, then reads *beyond.
Status check_narrowed_cuda(std::span<const Narrowing> arrays, const uint32_t* beyond, Stream& stream);
Status append_cuda(const AppendParams& params, Stream& stream);
Status copy_pages_cuda(const CopyPages& params, Stream& stream);
Status gather_cuda(const GatherRows& params, Stream& stream);

/// Partial states: part 0 at `o` and `lse`, part i at rest_o + (i - 1) * o_stride.
struct MergeCall {
  DType dtype = DType::f32;
  const void *o = nullptr, *rest_o = nullptr;
  const float *lse = nullptr, *rest_lse = nullptr;
  int64_t o_stride = 0, lse_stride = 0;  ///< elements
  int parts = 0, rows = 0, heads = 0, dv = 0;
  void* out = nullptr;  ///< same dtype as the parts
  int64_t out_row_stride = 0;
  float* out_lse = nullptr;
};
Status merge_cuda(const MergeCall& call, Stream& stream);

}  // namespace fovea::c_api
