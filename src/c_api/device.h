#pragma once
// Where a call runs: the process's thread team, or a CUDA device and the caller's stream.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "c_api/tensor.h"
#include "device/stream.h"
#include "fovea/attention.h"

namespace fovea::c_api {

/// The device that `device` names. Errors: another type; no CUDA in this build, no driver, no such device.
Result<DeviceInfo> open_device(fovea_device device);

/// Where a call runs that has no object: on the device of its first tensor.
Result<Arguments> arguments_of(const fovea_tensor* tensor, const char* name);

/// Calls `body` with the device's stream. On the CPU that is the team of all threads of the process, one call
/// at a time; on a GPU `handle`, with the device current.
Status on_stream(fovea_device device, void* handle, FunctionRef<Status(Stream&)> body);

/// Memory of the device, 256-byte aligned. May be called while a stream is captured: the allocation is no
/// part of the graph.
using Memory = std::shared_ptr<std::byte>;
Result<Memory> allocate(fovea_device device, size_t bytes);

// On a GPU (src/c_api/cuda); in a build without CUDA all of them refuse.

Result<DeviceInfo> open_cuda_device_info(int id);
Status on_cuda_stream(int id, void* handle, FunctionRef<Status(Stream&)> body);
Result<Memory> allocate_cuda(int id, size_t bytes);
/// An index array and its int32 copy, dense; device memory. Strides in elements.
struct Narrowing {
  std::string_view name;
  const void* from = nullptr;
  bool wide = true;  ///< int64, else int32 that is not dense
  int32_t* to = nullptr;
  int64_t rows = 1, columns = 0, from_stride = 0, from_column_stride = 1;
  bool checked = true;  ///< whether what int32 does not have is an error, not of page tables
};
/// Queues the copies of all. What int32 does not have becomes its nearest, which no offset, length or page
/// is; *beyond (device memory) then says which array has such a number.
Status narrow_cuda(std::span<const Narrowing> arrays, uint32_t* beyond, Stream& stream);
/// Waits for the stream, and reads *beyond.
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
  void* out = nullptr;  ///< of the same dtype
  int64_t out_row_stride = 0;
  float* out_lse = nullptr;
};
Status merge_cuda(const MergeCall& call, Stream& stream);

}  // namespace fovea::c_api
