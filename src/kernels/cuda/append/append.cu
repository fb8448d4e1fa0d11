#include <string>

#include "device/cuda/cuda_error.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/append/store.cuh"

namespace fovea::cuda {
namespace {

// A warp takes one row (token and head), held in shared memory as fp32.
constexpr int kWarps = 4;
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLeastTokenScale =
    0x1p-126f;  // as KvCache: a normal number, so that dividing by it loses nothing

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
#pragma unroll
      for (int j = 0; j < 4; ++j)
        row[4 * i + j] = to_float(four.x[j]);
    }
  } else {
    for (int i = lane; i < n; i += 32)
      row[i] = to_float(in[i]);
  }
  __syncwarp();
}

__device__ void norm_row(const HeadNorm& norm, int n, float* row, int lane) {
  if (norm.weight == nullptr) return;
  float sum = 0.0f;
  for (int i = lane; i < n; i += 32)
    sum = fmaf(row[i], row[i], sum);
  const float by = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(warp_sum(sum), static_cast<float>(n)) + norm.eps));
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
__device__ void store_activation(T* out, int n, const float* row, int lane);
template <>
__device__ void store_activation(float* out, int n, const float* row, int lane) {
  for (int i = lane; i < n; i += 32)
    out[i] = row[i];
}
template <>
__device__ void store_activation(__half* out, int n, const float* row, int lane) {
  for (int i = lane; i < n; i += 32)
    out[i] = __float2half_rn(row[i]);
}
template <>
__device__ void store_activation(__nv_bfloat16* out, int n, const float* row, int lane) {
  for (int i = lane; i < n; i += 32)
    out[i] = __float2bfloat16_rn(row[i]);
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
  // Four at a time where they are contiguous and aligned.
  const auto address = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(place.at) * size_of(dtype);
  if (n % 4 == 0 && place.run % 4 == 0 && place.run_stride % 4 == 0 && place.at % 4 == 0 &&
      address % (4 * size_of(dtype)) == 0) {
    for (int d = 4 * lane; d < n; d += 128) {
      uint32_t bits[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        bits[j] = stored_bits(row[d + j], scale, dtype);
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

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    append_kernel(const __grid_constant__ AppendParams p, bool by_four, int row_floats) {
  extern __shared__ float rows[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* row = rows + warp * row_floats;
  const int q_heads = p.q == nullptr ? 0 : p.num_heads, kv_heads = p.k == nullptr ? 0 : p.num_kv_heads;
  const int each = q_heads + 2 * kv_heads;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (task >= static_cast<int64_t>(p.tokens) * each) return;
  const int64_t token = task / each;
  int head = static_cast<int>(task % each);
  const TokenPlace place = place_of(p, token, lane);
  if (place.unassigned) return;
  if (place.beyond || (head >= q_heads && place.slot >= p.num_slots)) {
    if (lane == 0 && p.error != nullptr) atomicMax(p.error, static_cast<int32_t>(token) + 1);
    return;
  }
  if (head < q_heads) {
    load_row(static_cast<const T*>(p.q) + token * p.q_row_stride + head * p.head_dim, p.head_dim, by_four,
             row, lane);
    norm_row(p.q_norm, p.head_dim, row, lane);
    rotate_row(p.rope, place.position, row, lane);
    store_activation(static_cast<T*>(p.q_out) + token * p.q_out_row_stride + head * p.head_dim, p.head_dim,
                     row, lane);
    return;
  }
  head -= q_heads;
  const int64_t slot = place.slot;
  if (slot < 0) return;
  if (head < kv_heads) {
    load_row(static_cast<const T*>(p.k) + token * p.k_row_stride + head * p.head_dim, p.head_dim, by_four,
             row, lane);
    norm_row(p.k_norm, p.head_dim, row, lane);
    rotate_row(p.rope, place.position, row, lane);
    store_row(const_cast<void*>(p.kv.k), const_cast<float*>(p.kv.k_scales), p.kv.dtype,
              k_place(p.kv, slot, head, p.head_dim), p.kv.k_scale, p.head_dim, row, lane);
    return;
  }
  head -= kv_heads;
  load_row(static_cast<const T*>(p.v) + token * p.v_row_stride + head * p.v_head_dim, p.v_head_dim, by_four,
           row, lane);
  store_row(const_cast<void*>(p.kv.v), const_cast<float*>(p.kv.v_scales), p.kv.dtype,
            v_place(p.kv, slot, head, p.v_head_dim), p.kv.v_scale, p.v_head_dim, row, lane);
}

__global__ void rope_rows_kernel(const double* frequencies, int pairs, double factor,
                                 const int32_t* positions, int64_t count, float* cos, float* sin) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
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
  FOVEA_RETURN_IF_ERROR(check_append(p));
  const int64_t each = (p.q == nullptr ? 0 : p.num_heads) + (p.k == nullptr ? 0 : 2 * p.num_kv_heads);
  const int64_t blocks = (p.tokens * each + kWarps - 1) / kWarps;
  if (blocks == 0) return {};
  if (blocks > INT32_MAX) return invalid("append: " + str(p.tokens) + " tokens are too many for one launch");
  const bool by_four =
      p.head_dim % 4 == 0 && p.v_head_dim % 4 == 0 && aligned_by_four(p.q, p.q_row_stride, p.dtype) &&
      aligned_by_four(p.k, p.k_row_stride, p.dtype) && aligned_by_four(p.v, p.v_row_stride, p.dtype);
  const int row_floats = p.head_dim > p.v_head_dim ? p.head_dim : p.v_head_dim;
  const auto launch = [&](auto kernel) {
    kernel<<<static_cast<unsigned>(blocks), 32 * kWarps,
             kWarps* static_cast<size_t>(row_floats) * sizeof(float), stream.handle()>>>(p, by_four,
                                                                                         row_floats);
  };
  switch (p.dtype) {
    case DType::f32: launch(append_kernel<float>); break;
    case DType::f16: launch(append_kernel<__half>); break;
    case DType::bf16: launch(append_kernel<__nv_bfloat16>); break;
  }
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status launch_rope_rows(const double* frequencies, int pairs, double factor, const int32_t* positions,
                        int count, float* cos, float* sin, CudaStream& stream) {
  constexpr int kThreads = 256;
  const int64_t total = int64_t{pairs} * count;
  if (pairs < 0 || count < 0 ||
      (total > 0 && (frequencies == nullptr || positions == nullptr || cos == nullptr || sin == nullptr)))
    return invalid("rope_rows: " + str(count) + " positions of " + str(pairs) + " pairs need arrays");
  if (total == 0) return {};
  rope_rows_kernel<<<static_cast<unsigned>((total + kThreads - 1) / kThreads), kThreads, 0,
                     stream.handle()>>>(frequencies, pairs, factor, positions, total, cos, sin);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
