#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/rows/row_ops.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

// A CTA takes one row. Its threads hold it in registers, two runs of four elements each, or read it again in
// each pass where 1024 threads are too few.
constexpr int kMaxThreads = 1024;
constexpr int kVectors = 2;
constexpr int64_t kMaxDim = int64_t{1} << 20;

/// The kernel's arguments: norm alone (x -> out) or x += scale * y in front of it.
struct NormArgs {
  const void* x = nullptr;
  float* sum = nullptr;  // add_norm: where x + scale * y goes, x's strides
  const void* y = nullptr;
  void* out = nullptr;
  const float *weight = nullptr, *bias = nullptr;
  int64_t x_stride = 0, y_stride = 0, out_stride = 0;
  float scale = 1.0f, eps = 0.0f;
  int dim = 0;
  bool aligned = false;
};

/// The sum over the CTA in every thread: lanes in a tree, then warps in a tree. `parts` [32] is used once.
__device__ float block_sum(float x, float* parts) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

/// kHeld: the row's elements stay in registers; otherwise each pass reads those of its thread again.
template <class X, class Y, class Out, bool kHeld, bool kAdd, bool kAligned>
__device__ void norm_row(const NormArgs& p, float (&parts)[2][32]) {
  const int64_t row = blockIdx.x;
  const auto* x = static_cast<const X*>(p.x) + row * p.x_stride;
  const int first = 4 * static_cast<int>(threadIdx.x), step = 4 * static_cast<int>(blockDim.x);
  Four held[kVectors], weights[kVectors];
  const auto each = [&](auto&& f) {
    if constexpr (kHeld) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        f(held[j], first + j * step, weights[j]);
    } else {
      for (int at = first; at < p.dim; at += step)
        f(load_four<kAligned>(x, at, p.dim), at, weights[0]);
    }
  };
  if constexpr (kHeld) {  // weights are constant
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      weights[j] = load_four<kAligned>(p.weight, first + j * step, p.dim);
  }
  grid_dependency_wait();
  if constexpr (kHeld) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      held[j] = load_four<kAligned>(x, first + j * step, p.dim);
  }
  if constexpr (kAdd) {
    const auto* y = static_cast<const Y*>(p.y) + row * p.y_stride;
    float* sum = p.sum + row * p.x_stride;
    const auto add = [&](Four& v, const Four& more, int at) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v.x[i] = fmaf(p.scale, more.x[i], v.x[i]);
      store_four<kAligned>(sum, at, p.dim, v);
    };
    if constexpr (kHeld) {
      Four more[kVectors];
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        more[j] = load_four<kAligned>(y, first + j * step, p.dim);
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        add(held[j], more[j], first + j * step);
    } else {
      for (int at = first; at < p.dim; at += step) {
        Four v = load_four<kAligned>(x, at, p.dim);
        add(v, load_four<kAligned>(y, at, p.dim), at);
      }
    }
  }
  const auto n = static_cast<float>(p.dim);
  float mean = 0.0f;
  if (p.bias != nullptr) {
    float sum = 0.0f;
    each([&](const Four& v, int, const Four&) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum = __fadd_rn(sum, v.x[i]);
    });
    mean = __fdiv_rn(block_sum(sum, parts[0]), n);
  }
  float squares = 0.0f;
  each([&](const Four& v, int at, const Four&) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float d = at + i < p.dim ? __fsub_rn(v.x[i], mean) : 0.0f;
      squares = fmaf(d, d, squares);
    }
  });
  const float by = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(block_sum(squares, parts[1]), n), p.eps)));
  auto* out = static_cast<Out*>(p.out) + row * p.out_stride;
  each([&](const Four& v, int at, const Four& held_weight) {
    const Four weight = kHeld ? held_weight : load_four<kAligned>(p.weight, at, p.dim);
    Four bias, result;
    if (p.bias != nullptr) bias = load_four<kAligned>(p.bias, at, p.dim);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      result.x[i] = __fmul_rn(__fmul_rn(__fsub_rn(v.x[i], mean), by), weight.x[i]);
      if (p.bias != nullptr) result.x[i] = __fadd_rn(result.x[i], bias.x[i]);
    }
    store_four<kAligned>(out, at, p.dim, result);
  });
}

template <class X, class Y, class Out, bool kHeld, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads) norm_kernel(const __grid_constant__ NormArgs p) {
  __shared__ float parts[2][32];
  grid_launch_dependents();
  if (p.aligned)
    norm_row<X, Y, Out, kHeld, kAdd, true>(p, parts);
  else
    norm_row<X, Y, Out, kHeld, kAdd, false>(p, parts);
}

template <class X, class Y, class Out, bool kAdd>
cudaError_t launch(const NormArgs& p, int64_t rows, cudaStream_t stream) {
  const int threads = std::clamp((p.dim + 255) / 256 * 32, 32, kMaxThreads);
  const bool held = p.dim <= 4 * kVectors * threads;
  return launch_dependent(held ? norm_kernel<X, Y, Out, true, kAdd> : norm_kernel<X, Y, Out, false, kAdd>,
                          {static_cast<unsigned>(rows), static_cast<unsigned>(threads)}, stream, p);
}

std::string str(int64_t x) {
  return std::to_string(x);
}

Status check_rows(const char* name, int64_t rows, int64_t dim) {
  if (rows < 0 || rows > INT32_MAX || dim < 1 || dim > kMaxDim)
    return invalid(std::string(name) + ": " + str(rows) + " rows of " + str(dim) +
                   " elements; a launch takes up to 2^31 - 1 rows of 1 to " + str(kMaxDim));
  return {};
}

bool whole_weights(const float* weight, const float* bias, int64_t dim) {
  return by_four(weight, DType::f32, 0, dim) && by_four(bias, DType::f32, 0, dim);
}

}  // namespace

Status launch_norm(const NormParams& p, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check_rows("norm", p.rows, p.dim));
  if (p.rows == 0) return {};
  if (p.x == nullptr || p.weight == nullptr || p.y == nullptr)
    return invalid("norm: x, weight and y must not be null");
  if (p.x_dtype != DType::f32 && p.x_dtype != p.y_dtype)
    return invalid("norm: " + std::string(to_string(p.x_dtype)) + " to " + std::string(to_string(p.y_dtype)) +
                   "; x is float32 or of y's dtype");
  NormArgs args;
  args.x = p.x, args.out = p.y, args.weight = p.weight, args.bias = p.bias;
  args.x_stride = p.x_stride, args.out_stride = p.y_stride;
  args.eps = p.eps, args.dim = static_cast<int>(p.dim);
  args.aligned = by_four(p.x, p.x_dtype, p.x_stride, p.dim) && by_four(p.y, p.y_dtype, p.y_stride, p.dim) &&
                 whole_weights(p.weight, p.bias, p.dim);
  FOVEA_CUDA_TRY(with_type(p.y_dtype, [&](auto tag) {
    using Y = typename decltype(tag)::type;
    if (p.x_dtype == DType::f32) return launch<float, float, Y, false>(args, p.rows, stream.handle());
    return launch<Y, Y, Y, false>(args, p.rows, stream.handle());
  }));
  return {};
}

Status launch_add_norm(const AddNormParams& p, CudaStream& stream) {
  const AddParams& a = p.add;
  FOVEA_RETURN_IF_ERROR(check_rows("add_norm", a.rows, a.dim));
  if (a.rows == 0) return {};
  if (a.x == nullptr || a.y == nullptr || p.weight == nullptr || p.out == nullptr)
    return invalid("add_norm: x, y, weight and out must not be null");
  if (a.y_dtype != DType::f32 && a.y_dtype != p.out_dtype)
    return invalid("add_norm: y " + std::string(to_string(a.y_dtype)) + ", out " +
                   std::string(to_string(p.out_dtype)) + "; y is float32 or of out's dtype");
  NormArgs args;
  args.x = a.x, args.sum = a.x, args.y = a.y, args.out = p.out, args.weight = p.weight, args.bias = p.bias;
  args.x_stride = a.x_stride, args.y_stride = a.y_stride, args.out_stride = p.out_stride;
  args.scale = a.scale, args.eps = p.eps, args.dim = static_cast<int>(a.dim);
  args.aligned = by_four(a.x, DType::f32, a.x_stride, a.dim) && by_four(a.y, a.y_dtype, a.y_stride, a.dim) &&
                 by_four(p.out, p.out_dtype, p.out_stride, a.dim) && whole_weights(p.weight, p.bias, a.dim);
  FOVEA_CUDA_TRY(with_type(p.out_dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    if (a.y_dtype == DType::f32) return launch<float, float, Out, true>(args, a.rows, stream.handle());
    return launch<float, Out, Out, true>(args, a.rows, stream.handle());
  }));
  return {};
}

}  // namespace fovea::cuda
