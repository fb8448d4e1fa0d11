// Index queries and keys: rotation, Hadamard matrix, codes, and the cache.
#include <cmath>
#include <string>
#include <type_traits>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/append/store.cuh"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/tiles/common.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 8, kEach = kIndexDim / 32;  ///< elements of a lane, neighbours

template <class T>
__device__ T rounded(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

/// The least power of two that is at least x, which is positive, normal and at most 2^126.
__device__ float power_of_two_from(float x) {
  const uint32_t bits = __float_as_uint(x);
  return __uint_as_float((bits + 0x007fffffu) & 0x7f800000u);
}

/// hadamard() of kernels/cpu/indexer.h, over the lanes of a warp.
__device__ void hadamard(float (&x)[kEach], float factor) {
  static_assert(kEach == 4);
#pragma unroll
  for (int half = 1; half < kEach; half *= 2)
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if ((i & half) == 0) {
        const float a = x[i], b = x[i + half];
        x[i] = __fadd_rn(a, b);
        x[i + half] = __fsub_rn(a, b);
      }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const bool second = (lane_id() & step) != 0;
#pragma unroll
    for (float& own : x) {
      const float other = __shfl_xor_sync(~0u, own, step);
      own = second ? __fsub_rn(other, own) : __fadd_rn(own, other);
    }
  }
#pragma unroll
  for (float& own : x)
    own = __fmul_rn(own, factor);
}

/// round_to_index_codes(): four codes of this lane, and the scale.
__device__ uint32_t codes_of(const float (&x)[kEach], float& scale) {
  float most = 1e-4f;
#pragma unroll
  for (const float own : x)
    most = fmaxf(most, fabsf(own));
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  if (!(most < INFINITY)) most = kE4m3Max;
  scale = power_of_two_from(__fdiv_rn(most, kE4m3Max));
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    codes |= static_cast<uint32_t>(float_to_e4m3(divided(x[i], scale))) << (8 * i);
  return codes;
}

/// Loads a row and rotates its first elements, in shared memory; the lane's elements are returned.
template <class T>
__device__ void load_rotated(const IndexRows& p, int64_t token, const T* from, float* row,
                             float (&x)[kEach]) {
  const int lane = lane_id();
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    row[lane * kEach + i] = to_float(from[lane * kEach + i]);
  __syncwarp();
  for (int t = lane; t < p.pairs; t += 32) {
    const int i = p.interleaved ? 2 * t : t, j = p.interleaved ? 2 * t + 1 : t + p.pairs;
    const float c = p.cos[token * p.pairs + t], s = p.sin[token * p.pairs + t], a = row[i], b = row[j];
    row[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
    row[j] = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    x[i] = row[lane * kEach + i];
}

template <class T>
__device__ void store_key(const IndexRows& p, int64_t token, float* row, float factor) {
  const int64_t slot = p.slots[token];
  if (slot < 0 || slot >= p.num_slots) return;
  float x[kEach];
  load_rotated(p, token, static_cast<const T*>(p.key) + token * p.key_row_stride, row, x);
  const RowPlace place = k_place(p.keys, slot, 0, kIndexDim);
  void* const data = const_cast<void*>(p.keys.k);
  const int64_t at = place.at + lane_id() * kEach;
  if (p.codes == nullptr) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      store_element(data, at + i, p.keys.dtype, stored_bits(x[i], 1.0f, p.keys.dtype));
    return;
  }
  hadamard(x, factor);
  float scale;
  const uint32_t codes = codes_of(x, scale);
  static_cast<uint32_t*>(data)[at / 4] = codes;
  if (lane_id() == 0) const_cast<float*>(p.keys.k_scales)[place.scale_at] = scale;
}

template <class T>
__device__ void prepare_query(const IndexRows& p, int64_t token, int head, float* row, float factor) {
  T* const q = static_cast<T*>(p.q) + token * p.q_row_stride + head * kIndexDim;
  float x[kEach], scale = p.scale;
  load_rotated(p, token, q, row, x);
  if (p.codes == nullptr) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      q[lane_id() * kEach + i] = rounded<T>(x[i]);
  } else {
    hadamard(x, factor);
    float own;
    const uint32_t codes = codes_of(x, own);
    reinterpret_cast<uint32_t*>(p.codes + (token * p.heads + head) * kIndexDim)[lane_id()] = codes;
    scale = __fmul_rn(scale, own);
  }
  if (lane_id() == 0)
    p.weights_out[token * p.heads + head] =
        __fmul_rn(to_float(static_cast<const T*>(p.weights)[token * p.weights_row_stride + head]), scale);
}

/// A warp takes a query head, or the key, of a token.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    index_rows_kernel(const __grid_constant__ IndexRows p, float factor) {
  __shared__ alignas(16) float rows[kWarps][kIndexDim];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  grid_launch_dependents();
  grid_dependency_wait();
  const auto [token, part] = divide(task, p.heads + 1);
  if (token >= p.tokens) return;
  const int head = static_cast<int>(part);
  if (head < p.heads)
    prepare_query<T>(p, token, head, rows[warp], factor);
  else
    store_key<T>(p, token, rows[warp], factor);
}

std::string str(int64_t x) {
  return std::to_string(x);
}

}  // namespace

Status launch_index_rows(const IndexRows& p, CudaStream& stream) {
  if (p.tokens == 0) return {};
  const bool codes = p.keys.dtype == KvCacheDType::fp8_e4m3;
  if (p.tokens < 0 || p.heads < 1 || p.pairs < 0 || 2 * p.pairs > kIndexDim)
    return invalid("index_rows: " + str(p.tokens) + " tokens, " + str(p.heads) + " heads, " + str(p.pairs) +
                   " rotated pairs of " + str(kIndexDim) + " elements");
  if (p.q == nullptr || p.key == nullptr || p.weights == nullptr || p.cos == nullptr || p.sin == nullptr ||
      p.slots == nullptr || p.keys.k == nullptr || p.weights_out == nullptr ||
      codes != (p.codes != nullptr) || codes != (p.keys.k_scales != nullptr) ||
      p.keys.form != KvForm::strided)
    return invalid(
        "index_rows: queries, keys, weights, rotation, slots, a strided cache, and with fp8_e4m3 "
        "codes and scales are needed");
  if (codes && (reinterpret_cast<uintptr_t>(p.keys.k) % 4 != 0 || p.keys.k_page_stride % 4 != 0 ||
                p.keys.k_slot_stride % 4 != 0))
    return invalid("index_rows: codes of index keys must be aligned to 4 bytes");
  const int64_t blocks = (int64_t{p.tokens} * (p.heads + 1) + kWarps - 1) / kWarps;
  const float factor = 1.0f / std::sqrt(static_cast<float>(kIndexDim));
  const auto launch = [&](auto type) -> Status {
    FOVEA_CUDA_TRY(launch_dependent(index_rows_kernel<decltype(type)>,
                                    {static_cast<unsigned>(blocks), 32 * kWarps}, stream.handle(), p,
                                    factor));
    return {};
  };
  if (p.dtype == DType::f32) return launch(float{});
  return p.dtype == DType::f16 ? launch(__half{}) : launch(__nv_bfloat16{});
}

}  // namespace fovea::cuda
