#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/check/narrow.h"

#include "fovea/result.h"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1024;

struct Part {
  const void* from;
  int32_t* to;
  int64_t rows, columns, from_stride, from_column_stride, to_stride;
  bool wide, checked;
};
struct Parts {
  Part part[kMaxNarrowArrays];
};

__global__ __launch_bounds__(kThreads) void narrow_kernel(const __grid_constant__ Parts parts,
                                                          uint32_t* beyond) {
  const Part& part = parts.part[blockIdx.y];
  const int64_t count = part.rows * part.columns, stride = int64_t{gridDim.x} * kThreads;
  bool clamped = false;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    // A 32-bit division where the numbers allow it.
    const int64_t row = (i | part.columns) >> 31 == 0
                            ? static_cast<uint32_t>(i) / static_cast<uint32_t>(part.columns)
                            : i / part.columns;
    const int64_t column = i - row * part.columns;
    const int64_t at = row * part.from_stride + column * part.from_column_stride;
    const int64_t x =
        part.wide ? static_cast<const int64_t*>(part.from)[at] : static_cast<const int32_t*>(part.from)[at];
    const int64_t y = min(max(x, int64_t{INT32_MIN}), int64_t{INT32_MAX});
    clamped = clamped || x != y;
    part.to[row * part.to_stride + column] = static_cast<int32_t>(y);
  }
  if (clamped && part.checked) atomicOr(beyond, 1u << blockIdx.y);
}

Status check(const NarrowArray& a) {
  const std::string name(a.name);
  if (a.rows < 0 || a.columns < 0 || a.from_stride < 0 || a.from_column_stride < 0)
    return invalid(name + ": rows, columns and strides must not be negative");
  if (a.rows > 1 && a.to_stride < a.columns)
    return invalid(name + ": rows of " + std::to_string(a.columns) + " numbers do not fit a stride of " +
                   std::to_string(a.to_stride));
  if (a.rows > 0 && a.columns > 0 && (a.from == nullptr || a.to == nullptr))
    return invalid(name + " is missing");
  return {};
}

}  // namespace

Status launch_narrow(std::span<const NarrowArray> arrays, uint32_t* beyond, CUstream_st* stream) {
  if (arrays.size() > kMaxNarrowArrays)
    return invalid(std::to_string(arrays.size()) + " index arrays at once; at most " +
                   std::to_string(kMaxNarrowArrays));
  Parts parts{};
  int64_t most = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const NarrowArray& a = arrays[i];
    FOVEA_RETURN_IF_ERROR(check(a));
    parts.part[i] = {a.from,      a.to,   a.rows,   a.columns, a.from_stride, a.from_column_stride,
                     a.to_stride, a.wide, a.checked};
    most = std::max(most, a.rows * a.columns);
  }
  cudaError_t code = cudaMemsetAsync(beyond, 0, sizeof(uint32_t), stream);
  if (code == cudaSuccess && most > 0) {
    const auto blocks = static_cast<unsigned>(std::min((most + kThreads - 1) / kThreads, kMaxCtas));
    narrow_kernel<<<dim3(blocks, static_cast<unsigned>(arrays.size())), kThreads, 0, stream>>>(parts, beyond);
    code = cudaGetLastError();
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // clears the error: reported here, not by the next launch
  return Error{ErrorCode::internal, std::string("narrowing of index arrays: ") + cudaGetErrorString(code)};
}

}  // namespace fovea::cuda
