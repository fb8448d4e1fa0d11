#include <algorithm>
#include <string>
#include <type_traits>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/append/store.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

// A warp takes one row (token and head), held in shared memory as fp32.
constexpr int kWarps = 4;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLeastTokenScale =
    0x1p-126f;  // as KvCache: a normal number, so that dividing by it loses nothing

/// So that what follows n floats in shared memory is aligned to four.
constexpr int whole_fours(int n) {
  return (n + 3) / 4 * 4;
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(kAll, x, step);
  return x;
}

template <class T>
__device__ void load_row(const T* in, int n, bool by_four, float* row, int lane) {
  struct alignas(4 * sizeof(T)) Four {
    T x[4];
  };
  if (by_four) {
    for (int i = lane; i < n / 4; i += 32) {
      const Four four = reinterpret_cast<const Four*>(in)[i];
      reinterpret_cast<float4*>(row)[i] = {to_float(four.x[0]), to_float(four.x[1]), to_float(four.x[2]),
                                           to_float(four.x[3])};
    }
  } else {
    for (int i = lane; i < n; i += 32)
      row[i] = to_float(in[i]);
  }
  __syncwarp();
}

/// A lane holds two runs of four elements of a head, from lane_run(0) and lane_run(1) on: both sides of four
/// rotated pairs, or eight neighbours. `lane` counts within the head.
__device__ int lane_run(const RopeParams& rope, int lane, int run) {
  const int half = rope.dim / 2;
  return !rope.interleaved && 4 * lane < half ? 4 * lane + run * half : 8 * lane + 4 * run;
}

/// Whether lane_run() divides a head among lanes.
constexpr bool in_lane_runs(int head_dim, int rope_dim) {
  return head_dim % 8 == 0 && head_dim <= 256 && rope_dim % 8 == 0;
}

/// 1 / sqrt(mean of squares + eps) from the sum of squares.
__device__ float norm_factor(const HeadNorm& norm, float sum, int n) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), norm.eps)));
}

/// Lanes sum in the order of append_heads_kernel() where that can take such heads, then in a tree.
__device__ void norm_row(const HeadNorm& norm, const RopeParams& rope, int n, float* row, int lane) {
  if (norm.weight == nullptr) return;
  float sum = 0.0f;
  if (in_lane_runs(n, rope.dim)) {
    for (int r = 0; r < 2 && 8 * lane < n; ++r)
      for (int j = 0; j < 4; ++j) {
        const float x = row[lane_run(rope, lane, r) + j];
        sum = fmaf(x, x, sum);
      }
  } else {
    for (int i = lane; i < n; i += 32)
      sum = fmaf(row[i], row[i], sum);
  }
  const float by = norm_factor(norm, warp_sum(sum), n);
  for (int i = lane; i < n; i += 32)
    row[i] = __fmul_rn(__fmul_rn(row[i], by), norm.weight[i]);
  __syncwarp();
}

/// Products and sums are each rounded, as in rope_neox() on the CPU.
__device__ void rotate_row(const RopeParams& rope, int64_t position, float* row, int lane) {
  if (rope.dim == 0) return;
  const int half = rope.dim / 2;
  const int64_t table = position * half;
  for (int t = lane; t < half; t += 32) {
    const int i = rope.interleaved ? 2 * t : t, j = rope.interleaved ? 2 * t + 1 : t + half;
    const float c = rope.cos[table + t], s = rope.sin[table + t], a = row[i], b = row[j];
    row[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
    row[j] = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
  }
  __syncwarp();
}

template <class T>
__device__ T rounded(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

template <class T>
__device__ void store_activation(T* out, int n, bool by_four, const float* row, int lane) {
  struct alignas(4 * sizeof(T)) Four {
    T x[4];
  };
  if (by_four) {
    for (int i = lane; i < n / 4; i += 32) {
      const float4 v = reinterpret_cast<const float4*>(row)[i];
      reinterpret_cast<Four*>(out)[i] = {rounded<T>(v.x), rounded<T>(v.y), rounded<T>(v.z), rounded<T>(v.w)};
    }
  } else {
    for (int i = lane; i < n; i += 32)
      out[i] = rounded<T>(row[i]);
  }
}

/// The scale of one (token, head): NaN when an element of the row is not finite.
__device__ float token_scale(const float* row, int n, int lane) {
  float most = 0.0f;
  bool finite = true;
  for (int i = lane; i < n; i += 32) {
    most = fmaxf(most, fabsf(row[i]));
    finite = finite && fabsf(row[i]) < INFINITY;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
  if (!__all_sync(kAll, finite)) return __int_as_float(0x7fc00000);
  return fmaxf(__fdiv_rn(most, 127.0f), kLeastTokenScale);
}

__device__ void store_row(void* data, float* scales, KvCacheDType dtype, const RowPlace& place, float scale,
                          int n, const float* row, int lane) {
  if (scales != nullptr) {
    scale = token_scale(row, n, lane);
    if (lane == 0) scales[place.scale_at] = scale;
    if (scale != scale) return;  // with a NaN scale, any code reads as NaN
  }
  // Four at a time where they are contiguous and aligned; then the row in shared memory is, too.
  const auto address = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(place.at) * size_of(dtype);
  if (n % 4 == 0 && place.run % 4 == 0 && place.run_stride % 4 == 0 && place.at % 4 == 0 &&
      address % (4 * size_of(dtype)) == 0) {
    for (int d = 4 * lane; d < n; d += 128) {
      const float4 v = *reinterpret_cast<const float4*>(row + d);
      const uint32_t bits[4] = {stored_bits(v.x, scale, dtype), stored_bits(v.y, scale, dtype),
                                stored_bits(v.z, scale, dtype), stored_bits(v.w, scale, dtype)};
      store_four(data, place.element(d), dtype, bits);
    }
    return;
  }
  for (int d = lane; d < n; d += 32)
    store_element(data, place.element(d), dtype, stored_bits(row[d], scale, dtype));
}

/// Where a token is stored.
struct TokenPlace {
  int64_t slot = -1;        // below 0 = nowhere; from num_slots on = an error
  int64_t position = 0;     // its row of the rotary tables
  bool beyond = false;      // the rotary tables have no such row
  bool unassigned = false;  // no sequence has it
};

/// The sequence of a token, or -1. A 32-ary search over q_offsets: 1024 sequences take two reads. If every
/// sequence has one row, the token's index is the sequence.
__device__ int sequence_of(const SequenceRows& s, int64_t token, int lane) {
  if (token < s.seqs && s.q_offsets[token] == token && s.q_offsets[token + 1] == token + 1)
    return static_cast<int>(token);
  int low = 0, high = s.seqs;
  while (high - low > 1) {
    const int step = (high - low + 31) / 32, probe = low + step * lane;
    const unsigned before = __ballot_sync(kAll, probe < high && s.q_offsets[probe] <= token);
    if (before == 0) return -1;
    low += step * (31 - __clz(static_cast<int>(before)));
    high = min(high, low + step);
  }
  return low < s.seqs && s.q_offsets[low] <= token && token < s.q_offsets[low + 1] ? low : -1;
}

__device__ TokenPlace place_of(const AppendParams& p, int64_t token, int lane) {
  TokenPlace place;
  place.position = token;
  if (p.slots.data != nullptr) place.slot = p.slots[token];
  if (p.sequences.q_offsets.data != nullptr) {
    const SequenceRows& s = p.sequences;
    const int b = sequence_of(s, token, lane);
    place.unassigned = b < 0;
    if (place.unassigned) return place;
    place.position = s.kv_lens[b] - (s.q_offsets[b + 1] - token);
    if (p.k != nullptr) {
      const int64_t column = place.position / p.kv.page_size;
      const bool inside = place.position >= 0 && column < s.columns;
      const int64_t page = inside ? s.page_table[b * s.page_table_stride + column] : -1;
      place.slot = page < 0 ? p.num_slots : page * p.kv.page_size + place.position % p.kv.page_size;
    }
  }
  if (p.rope.dim == 0) return place;
  if (p.rope.positions.data != nullptr) place.position = p.rope.positions[token];
  place.beyond = place.position < 0 || place.position >= p.rope.rows;
  return place;
}

/// Norm and rotation of NormRopeAppendParams on top of AppendParams.
struct Extra {
  bool norm_after_rope = false;
  double temperature_scale = 0, temperature_floor = 1;
  const int32_t* positions = nullptr;
};

__device__ float temperature(const Extra& extra, int64_t token) {
  const double steps = floor((extra.positions[token] + 1) / extra.temperature_floor);
  return static_cast<float>(1 + extra.temperature_scale * log1p(steps));
}

__device__ void scale_row(float factor, int n, float* row, int lane) {
  for (int i = lane; i < n; i += 32)
    row[i] = __fmul_rn(row[i], factor);
  __syncwarp();
}

/// Whether the token has a place; otherwise its error is recorded, where it is one.
__device__ bool placed(const AppendParams& p, const TokenPlace& place, int64_t token, bool stores,
                       bool reports) {
  if (place.unassigned) return false;
  if (!place.beyond && !(stores && place.slot >= p.num_slots)) return true;
  if (reports && p.error != nullptr) atomicMax(p.error, static_cast<int32_t>(token) + 1);
  return false;
}

__device__ void store_k(const AppendParams& p, int64_t slot, int head, const float* row, int lane) {
  store_row(const_cast<void*>(p.kv.k), const_cast<float*>(p.kv.k_scales), p.kv.dtype,
            k_place(p.kv, slot, head, p.head_dim), p.kv.k_scale, p.head_dim, row, lane);
}

template <class T>
__device__ void copy_v(const AppendParams& p, int64_t token, int64_t slot, int head, bool by_four, float* row,
                       int lane) {
  load_row(static_cast<const T*>(p.v) + token * p.v_row_stride + head * p.v_head_dim, p.v_head_dim, by_four,
           row, lane);
  store_row(const_cast<void*>(p.kv.v), const_cast<float*>(p.kv.v_scales), p.kv.dtype,
            v_place(p.kv, slot, head, p.v_head_dim), p.kv.v_scale, p.v_head_dim, row, lane);
}

#include "kernels/cuda/append/heads.cuh"
#include "kernels/cuda/append/latent.cuh"

template <class T, bool kExtra>
__global__ void __launch_bounds__(32 * kWarps, 8)
    append_kernel(const __grid_constant__ AppendParams p, const __grid_constant__ Extra extra, bool by_four,
                  int row_floats) {
  extern __shared__ float rows[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* row = rows + warp * row_floats;
  const int q_heads = p.q == nullptr ? 0 : p.num_heads, kv_heads = p.k == nullptr ? 0 : p.num_kv_heads;
  const int each = q_heads + 2 * kv_heads;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  grid_launch_dependents();
  grid_dependency_wait();
  if (task >= static_cast<int64_t>(p.tokens) * each) return;
  const auto [token, task_head] = divide(task, each);
  int head = static_cast<int>(task_head);
  const TokenPlace place = place_of(p, token, lane);
  if (!placed(p, place, token, head >= q_heads, lane == 0)) return;
  const auto norm_and_rotate = [&](const HeadNorm& norm) {
    if (!kExtra || !extra.norm_after_rope) norm_row(norm, p.rope, p.head_dim, row, lane);
    rotate_row(p.rope, place.position, row, lane);
    if (kExtra && extra.norm_after_rope) norm_row(norm, p.rope, p.head_dim, row, lane);
  };
  if (head < q_heads) {
    load_row(static_cast<const T*>(p.q) + token * p.q_row_stride + head * p.head_dim, p.head_dim, by_four,
             row, lane);
    norm_and_rotate(p.q_norm);
    if (kExtra && extra.temperature_scale != 0) scale_row(temperature(extra, token), p.head_dim, row, lane);
    store_activation(static_cast<T*>(p.q_out) + token * p.q_out_row_stride + head * p.head_dim, p.head_dim,
                     by_four, row, lane);
    return;
  }
  head -= q_heads;
  const int64_t slot = place.slot;
  if (slot < 0) return;
  if (head < kv_heads) {
    load_row(static_cast<const T*>(p.k) + token * p.k_row_stride + head * p.head_dim, p.head_dim, by_four,
             row, lane);
    norm_and_rotate(p.k_norm);
    store_k(p, slot, head, row, lane);
    return;
  }
  copy_v<T>(p, token, slot, head - kv_heads, by_four, row, lane);
}

constexpr int kTokenWarps = 8;
constexpr int64_t kMaxTokenBytes = 96 * 1024;  // what every device from sm_80 on has

/// `heads` heads of one row in shared memory, by all threads of the CTA.
template <class T>
__device__ void load_heads(const T* in, int n, float* row) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32 * kTokenWarps)
    row[i] = to_float(in[i]);
  __syncthreads();
}

__device__ void rotate_heads(const RopeParams& rope, int64_t position, int heads, int head_dim, float* rows) {
  if (rope.dim == 0) return;
  for (int head = static_cast<int>(threadIdx.x) / 32; head < heads; head += kTokenWarps)
    rotate_row(rope, position, rows + head * head_dim, static_cast<int>(threadIdx.x) % 32);
  __syncthreads();
}

/// RMS norm of all heads together: a thread sums every 256th element, then lanes and warps in a tree. `parts`
/// is used once.
__device__ void norm_heads(const HeadNorm& norm, int n, float* row, float (&parts)[kTokenWarps]) {
  if (norm.weight == nullptr) return;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  for (int i = thread; i < n; i += 32 * kTokenWarps)
    sum = fmaf(row[i], row[i], sum);
  sum = warp_sum(sum);
  if (thread % 32 == 0) parts[thread / 32] = sum;
  __syncthreads();
  sum = warp_sum(thread % 32 < kTokenWarps ? parts[thread % 32] : 0.0f);
  const float by = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), norm.eps)));
  for (int i = thread; i < n; i += 32 * kTokenWarps)
    row[i] = __fmul_rn(__fmul_rn(row[i], by), norm.weight[i]);
  __syncthreads();
}

/// A CTA takes one token: the norm of a row needs all of its heads. Shared memory: the heads of q and k, then
/// a head of v for each warp.
template <class T>
__global__ void __launch_bounds__(32 * kTokenWarps, 1)
    append_token_kernel(const __grid_constant__ AppendParams p, const __grid_constant__ Extra extra,
                        bool by_four) {
  extern __shared__ float rows[];
  __shared__ float parts[2][kTokenWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = blockIdx.x;
  grid_launch_dependents();
  grid_dependency_wait();
  const TokenPlace place = place_of(p, token, lane);
  const auto prepare = [&](const HeadNorm& norm, int heads, float* row, float(&sums)[kTokenWarps]) {
    if (!extra.norm_after_rope) norm_heads(norm, heads * p.head_dim, row, sums);
    rotate_heads(p.rope, place.position, heads, p.head_dim, row);
    if (extra.norm_after_rope) norm_heads(norm, heads * p.head_dim, row, sums);
  };
  float* next = rows;
  if (p.q != nullptr && placed(p, place, token, false, threadIdx.x == 0)) {
    const int n = p.num_heads * p.head_dim;
    load_heads(static_cast<const T*>(p.q) + token * p.q_row_stride, n, next);
    prepare(p.q_norm, p.num_heads, next, parts[0]);
    const float factor = extra.temperature_scale != 0 ? temperature(extra, token) : 1.0f;
    for (int head = warp; head < p.num_heads; head += kTokenWarps) {
      float* row = next + head * p.head_dim;
      scale_row(factor, p.head_dim, row, lane);
      store_activation(static_cast<T*>(p.q_out) + token * p.q_out_row_stride + head * p.head_dim, p.head_dim,
                       by_four, row, lane);
    }
    next += whole_fours(n);
  }
  if (p.k == nullptr || !placed(p, place, token, true, threadIdx.x == 0) || place.slot < 0) return;
  const int n = p.num_kv_heads * p.head_dim;
  load_heads(static_cast<const T*>(p.k) + token * p.k_row_stride, n, next);
  prepare(p.k_norm, p.num_kv_heads, next, parts[1]);
  for (int head = warp; head < p.num_kv_heads; head += kTokenWarps) {
    store_k(p, place.slot, head, next + head * p.head_dim, lane);
    copy_v<T>(p, token, place.slot, head, by_four, next + whole_fours(n) + warp * p.v_head_dim, lane);
    __syncwarp();  // the next head's v takes the place of this one's
  }
}

__global__ void rope_rows_kernel(const double* frequencies, int pairs, double factor,
                                 const int32_t* positions, int64_t count, float* cos, float* sin) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  grid_launch_dependents();
  grid_dependency_wait();
  if (i >= count) return;
  const double angle = positions[i / pairs] * frequencies[i % pairs];
  double s, c;
  sincos(angle, &s, &c);
  cos[i] = static_cast<float>(factor * c);
  sin[i] = static_cast<float>(factor * s);
}

std::string str(int64_t x) {
  return std::to_string(x);
}

bool aligned_by_four(const void* data, int64_t stride, DType dtype) {
  return data == nullptr ||
         (stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % (4 * size_of(dtype)) == 0);
}

}  // namespace

Status launch_append(const AppendParams& p, CudaStream& stream) {
  NormRopeAppendParams params;
  params.append = p;
  return launch_norm_rope_append(params, stream);
}

Status launch_norm_rope_append(const NormRopeAppendParams& params, CudaStream& stream) {
  const AppendParams& p = params.append;
  FOVEA_RETURN_IF_ERROR(check_append(p));
  if (params.temperature_scale != 0 && params.positions == nullptr)
    return invalid("norm_rope_append: a temperature needs positions");
  const int64_t each = (p.q == nullptr ? 0 : p.num_heads) + (p.k == nullptr ? 0 : 2 * p.num_kv_heads);
  const int64_t blocks = (p.tokens * each + kWarps - 1) / kWarps;
  if (blocks == 0) return {};
  if (blocks > INT32_MAX) return invalid("append: " + str(p.tokens) + " tokens are too many for one launch");
  const bool by_four =
      p.head_dim % 4 == 0 && p.v_head_dim % 4 == 0 && aligned_by_four(p.q, p.q_row_stride, p.dtype) &&
      aligned_by_four(p.k, p.k_row_stride, p.dtype) && aligned_by_four(p.v, p.v_row_stride, p.dtype) &&
      aligned_by_four(p.q_out, p.q_out_row_stride, p.dtype);
  const Extra extra{params.norm_after_rope, params.temperature_scale, params.temperature_floor,
                    params.positions};
  const auto with_type = [&](auto f) {
    if (p.dtype == DType::f32) return f(float{});
    return p.dtype == DType::f16 ? f(__half{}) : f(__nv_bfloat16{});
  };
  if (params.norm_over_heads && (p.q_norm.weight != nullptr || p.k_norm.weight != nullptr)) {
    const int64_t floats =
        (int64_t{p.num_heads} + p.num_kv_heads) * p.head_dim + int64_t{kTokenWarps} * p.v_head_dim + 8;
    const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
    if (bytes > kMaxTokenBytes)
      return invalid("norm_rope_append: a norm over " + str(p.num_heads) + " and " + str(p.num_kv_heads) +
                     " heads of " + str(p.head_dim) + " needs " + str(bytes) +
                     " bytes of shared memory; up to " + str(kMaxTokenBytes) + " are supported");
    return with_type([&](auto type) -> Status {
      const auto kernel = append_token_kernel<decltype(type)>;
      FOVEA_CUDA_TRY(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
      FOVEA_CUDA_TRY(launch_dependent(
          kernel, {static_cast<unsigned>(p.tokens), 32 * kTokenWarps, static_cast<size_t>(bytes)},
          stream.handle(), p, extra, by_four));
      return {};
    });
  }
  if (fits_in_lanes(p, by_four)) {
    cudaError_t code = cudaSuccess;
    if (with_type([&](auto type) { return launch_heads<decltype(type)>(p, extra, stream.handle(), code); })) {
      FOVEA_CUDA_TRY(code);
      return {};
    }
  }
  const int row_floats = whole_fours(p.head_dim > p.v_head_dim ? p.head_dim : p.v_head_dim);
  const bool with_extra = params.norm_after_rope || params.temperature_scale != 0;
  return with_type([&](auto type) -> Status {
    using T = decltype(type);
    const auto kernel = with_extra ? append_kernel<T, true> : append_kernel<T, false>;
    const size_t bytes = kWarps * static_cast<size_t>(row_floats) * sizeof(float);
    FOVEA_CUDA_TRY(launch_dependent(kernel, {static_cast<unsigned>(blocks), 32 * kWarps, bytes},
                                    stream.handle(), p, extra, by_four, row_floats));
    return {};
  });
}

Status launch_latent_append(const LatentAppendParams& p, CudaStream& stream) {
  if (p.tokens == 0) return {};
  const int elements = p.rank + p.rope;
  if (p.tokens < 0 || p.heads < 1 || p.rank < 1 || p.rope < 2 || p.rope % 2 != 0 ||
      p.rope / 2 > kLatentThreads || elements > kMaxRowElements)
    return invalid("latent_append: " + str(p.tokens) + " tokens, " + str(p.heads) + " heads, records of " +
                   str(p.rank) + " and " + str(p.rope) +
                   " elements; the second must be even, and both at most " + str(kMaxRowElements) +
                   " together");
  if (p.q == nullptr || p.q_out == nullptr || p.record == nullptr || p.norm.weight == nullptr ||
      p.cos == nullptr || p.sin == nullptr || p.slots == nullptr || p.kv.k == nullptr ||
      p.kv.form != KvForm::strided)
    return invalid("latent_append: queries, records, norm, rotation, slots and a strided cache are needed");
  if (p.kv.dtype == KvCacheDType::fp8_ds_mla &&
      (!is_ds_mla(p.rank, p.rope) || reinterpret_cast<uintptr_t>(p.kv.k) % 4 != 0 ||
       p.kv.k_page_stride % 4 != 0 || p.kv.k_slot_stride % 4 != 0))
    return invalid("latent_append: records of fp8_ds_mla have a latent of a multiple of " + str(kDsMlaGroup) +
                   " elements, not " + str(p.rank) + ", and begin at multiples of 4 bytes");
  const auto launch = [&](auto type) -> Status {
    FOVEA_CUDA_TRY(launch_dependent(latent_kernel<decltype(type)>,
                                    {static_cast<unsigned>(p.tokens), kLatentThreads}, stream.handle(), p));
    return {};
  };
  if (p.dtype == DType::f32) return launch(float{});
  return p.dtype == DType::f16 ? launch(__half{}) : launch(__nv_bfloat16{});
}

Status launch_rope_rows(const double* frequencies, int pairs, double factor, const int32_t* positions,
                        int count, float* cos, float* sin, CudaStream& stream) {
  constexpr int kThreads = 256;
  const int64_t total = int64_t{pairs} * count;
  if (pairs < 0 || count < 0 ||
      (total > 0 && (frequencies == nullptr || positions == nullptr || cos == nullptr || sin == nullptr)))
    return invalid("rope_rows: " + str(count) + " positions of " + str(pairs) + " pairs need arrays");
  if (total == 0) return {};
  FOVEA_CUDA_TRY(launch_dependent(rope_rows_kernel,
                                  {static_cast<unsigned>((total + kThreads - 1) / kThreads), kThreads},
                                  stream.handle(), frequencies, pairs, factor, positions, total, cos, sin));
  return {};
}

}  // namespace fovea::cuda
