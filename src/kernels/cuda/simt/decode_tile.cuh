#pragma once
// The arithmetic of the CUDA-core decode kernel, all in fp32: queries, scores, online softmax and O of one
// warp.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/simt/decode_loader.cuh"

namespace fovea::cuda::simt {

/// A WorkItem under one KV head.
struct DecodeWorkTile {
  WorkItem item;
  int head;
};
__device__ __forceinline__ DecodeWorkTile decode_work_tile(const AttentionParams& p, int work_index) {
  const int index = p.kv_heads.quotient(work_index);
  return {p.items[index], work_index - index * static_cast<int>(p.kv_heads.divisor)};
}

/// Converts the elements of 16 bytes; exact.
template <Keys Type, int N>
__device__ __forceinline__ void to_float(float (&x)[N], const uint4& chunk) {
  const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (Type == Keys::f16 || Type == Keys::bf16) {
      const float2 pair = Type == Keys::f16 ? unpack<__half>(words[w]) : unpack<__nv_bfloat16>(words[w]);
      x[2 * w] = pair.x, x[2 * w + 1] = pair.y;
    } else if constexpr (Type == Keys::int8) {
      float four[4];
      int8x4_to_float(four, words[w]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        x[4 * w + e] = four[e];
    } else {
      uint32_t half[2];
      if constexpr (Type == Keys::e4m3)
        e4m3x4_to<__half>(half, words[w]);
      else
        e5m2x4_to<__half>(half, words[w]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float2 pair = unpack<__half>(half[e]);
        x[4 * w + 2 * e] = pair.x, x[4 * w + 2 * e + 1] = pair.y;
      }
    }
  }
}

/// This lane's dims of the queries of a work tile; 0 past the sequence's rows and past D.
template <class P>
struct DecodeQuery {
  uint32_t words[P::kRows][P::kLaneDims / 2];

  /// Issues the loads.
  __device__ void load(const AttentionParams& p, const DecodeWorkTile& work, const LanePlace<P>& place) {
#pragma unroll
    for (int r = 0; r < P::kRows; ++r) {
      const RowContext row = row_context(p, work.item, work.item.row_first + r, work.head);
      const auto* from =
          reinterpret_cast<const uint16_t*>(p.q) + p.q_rows.offset(work.item.q_first + row.row, row.head);
#pragma unroll
      for (int w = 0; w < P::kLaneDims / 2; ++w) {
        const int d = (place.chunk + 2 * w / P::kChunk * 32) * P::kChunk + 2 * w % P::kChunk;
        const bool valid = row.row < work.item.n_q && d < p.head_dim;
        words[r][w] = valid ? __ldg(reinterpret_cast<const unsigned*>(from + d)) : 0u;
      }
    }
  }

  __device__ void to_floats(float (&q)[P::kRows][P::kLaneDims], bool half) const {
#pragma unroll
    for (int r = 0; r < P::kRows; ++r)
#pragma unroll
      for (int w = 0; w < P::kLaneDims / 2; ++w) {
        const float2 pair = half ? unpack<__half>(words[r][w]) : unpack<__nv_bfloat16>(words[r][w]);
        q[r][2 * w] = pair.x, q[r][2 * w + 1] = pair.y;
      }
  }
};

/// The keys that a row sees: [low, limit) and [sink_low, sink_limit).
struct RowKeys {
  int low, limit, sink_low, sink_limit;

  __device__ bool sees(int key) const {
    return (key >= low && key < limit) || (key >= sink_low && key < sink_limit);
  }
};

__device__ inline RowKeys row_keys(const AttentionParams& p, const WorkItem& item, const RowContext& row) {
  const MaskParams& m = p.mask;
  const int64_t at = row.position;
  int64_t first = 0, last = row.row < item.n_q ? item.key_last : 0;
  if (m.causal) last = min(last, at + 1);
  if (m.window_right >= 0) last = min(last, at + m.window_right + 1);
  if (m.chunk > 0) {
    first = static_cast<int64_t>(floor_divide(row.position, m.chunk)) * m.chunk;
    last = min(last, first + m.chunk);
  }
  RowKeys keys;
  keys.sink_low = static_cast<int>(max(first, int64_t{0}));
  if (m.window_left >= 0) first = max(first, at - m.window_left);
  keys.low = static_cast<int>(max(first, int64_t{0}));
  keys.limit = static_cast<int>(max(last, int64_t{0}));
  keys.sink_limit = m.window_left >= 0 ? min(m.sink_tokens, keys.limit) : 0;
  return keys;
}

template <class P>
struct DecodeTile {
  float o[P::kRows][P::kLaneDims] = {};  ///< of this lane's group's keys
  float row_max[P::kRows];               ///< the warp's maximum, or up to 2^8 below it; log2 units
  float row_sum[P::kRows] = {};          ///< over the keys whose scores this lane held

  __device__ DecodeTile() {
#pragma unroll
    for (int r = 0; r < P::kRows; ++r)
      row_max[r] = -INFINITY;
  }

  /// Processes this warp's keys from `key` on, in `stage` (this lane's 16 bytes of each load).
  __device__ void step(const AttentionParams& p, const DecodeWorkTile& work,
                       const float (&q)[P::kRows][P::kLaneDims], const RowKeys (&rows)[P::kRows],
                       const LanePlace<P>& place, const char* stage, int key) {
    float s[P::kRows][P::kGroupKeys];
    products(s, q, stage);
    float k_scale = 1.0f, v_scale = 1.0f;
    if (P::kEightBit && p.kv.k_scales != nullptr) {
      const char* scales = stage + 2 * P::kTileBytes - 12 * place.lane;
      k_scale = *reinterpret_cast<const float*>(scales);
      v_scale = *reinterpret_cast<const float*>(scales + 128);
    }
    reduce_scatter(s, place.lane);
    key += place.key();
#pragma unroll
    for (int r = 0; r < P::kRows; ++r) {
      const float dot = P::kEightBit ? s[r][0] * k_scale : s[r][0];
      s[r][0] = rows[r].sees(key) ? score_of(p, work, r, key, dot) : -INFINITY;
    }
    online_softmax(s);
    if (P::kEightBit) {
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
        s[r][0] *= v_scale;
    }
    values(s, place, stage + P::kTileBytes);
  }

 private:
  /// Computes this lane's share of the dot products of its group's keys with all rows.
  __device__ static void products(float (&s)[P::kRows][P::kGroupKeys],
                                  const float (&q)[P::kRows][P::kLaneDims], const char* k_tile) {
#pragma unroll
    for (int i = 0; i < P::kGroupKeys; ++i) {
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
        s[r][i] = 0.0f;
#pragma unroll
      for (int c = 0; c < P::kLaneChunks; ++c) {
        float x[P::kChunk];
        to_float<P::kKeys>(x, *reinterpret_cast<const uint4*>(k_tile + (i * P::kLaneChunks + c) * 512));
#pragma unroll
        for (int r = 0; r < P::kRows; ++r)
#pragma unroll
          for (int e = 0; e < P::kChunk; ++e)
            s[r][i] = fmaf(q[r][c * P::kChunk + e], x[e], s[r][i]);
      }
    }
  }

  /// Reduce-scatter over the lanes of a group: each lane ends with the sum of one key in s[.][0]
  /// (LanePlace::key). Lanes exchange half of their keys until one is left, which takes one shuffle a key
  /// instead of log2(lanes). Rows are interleaved to hide the latency of the shuffles.
  __device__ static void reduce_scatter(float (&s)[P::kRows][P::kGroupKeys], int lane) {
    int step = P::kLanes / 2;
#pragma unroll
    for (int n = P::kGroupKeys / 2; n > 0; n /= 2, step /= 2) {
      const bool upper = (lane & step) != 0;
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float give = upper ? s[r][j] : s[r][j + n], keep = upper ? s[r][j + n] : s[r][j];
          s[r][j] = keep + __shfl_xor_sync(~0u, give, step);
        }
    }
#pragma unroll
    for (; step > 0; step /= 2)
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
        s[r][0] += __shfl_xor_sync(~0u, s[r][0], step);
  }

  /// The score in log2 units from the dot product.
  __device__ static float score_of(const AttentionParams& p, const DecodeWorkTile& work, int r, int key,
                                   float dot) {
    const MaskParams& m = p.mask;
    if (m.softcap <= 0.0f && m.alibi_slopes == nullptr) return dot * (p.scale * kLog2e);
    float s = dot * p.scale;
    if (m.softcap > 0.0f) {
      // tanh(x) = 1 - 2 / (e^(2x) + 1): saturates at both ends without an overflow to NaN.
      const float e = exp2f(s * (2.0f * kLog2e) / m.softcap);
      s = m.softcap * (1.0f - 2.0f / (e + 1.0f));
    }
    if (m.alibi_slopes != nullptr) {
      const RowContext row = row_context(p, work.item, work.item.row_first + r, work.head);
      s -= row.slope * fabsf(static_cast<float>(row.position - key));
    }
    return s * kLog2e;
  }

  /// Scores -> probabilities relative to row_max. row_max is updated, and O and row_sum rescaled, only when a
  /// score exceeds it by more than 2^8: that takes a vote instead of the shuffles of a maximum. (Only a row's
  /// own scores decide.)
  __device__ void online_softmax(float (&s)[P::kRows][P::kGroupKeys]) {
    constexpr float kRescaleThresholdLog2 = 8.0f;
#pragma unroll
    for (int r = 0; r < P::kRows; ++r)
      if (__any_sync(~0u, s[r][0] > row_max[r] + kRescaleThresholdLog2)) update_row_max(r, s[r][0]);
#pragma unroll
    for (int r = 0; r < P::kRows; ++r) {
      s[r][0] = exp2_approx(s[r][0] - finite_max(row_max[r]));
      row_sum[r] += s[r][0];
    }
  }

  __device__ void update_row_max(int r, float score) {
    float top = score;
#pragma unroll
    for (int step = 16; step >= P::kSharers; step /= 2)
      top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(row_max[r], top);
    const float f = exp2_approx(row_max[r] - top);
    row_max[r] = top;
    row_sum[r] *= f;
#pragma unroll
    for (int d = 0; d < P::kLaneDims; ++d)
      o[r][d] *= f;
  }

  /// Adds the group's values weighted by their probabilities, which are s[r][0] of the keys' lanes.
  __device__ void values(const float (&s)[P::kRows][P::kGroupKeys], const LanePlace<P>& place,
                         const char* v_tile) {
#pragma unroll 4
    for (int i = 0; i < P::kGroupKeys; ++i) {
      float probability[P::kRows];
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
        probability[r] = __shfl_sync(~0u, s[r][0], place.owner(i));
#pragma unroll
      for (int c = 0; c < P::kLaneChunks; ++c) {
        float x[P::kChunk];
        to_float<P::kKeys>(x, *reinterpret_cast<const uint4*>(v_tile + (i * P::kLaneChunks + c) * 512));
#pragma unroll
        for (int r = 0; r < P::kRows; ++r)
#pragma unroll
          for (int e = 0; e < P::kChunk; ++e)
            o[r][c * P::kChunk + e] = fmaf(probability[r], x[e], o[r][c * P::kChunk + e]);
      }
    }
  }
};

}  // namespace fovea::cuda::simt
