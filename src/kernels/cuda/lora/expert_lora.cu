#include "kernels/cuda/lora/expert_lora.h"

#include <climits>
#include <string>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/lora/lora.h"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOutputs = 4 * kThreads;  // of a CTA
constexpr int kMaxLow = 2 * 512;        // ranks of two modules

/// A pair's module.
template <class T>
struct PairSlot {
  int row = 0, rank = 0;
  float scale[2] = {};
  const T *a = nullptr, *b = nullptr;

  FOVEA_DEVICE PairSlot(const ExpertLoraParams& p, int pair) {
    row = pair / p.experts_per_token;
    const int slot = p.slot[row], expert = p.experts == nullptr ? 0 : p.experts[pair];
    if (slot < 0 || expert < 0 || expert >= p.num_experts) return;
    const auto* const memory = static_cast<const std::byte*>(p.slots) + slot * p.slot_bytes;
    const float4 line = reinterpret_cast<const float4*>(memory)[p.line + expert * p.line_stride];
    scale[0] = line.x;
    scale[1] = p.modules > 1 ? line.y : 0.0f;
    rank = __float_as_int(line.w);
    const auto* const matrices = reinterpret_cast<const T*>(memory + p.matrices);
    a = matrices + (p.a + expert * p.stride) * rank;
    b = matrices + (p.b + expert * p.stride) * rank;
  }
  FOVEA_DEVICE bool adapts() const { return scale[0] != 0.0f || scale[1] != 0.0f; }
};

/// Eight elements, 16-byte aligned.
template <class T>
FOVEA_DEVICE void load_eight(const T* from, float (&v)[8]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      v[i] = from[i];
  } else {
    const uint4 eight = *reinterpret_cast<const uint4*>(from);
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 both = unpack<T>(words[i]);
      v[2 * i] = both.x, v[2 * i + 1] = both.y;
    }
  }
}

/// x A^T of a pair, scaled: a warp takes every eighth rank.
template <class T>
__global__ __launch_bounds__(kThreads) void expert_shrink_kernel(ExpertLoraParams p) {
  grid_launch_dependents();
  grid_dependency_wait();
  const int pair = static_cast<int>(blockIdx.x);
  const PairSlot<T> slot(p, pair);
  if (!slot.adapts()) return;
  const int64_t place = p.position == nullptr ? slot.row : p.position[pair];
  const T* const x = static_cast<const T*>(p.x) + place * p.x_stride;
  const int lane = lane_id(), k = static_cast<int>(p.k);
  float* const low = p.low + static_cast<int64_t>(pair) * p.modules * p.max_rank;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < p.modules * slot.rank; r += kWarps) {
    const T* const a = slot.a + static_cast<int64_t>(r) * p.a_stride;
    float sum = 0.0f;
    if constexpr (sizeof(T) == 4) {
      for (int at = lane; at < k; at += 32)
        sum = fmaf(x[at], a[at], sum);
    } else {
#pragma unroll 4
      for (int at = 8 * lane; at < k; at += 256) {
        float v[8], w[8];
        load_eight(x + at, v);
        load_eight(a + at, w);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          sum = fmaf(v[i], w[i], sum);
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
    if (lane == 0) low[r] = __fmul_rn(sum, slot.scale[r < slot.rank ? 0 : 1]);
  }
}

/// A CTA: a pair and kOutputs outputs.
template <class T>
__global__ __launch_bounds__(kThreads) void expert_expand_kernel(ExpertLoraParams p, int blocks) {
  __shared__ float low[kMaxLow];
  grid_launch_dependents();
  grid_dependency_wait();
  const int pair = static_cast<int>(blockIdx.x) / blocks;
  const PairSlot<T> slot(p, pair);
  const int n = static_cast<int>(p.n), first = static_cast<int>(blockIdx.x) % blocks * kOutputs;
  float* const out = p.shares + static_cast<int64_t>(pair) * n;
  if (!slot.adapts()) {
    for (int o = first + static_cast<int>(threadIdx.x); o < min(n, first + kOutputs) && !p.adds;
         o += kThreads)
      out[o] = 0.0f;
    return;
  }
  for (int r = static_cast<int>(threadIdx.x); r < p.modules * slot.rank; r += kThreads)
    low[r] = p.low[static_cast<int64_t>(pair) * p.modules * p.max_rank + r];
  __syncthreads();
  for (int o = first + static_cast<int>(threadIdx.x); o < min(n, first + kOutputs); o += kThreads) {
    const int module = p.modules > 1 && o >= p.second_output ? 1 : 0;
    float sum = 0.0f;
    if ((module == 0 ? slot.scale[0] : slot.scale[1]) != 0.0f) {
      const T* const b = slot.b + static_cast<int64_t>(o) * slot.rank;
      const float* const from = low + module * slot.rank;
      for (int r = 0; r < slot.rank; r += 8) {
        float w[8];
        load_eight(b + r, w);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          sum = fmaf(from[r + i], w[i], sum);
      }
    }
    out[o] = p.adds ? __fadd_rn(out[o], sum) : sum;
  }
}

__global__ __launch_bounds__(32) void row_slots_kernel(const int32_t* order, const int4* tiles,
                                                       int32_t* slot) {
  grid_launch_dependents();
  grid_dependency_wait();
  const int4 tile = tiles[blockIdx.x];
  if (static_cast<int>(threadIdx.x) < tile.z) slot[order[tile.y + static_cast<int>(threadIdx.x)]] = tile.x;
}

template <class T>
Status launch(const ExpertLoraParams& p, cudaStream_t stream) {
  const int64_t pairs = p.rows * p.experts_per_token, blocks = (p.n + kOutputs - 1) / kOutputs;
  FOVEA_CUDA_TRY(launch_dependent(
      expert_shrink_kernel<T>, {static_cast<unsigned>(pairs), static_cast<unsigned>(kThreads)}, stream, p));
  FOVEA_CUDA_TRY(launch_dependent(expert_expand_kernel<T>,
                                  {static_cast<unsigned>(pairs * blocks), static_cast<unsigned>(kThreads)},
                                  stream, p, static_cast<int>(blocks)));
  return {};
}

}  // namespace

Status launch_expert_lora(const ExpertLoraParams& p, CudaStream& stream) {
  const bool packed = p.dtype != DType::f32;
  const bool aligned =
      !packed || (p.k % 8 == 0 && p.x_stride % 8 == 0 && p.a_stride % 8 == 0 &&
                  (reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.slots)) % 16 == 0);
  if (!aligned || p.modules < 1 || p.modules > 2 || p.modules * p.max_rank > kMaxLow || p.max_rank % 8 != 0 ||
      p.rows < 0 || p.rows * p.experts_per_token * ((p.n + kOutputs - 1) / kOutputs) > INT_MAX || p.k < 1 ||
      p.n < 1 || p.n > INT_MAX / 4)
    return invalid("adapters of experts of " + std::to_string(p.k) + " inputs, " + std::to_string(p.n) +
                   " outputs and " + std::to_string(p.modules) + " modules, ranks up to " +
                   std::to_string(p.max_rank) + ", " + std::to_string(p.rows) + " rows of " +
                   std::to_string(p.experts_per_token) +
                   ": 1 or 2 modules, ranks up to 512, multiples of 8, and rows and slots that are 16-byte "
                   "aligned are allowed");
  if (p.rows == 0) return {};
  switch (p.dtype) {
    case DType::f32: return launch<float>(p, stream.handle());
    case DType::f16: return launch<__half>(p, stream.handle());
    case DType::bf16: return launch<__nv_bfloat16>(p, stream.handle());
  }
  return invalid("adapters of experts: unknown type of activations");
}

Status launch_row_slots(const int32_t* order, const int32_t* tiles, int64_t num_tiles, int32_t* slot,
                        CudaStream& stream) {
  if (num_tiles == 0) return {};
  FOVEA_CUDA_TRY(launch_dependent(row_slots_kernel, {static_cast<unsigned>(num_tiles), 32u}, stream.handle(),
                                  order, reinterpret_cast<const int4*>(tiles), slot));
  return {};
}

}  // namespace fovea::cuda
