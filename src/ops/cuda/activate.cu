#include "ops/cuda/activate.h"

#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/rows/four.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 256;

/// Blocks of y share a row.
template <class T>
__global__ __launch_bounds__(kThreads) void activate_kernel(T* x, int64_t stride, int dim, EpilogueParams e) {
  T* row = x + blockIdx.x * stride;
  for (int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x); i < dim;
       i += static_cast<int>(gridDim.y) * kThreads)
    row[i] = rounded<T>(gated_value<std::is_same_v<T, float>>(e, widened(row[i]), 1.0f));
}

template <class T>
void launch(const ActivateParams& p, const EpilogueParams& e, CudaStream& stream) {
  const auto parts = std::clamp<int64_t>((p.dim + kThreads - 1) / kThreads, 1, 64);
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>(parts));
  activate_kernel<T>
      <<<grid, kThreads, 0, stream.handle()>>>(static_cast<T*>(p.x), p.x_stride, static_cast<int>(p.dim), e);
}

}  // namespace

Status launch_activate(const ActivateParams& p, CudaStream& stream) {
  if (p.rows == 0) return {};
  if (p.rows < 0 || p.rows > INT32_MAX || p.dim < 1 || p.dim > INT32_MAX / 2 || p.x_stride < p.dim ||
      p.x == nullptr)
    return invalid("activate: " + std::to_string(p.rows) + " rows of " + std::to_string(p.dim) +
                   " elements, " + std::to_string(p.x_stride) +
                   " apart; rows must not overlap and x must not be null");
  LinearParams layer;
  layer.epilogue = LinearEpilogue::gated;
  layer.activation = p.f;
  const EpilogueParams e = make_epilogue(layer);
  switch (p.dtype) {
    case DType::f32: launch<float>(p, e, stream); break;
    case DType::f16: launch<__half>(p, e, stream); break;
    case DType::bf16: launch<__nv_bfloat16>(p, e, stream); break;
  }
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
