#pragma once
// Appending heads that a warp can hold in registers: a CTA takes one token, whose place and rotation its
// warps find once, and each warp several heads, which it loads together. Included by append.cu alone.
#include "kernels/cuda/append/store.cuh"

namespace fovea::cuda {
namespace {

constexpr int kHeadWarps = 8;
constexpr int kHeadBatch = 3;  // heads that a warp loads together

/// A lane's elements of a head: runs of four, at 4 * lane + 128 * v.
template <int kVec>
struct LaneHead {
  float x[kVec][4];
};

template <class T>
struct alignas(4 * sizeof(T)) RawFour {
  T x[4];
};

/// A lane's part of a token's rotation. Element i becomes x[i] * c + x[partner] * s.
template <int kVec>
struct LaneRotation {
  float c[kVec][4], s[kVec][4];
  int partner[kVec];  // element; of the first of the four. Below 0: not rotated

  __device__ LaneRotation(const RopeParams& rope, int64_t position, int lane) {
    const int half = rope.dim / 2;
    const int64_t table = position * half;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const int i = 4 * lane + 128 * v;
      partner[v] = -1;
      if (i >= rope.dim) continue;
      if (rope.interleaved) {  // partners are neighbours
        partner[v] = i;
        const float2 cos = *reinterpret_cast<const float2*>(rope.cos + table + i / 2);
        const float2 sin = *reinterpret_cast<const float2*>(rope.sin + table + i / 2);
        c[v][0] = c[v][1] = cos.x, c[v][2] = c[v][3] = cos.y;
        s[v][0] = -sin.x, s[v][1] = sin.x, s[v][2] = -sin.y, s[v][3] = sin.y;
      } else {
        const bool first = i < half;
        partner[v] = first ? i + half : i - half;
        const float4 cos = *reinterpret_cast<const float4*>(rope.cos + table + (first ? i : i - half));
        const float4 sin = *reinterpret_cast<const float4*>(rope.sin + table + (first ? i : i - half));
        c[v][0] = cos.x, c[v][1] = cos.y, c[v][2] = cos.z, c[v][3] = cos.w;
        s[v][0] = first ? -sin.x : sin.x, s[v][1] = first ? -sin.y : sin.y;
        s[v][2] = first ? -sin.z : sin.z, s[v][3] = first ? -sin.w : sin.w;
      }
    }
  }

  /// The products and the sum are each rounded, as in rotate_row().
  __device__ void apply(bool interleaved, LaneHead<kVec>& head) const {
    LaneHead<kVec> other;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const int at = max(partner[v], 0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (interleaved) {
          other.x[v][j] = head.x[v][j ^ 1];
        } else {
          other.x[v][j] = __shfl_sync(kAll, head.x[0][j], at % 128 / 4);
          if constexpr (kVec > 1) {
            const float far = __shfl_sync(kAll, head.x[1][j], at % 128 / 4);
            if (at >= 128) other.x[v][j] = far;
          }
        }
      }
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (partner[v] >= 0)
          head.x[v][j] = __fadd_rn(__fmul_rn(head.x[v][j], c[v][j]), __fmul_rn(other.x[v][j], s[v][j]));
  }
};

/// In the order of norm_row().
template <int kVec>
__device__ void norm_head(const HeadNorm& norm, int n, LaneHead<kVec>& head, int lane) {
  if (norm.weight == nullptr) return;
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < kVec; ++v)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum = fmaf(head.x[v][j], head.x[v][j], sum);  // 0 beyond n
  const float by = norm_factor(norm, sum, n);
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    const int i = 4 * lane + 128 * v;
    if (i >= n) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      head.x[v][j] = __fmul_rn(__fmul_rn(head.x[v][j], by), norm.weight[i + j]);
  }
}

template <int kVec>
__device__ void store_head(void* data, float* scales, KvCacheDType dtype, const RowPlace& place, float scale,
                           int n, const LaneHead<kVec>& head, int lane) {
  if (scales != nullptr) {
    float most = 0.0f;
    bool finite = true;
#pragma unroll
    for (int v = 0; v < kVec; ++v)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        most = fmaxf(most, fabsf(head.x[v][j]));
        finite = finite && fabsf(head.x[v][j]) < INFINITY;
      }
    scale = token_scale(most, finite);
    if (lane == 0) scales[place.scale_at] = scale;
    if (scale != scale) return;  // with a NaN scale, any code reads as NaN
  }
  const auto address = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(place.at) * size_of(dtype);
  const bool by_four = place.run % 4 == 0 && place.run_stride % 4 == 0 && place.at % 4 == 0 &&
                       address % (4 * size_of(dtype)) == 0;
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    const int i = 4 * lane + 128 * v;
    if (i >= n) continue;
    uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      bits[j] = stored_bits(head.x[v][j], scale, dtype);
    if (by_four) {
      store_four(data, place.element(i), dtype, bits);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        store_element(data, place.element(i + j), dtype, bits[j]);
    }
  }
}

template <class T, int kVec>
__global__ void __launch_bounds__(32 * kHeadWarps, kVec == 1 ? 3 : 2)
    append_heads_kernel(const __grid_constant__ AppendParams p, const __grid_constant__ Extra extra) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t token = blockIdx.x;
  const int q_heads = p.q == nullptr ? 0 : p.num_heads, kv_heads = p.k == nullptr ? 0 : p.num_kv_heads;
  const int heads = q_heads + 2 * kv_heads;
  const TokenPlace place = place_of(p, token, lane);
  const bool has_q = placed(p, place, token, false, threadIdx.x == 0 && q_heads > 0);
  const bool has_kv = placed(p, place, token, true, threadIdx.x == 0 && kv_heads > 0) && place.slot >= 0;
  if (!has_q && !has_kv) return;
  const LaneRotation<kVec> rotation(p.rope, place.position, lane);
  const float factor = extra.temperature_scale != 0 ? temperature(extra, token) : 1.0f;
  const int64_t slot = max(place.slot, int64_t{0});

  for (int first = warp; first < heads; first += kHeadBatch * kHeadWarps) {
    RawFour<T> raw[kHeadBatch][kVec];
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b) {
      const int head = first + b * kHeadWarps;
      const bool is_q = head < q_heads, is_v = head >= q_heads + kv_heads;
      if (head >= heads || !(is_q ? has_q : has_kv)) continue;
      const int n = is_v ? p.v_head_dim : p.head_dim;
      const auto* in = static_cast<const T*>(is_q   ? p.q
                                             : is_v ? p.v
                                                    : p.k) +
                       token * (is_q   ? p.q_row_stride
                                : is_v ? p.v_row_stride
                                       : p.k_row_stride) +
                       (head - (is_q   ? 0
                                : is_v ? q_heads + kv_heads
                                       : q_heads)) *
                           n;
#pragma unroll
      for (int v = 0; v < kVec; ++v)
        if (4 * lane + 128 * v < n) raw[b][v] = *reinterpret_cast<const RawFour<T>*>(in + 4 * lane + 128 * v);
    }
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b) {
      const int head = first + b * kHeadWarps;
      const bool is_q = head < q_heads, is_v = head >= q_heads + kv_heads;
      if (head >= heads || !(is_q ? has_q : has_kv)) continue;
      const int n = is_v ? p.v_head_dim : p.head_dim;
      LaneHead<kVec> x;
#pragma unroll
      for (int v = 0; v < kVec; ++v)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          x.x[v][j] = 4 * lane + 128 * v < n ? to_float(raw[b][v].x[j]) : 0.0f;
      if (is_v) {
        const int of = head - q_heads - kv_heads;
        store_head(const_cast<void*>(p.kv.v), const_cast<float*>(p.kv.v_scales), p.kv.dtype,
                   v_place(p.kv, slot, of, n), p.kv.v_scale, n, x, lane);
        continue;
      }
      const HeadNorm& norm = is_q ? p.q_norm : p.k_norm;
      if (!extra.norm_after_rope) norm_head(norm, n, x, lane);
      rotation.apply(p.rope.interleaved, x);
      if (extra.norm_after_rope) norm_head(norm, n, x, lane);
      if (!is_q) {
        const int of = head - q_heads;
        store_head(const_cast<void*>(p.kv.k), const_cast<float*>(p.kv.k_scales), p.kv.dtype,
                   k_place(p.kv, slot, of, n), p.kv.k_scale, n, x, lane);
        continue;
      }
      T* out = static_cast<T*>(p.q_out) + token * p.q_out_row_stride + head * n;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        if (4 * lane + 128 * v >= n) continue;
        RawFour<T> four;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          four.x[j] = rounded<T>(extra.temperature_scale != 0 ? __fmul_rn(x.x[v][j], factor) : x.x[v][j]);
        *reinterpret_cast<RawFour<T>*>(out + 4 * lane + 128 * v) = four;
      }
    }
  }
}

/// Whether the kernel above can: whole runs of four in heads, halves and tables.
bool fits_in_registers(const AppendParams& p, bool by_four) {
  const auto aligned = [](const float* table, int floats) {
    return reinterpret_cast<uintptr_t>(table) % (4 * static_cast<unsigned>(floats)) == 0;
  };
  const RopeParams& rope = p.rope;
  const bool rotates =
      rope.dim == 0 || (rope.interleaved ? rope.dim % 4 == 0 && aligned(rope.cos, 2) && aligned(rope.sin, 2)
                                         : rope.dim % 8 == 0 && aligned(rope.cos, 4) && aligned(rope.sin, 4));
  return by_four && rotates && p.head_dim <= 256 && p.v_head_dim <= 256;
}

}  // namespace
}  // namespace fovea::cuda
