#include "c_api/device.h"

#include <map>
#include <mutex>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/check/narrow.h"
#include "kernels/cuda/merge/merge_launch.h"

namespace fovea::c_api {
namespace {

/// While alive, allows calls that are prohibited during stream capture; they do not become part of the graph.
class CaptureAllowsAll {
 public:
  CaptureAllowsAll() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureAllowsAll() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureAllowsAll(const CaptureAllowsAll&) = delete;
  CaptureAllowsAll& operator=(const CaptureAllowsAll&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

std::vector<cuda::NarrowArray> narrow_arrays(std::span<const Narrowing> arrays) {
  std::vector<cuda::NarrowArray> out;
  for (const Narrowing& a : arrays) {
    cuda::NarrowArray array;
    array.name = a.name;
    array.from = a.from;
    array.wide = a.wide;
    array.from_column_stride = a.from_column_stride;
    array.to = a.to;
    array.rows = a.rows;
    array.columns = a.columns;
    array.from_stride = a.from_stride;
    array.to_stride = a.columns;
    array.checked = a.checked;
    out.push_back(array);
  }
  return out;
}

}  // namespace

/// Caches the result: a driver query takes longer than many calls of the API.
Result<DeviceInfo> open_cuda_device_info(int id) {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> found;
  const std::lock_guard lock(mutex);
  if (const auto known = found.find(id); known != found.end()) return known->second;
  FOVEA_TRY(device, open_cuda_device(id));
  return found[id] = DeviceInfo{DeviceKind::cuda, device.compute_capability, device.name,
                                device.shared_bytes_per_block};
}

Status on_cuda_stream(int id, void* handle, FunctionRef<Status(Stream&)> body) {
  const CurrentDevice current(id);
  CudaStream cuda = CudaStream::borrow(static_cast<cudaStream_t>(handle), id);
  Stream stream(cuda);
  return body(stream);
}

Result<Memory> allocate_cuda(int id, size_t bytes) {
  const CurrentDevice current(id);
  const CaptureAllowsAll relaxed;
  void* data = nullptr;
  FOVEA_CUDA_TRY(cudaMalloc(&data, bytes == 0 ? 1 : bytes));
  return Memory(static_cast<std::byte*>(data), [id](std::byte* p) {
    const CurrentDevice of_memory(id);
    const CaptureAllowsAll while_freeing;
    cudaFree(p);
  });
}

Status narrow_cuda(std::span<const Narrowing> arrays, uint32_t* beyond, Stream& stream) {
  return cuda::launch_narrow(narrow_arrays(arrays), beyond, stream.cuda().handle());
}

Status check_narrowed_cuda(std::span<const Narrowing> arrays, const uint32_t* beyond, Stream& stream) {
  uint32_t found = 0;
  FOVEA_RETURN_IF_ERROR(stream.cuda().copy(&found, beyond, sizeof(found)));
  FOVEA_RETURN_IF_ERROR(stream.cuda().synchronize());
  return cuda::narrow_status(narrow_arrays(arrays), found);
}

Status append_cuda(const AppendParams& params, Stream& stream) {
  return cuda::launch_append(params, stream.cuda());
}

Status copy_pages_cuda(const CopyPages& params, Stream& stream) {
  return cuda::launch_copy_pages(params, stream.cuda());
}

Status gather_cuda(const GatherRows& params, Stream& stream) {
  return cuda::launch_gather_rows(params, stream.cuda());
}

Status merge_cuda(const MergeCall& call, Stream& stream) {
  cuda::MergeParts parts;
  parts.first = {call.o, call.lse};
  parts.rest = {call.rest_o, call.rest_lse};
  parts.o_stride = call.o_stride;
  parts.lse_stride = call.lse_stride;
  parts.parts = call.parts;
  parts.rows = call.rows;
  parts.heads = call.heads;
  parts.dv = call.dv;
  parts.dtype = call.dtype;
  cuda::MergeOutput output;
  output.out = call.out;
  output.dtype = call.dtype;
  output.out_row_stride = call.out_row_stride;
  output.lse = call.out_lse;
  return cuda::launch_merge_states(parts, output, stream.cuda());
}

}  // namespace fovea::c_api
