#pragma once
// Device helpers of the linear layers' tests: reproducible inputs, an fp64 reference, comparison of rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda_check.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

struct DeviceBytes {
  uint8_t* data = nullptr;
  size_t size = 0;
  explicit DeviceBytes(size_t bytes) : size(bytes) {
    CUDA_CHECK(cudaMalloc(&data, std::max<size_t>(bytes, 1)));
  }
  DeviceBytes(DeviceBytes&& o) noexcept : data(o.data), size(o.size) { o.data = nullptr; }
  ~DeviceBytes() { cudaFree(data); }
  void poison() { set_bytes(data, 0xff, size); }
};

/// What the elements of a row look like.
enum class Content : int { normal, wide, cancelling, tiny, zeros, nan };

__host__ __device__ inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// A value near N(0, 1) from a hash.
__device__ inline float bell(uint64_t h) {
  float sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<float>((h >> (16 * i)) & 0xffff) * (1.0f / 65536.0f);
  return (sum - 2.0f) * 1.7320508f;
}

__device__ inline float element(Content content, uint64_t seed, int64_t row, int64_t k, bool f16) {
  const uint64_t h = mix(seed * 0x9e3779b97f4a7c15ull + mix(static_cast<uint64_t>(row) * 1000003 + k));
  const float v = bell(h);
  switch (content) {
    case Content::normal: return v;
    case Content::wide: return ldexpf(v, static_cast<int>(mix(h) % (f16 ? 17 : 41)) - (f16 ? 12 : 20));
    case Content::cancelling: {
      const float w = bell(mix(seed + mix(static_cast<uint64_t>(row) * 1000003 + k / 32 * 16 + k % 16)));
      return (k / 16 % 2 != 0 ? -w : w) * (h % 5 == 0 ? 1.01f : 1.0f);
    }
    case Content::tiny: return h % 3 == 0 ? v : ldexpf(v, f16 ? -20 : -130);
    case Content::zeros: return h % 2 == 0 ? -0.0f : 0.0f;
    case Content::nan: return __int_as_float(0x7fffffff);
  }
  return 0;
}

template <class T>
__device__ inline T convert(float v) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(v);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(v);
  else
    return v;
}
template <class T>
__device__ inline double widen(T v) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(v);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float(v);
  else
    return v;
}

/// The planted defect: inputs 16 to 31 and 32 to 47 change places, in x and in the weights.
__device__ inline int64_t planted_place(int64_t k, bool planted) {
  if (!planted || k < 16 || k >= 48) return k;
  return k < 32 ? k + 16 : k - 16;
}

/// Row r of m is row ids[r] of the seed's matrix, of content kinds[r]; both may be null (r, normal). Elements
/// between k and the stride are NaN.
template <class T>
__global__ void fill_rows(T* m, int64_t stride, int64_t rows, int64_t k, uint64_t seed, const int* ids,
                          const Content* kinds, float scale, bool planted) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < stride;
         at += int64_t{gridDim.x} * blockDim.x) {
      const Content kind = at >= k ? Content::nan : kinds != nullptr ? kinds[row] : Content::normal;
      const int64_t id = ids != nullptr ? ids[row] : row;
      const float v =
          element(kind, seed, id, planted_place(at, planted && k >= 48), std::is_same_v<T, __half>);
      m[row * stride + at] = convert<T>(v * scale);
    }
}

template <class T>
void fill(void* m, int64_t stride, int64_t rows, int64_t k, uint64_t seed, const int* ids,
          const Content* kinds, float scale, bool planted = false) {
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((stride + 255) / 256, 64)),
                  static_cast<unsigned>(std::min<int64_t>(rows, 16384)));
  fill_rows<<<grid, 256>>>(static_cast<T*>(m), stride, rows, k, seed, ids, kinds, scale, planted);
  CUDA_CHECK(cudaGetLastError());
}

/// The magnitude that the matrix instruction aligns by: a subnormal fp16 counts as the smallest normal.
template <class T>
__device__ inline double aligned_magnitude(double v) {
  return std::is_same_v<T, __half> && v != 0 ? fmax(fabs(v), 0x1p-14) : fabs(v);
}

/// sum[r][n] and sum of magnitudes of x_r * w_n in fp64; a warp for each output.
template <class T>
__global__ void reference_sums(const T* x, int64_t x_stride, int rows, const T* w, int64_t n, int64_t k,
                               double* sum, double* magnitude) {
  const int64_t out = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (out >= n) return;
  for (int r = 0; r < rows; ++r) {
    double s = 0, a = 0;
    for (int64_t i = threadIdx.x % 32; i < k; i += 32) {
      const double u = widen(x[r * x_stride + i]), v = widen(w[out * k + i]);
      s += u * v;
      a += aligned_magnitude<T>(u) * aligned_magnitude<T>(v);
    }
    for (int step = 16; step > 0; step /= 2) {
      s += __shfl_xor_sync(0xffffffffu, s, step);
      a += __shfl_xor_sync(0xffffffffu, a, step);
    }
    if (threadIdx.x % 32 == 0) sum[r * n + out] = s, magnitude[r * n + out] = a;
  }
}

/// Counts 4-byte words in which row places[i] of y differs from row i of `truth`.
__global__ void count_differences(const uint8_t* y, int64_t y_stride, const int* places, int count,
                                  const uint8_t* truth, int64_t truth_stride, int64_t bytes,
                                  const int* truth_rows, unsigned long long* different) {
  for (int i = blockIdx.y; i < count; i += gridDim.y) {
    const uint8_t* a = y + places[i] * y_stride;
    const uint8_t* b = truth + truth_rows[i] * truth_stride;
    unsigned long long found = 0;
    for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < bytes;
         at += int64_t{gridDim.x} * blockDim.x)
      found += a[at] != b[at];
    if (found != 0) atomicAdd(different, found);
  }
}

/// Counts bytes of the padding after each row, and of `guard` bytes after the last, that are not 0xff.
__global__ void count_overwritten(const uint8_t* y, int64_t rows, int64_t stride, int64_t bytes,
                                  int64_t guard, unsigned long long* overwritten) {
  for (int64_t row = blockIdx.x; row <= rows; row += gridDim.x) {
    const int64_t first = row < rows ? bytes : 0, last = row < rows ? stride : guard;
    for (int64_t at = first + threadIdx.x; at < last; at += blockDim.x)
      if (y[row * stride + at] != 0xff) atomicAdd(overwritten, 1ull);
  }
}

/// The old value of y for `residual`: depends on the column alone.
__global__ void fill_columns(float* y, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < columns;
         c += int64_t{gridDim.x} * blockDim.x)
      y[row * stride + c] = bell(mix(static_cast<uint64_t>(c) + 77));
}

}  // namespace fovea::cuda
