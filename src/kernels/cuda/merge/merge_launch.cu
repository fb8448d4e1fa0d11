#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/merge/merge_launch.h"
#include "kernels/cuda/merge/state.h"

namespace fovea::cuda {
namespace {

// A CTA merges one (row, head) and one slice of Dv: one float per thread, so that a warp reads whole lines of
// a part, with kUnroll parts in flight. 32 loads of 128 bytes cover a long context's latency at batch 1.
constexpr int kThreads = 128;
constexpr int kUnroll = 32;

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__half x) {
  return __half2float(x);
}
__device__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ void store(void* out, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(out)[at] = x; return;
    case DType::f16: static_cast<__half*>(out)[at] = __float2half_rn(x); return;
    case DType::bf16: static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16_rn(x); return;
  }
}

/// One row and head: its parts, and where the result goes.
template <class T>
struct Row {
  const T* o = nullptr;  // part 0; the others at rest_o + (i - 1) * o_stride
  const float* lse = nullptr;
  const T* rest_o = nullptr;
  const float* rest_lse = nullptr;
  int64_t o_stride = 0, lse_stride = 0;
  int parts = 0;
  int64_t row = 0;
  int head = 0;

  __device__ float lse_of(int i) const { return i == 0 ? *lse : rest_lse[(i - 1) * lse_stride]; }
  __device__ float o_of(int i, int d) const {
    return to_float(i == 0 ? o[d] : rest_o[(i - 1) * o_stride + d]);
  }
};

struct SharedStorage {
  float weights[kThreads];
  float lses[kThreads / 32];
  int counts[kThreads / 32];
};

/// Finds the largest LSE and counts the parts that are not empty.
template <class T>
__device__ void find_top(const Row<T>& row, SharedStorage& shared, float& lse, int& parts) {
  lse = -INFINITY;
  parts = 0;
  for (int i = static_cast<int>(threadIdx.x); i < row.parts; i += kThreads) {
    const float mine = clean_lse(row.lse_of(i));
    lse = fmaxf(lse, mine);
    parts += mine > -INFINITY ? 1 : 0;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    lse = fmaxf(lse, __shfl_xor_sync(0xffffffffu, lse, step));
    parts += __shfl_xor_sync(0xffffffffu, parts, step);
  }
  if (threadIdx.x % 32 == 0) {
    shared.lses[threadIdx.x / 32] = lse;
    shared.counts[threadIdx.x / 32] = parts;
  }
  __syncthreads();
  lse = -INFINITY;
  parts = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    lse = fmaxf(lse, shared.lses[w]);
    parts += shared.counts[w];
  }
}

/// The weight of a part in the sum.
__device__ float weight_of(float lse, float exponent, int parts) {
  const PartWeight part = part_weight(lse);
  if (part.mantissa == 0.0f) return 0.0f;
  return parts == 1 ? 1.0f : part.mantissa * power_of_two(part.exponent - exponent);
}

/// Loads up to kUnroll parts from `first` on; whatever their weights, so that the loads do not wait for them.
template <class T>
__device__ void load_parts(const Row<T>& row, int first, int d, float (&parts)[kUnroll]) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    parts[u] = first + u < row.parts ? row.o_of(first + u, d) : 0.0f;
}

template <class T>
__device__ void merge_row(const Row<T>& row, int slice, int dv, int heads, const MergeOutput& out,
                          SharedStorage& shared) {
  const int d = slice * kThreads + static_cast<int>(threadIdx.x), read = min(d, dv - 1);
  float parts[kUnroll];
  load_parts(row, 0, read, parts);
  MergeState state;
  find_top(row, shared, state.lse, state.parts);
  // The exponent grows with the LSE; the LSE of the only part is the largest.
  state.exponent = part_weight(state.lse).exponent;
  float sum = 0.0f;
  for (int first = 0; first < row.parts; first += kUnroll) {
    if (first % kThreads == 0) {
      const int mine = first + static_cast<int>(threadIdx.x);
      __syncthreads();  // all threads have read the previous weights
      shared.weights[threadIdx.x] =
          mine < row.parts ? weight_of(row.lse_of(mine), state.exponent, state.parts) : 0.0f;
      __syncthreads();
    }
    if (first > 0) load_parts(row, first, read, parts);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const float w = shared.weights[first % kThreads + u];  // 0 past the last part
      sum = w != 0.0f ? fmaf(parts[u], w, sum) : sum;
      state.weight += w;
    }
  }
  SinkResult sink{1.0f, state.merged_lse()};
  if (out.sinks != nullptr) {
    sink = apply_sink(state.merged_lse(), out.sinks[row.head]);
    if (!out.lse_includes_sink) sink.lse = state.merged_lse();
  }
  if (d < dv && out.out != nullptr) {
    const float value = product(__fdiv_rn(sum, state.divisor()), sink.factor);
    store(out.out, out.dtype, row.row * out.out_row_stride + static_cast<int64_t>(row.head) * dv + d, value);
  }
  if (out.lse != nullptr && slice == 0 && threadIdx.x == 0) out.lse[row.row * heads + row.head] = sink.lse;
  __syncthreads();  // a caller may reuse shared memory for its next row
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    merge_states_kernel(const __grid_constant__ MergeParts parts, const __grid_constant__ MergeOutput out) {
  __shared__ SharedStorage shared;
  const int64_t unit = blockIdx.x;
  Row<T> row;
  row.row = unit / parts.heads;
  row.head = static_cast<int>(unit % parts.heads);
  row.o = static_cast<const T*>(parts.first.o) + unit * parts.dv;
  row.lse = parts.first.lse + unit;
  row.rest_o = static_cast<const T*>(parts.rest.o) + unit * parts.dv;
  row.rest_lse = parts.rest.lse + unit;
  row.o_stride = parts.o_stride;
  row.lse_stride = parts.lse_stride;
  row.parts = parts.parts;
  merge_row(row, static_cast<int>(blockIdx.y), parts.dv, parts.heads, out, shared);
}

}  // namespace

Status launch_merge_states(const MergeParts& parts, const MergeOutput& output, CudaStream& stream) {
  if (parts.parts < 1 || parts.rows < 0 || parts.heads < 1 || parts.dv < 1)
    return invalid("merge_states: " + std::to_string(parts.parts) + " parts of [" +
                   std::to_string(parts.rows) + ", " + std::to_string(parts.heads) + ", " +
                   std::to_string(parts.dv) + "] are given; at least 1 part, head and element are needed");
  if (parts.rows == 0) return {};
  if (parts.first.o == nullptr || parts.first.lse == nullptr ||
      (parts.parts > 1 && (parts.rest.o == nullptr || parts.rest.lse == nullptr)))
    return invalid("merge_states: each part needs O and LSE");
  const int64_t units = int64_t{parts.rows} * parts.heads;
  if (units > INT32_MAX)
    return invalid("merge_states: rows times heads must be below 2^31, not " + std::to_string(units));
  const dim3 grid(static_cast<unsigned>(units), static_cast<unsigned>((parts.dv + kThreads - 1) / kThreads));
  switch (parts.dtype) {
    case DType::f32: merge_states_kernel<float><<<grid, kThreads, 0, stream.handle()>>>(parts, output); break;
    case DType::f16:
      merge_states_kernel<__half><<<grid, kThreads, 0, stream.handle()>>>(parts, output);
      break;
    case DType::bf16:
      merge_states_kernel<__nv_bfloat16><<<grid, kThreads, 0, stream.handle()>>>(parts, output);
      break;
  }
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
