#pragma once
// The arithmetic of the decode kernel: queries, scores, online softmax and O of one warp.
#include "kernels/cuda/common/mask.cuh"
#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm80 {

/// A WorkItem under one KV head.
struct DecodeWorkTile {
  WorkItem item;
  int head;
};
__device__ __forceinline__ DecodeWorkTile decode_work_tile(const AttentionParams& p, int work_index) {
  const int index = p.kv_heads.quotient(work_index);
  return {p.items[index], work_index - index * static_cast<int>(p.kv_heads.divisor)};
}

/// 2^(exponent of x) / 2^14, and its inverse. Dividing a row by the first brings its largest element, x, to
/// [2^14, 2^15), so that fp16 represents bf16 elements down to 2^-28 of it exactly. 1 for 0, NaN and
/// infinity, which stay as they are.
__device__ __forceinline__ float2 fp16_range(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23 & 0xff);
  if (exponent == 0 || exponent == 0xff) return make_float2(1.0f, 1.0f);
  const int shift = min(max(exponent - 127 - 14, -126), 126);
  return make_float2(__uint_as_float(static_cast<unsigned>(127 + shift) << 23),
                     __uint_as_float(static_cast<unsigned>(127 - shift) << 23));
}

/// The query fragments of a work tile; rows past the sequence are 0. A lane's register of 8-bit keys holds 4
/// consecutive dims, which widen to the two halves of K of an mma; so its queries are 4 consecutive dims too.
template <class P>
struct DecodeQuery {
  static constexpr bool kToHalf = !std::is_same_v<typename P::Q, typename P::Compute>;

  uint32_t a[P::kQueryShared ? 1 : P::kD / 16][4];
  uint32_t shared = 0;
  float factor[2] = {1.0f, 1.0f};  ///< divisors of rows g and g + 8

  /// Issues the loads of the queries; call finish() before they are used.
  __device__ void load(const AttentionParams& p, const DecodeWorkTile& work, char* tile) {
    if constexpr (P::kQueryShared) {
      load_shared(p, work, tile);
      return;
    }
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowContext r = row_context(p, work.item, work.item.row_first + h * 8 + g, work.head);
      const auto* row = query_row(p, work, r);
#pragma unroll
      for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = 16 * k + (P::kEightBit ? 4 * q + 2 * e : 2 * q + 8 * e);
          const bool valid = r.row < work.item.n_q && d < p.head_dim;
          a[k][2 * e + h] = valid ? __ldg(reinterpret_cast<const unsigned*>(row + d)) : 0u;
        }
    }
  }

  __device__ void finish() {
    if constexpr (kToHalf && !P::kQueryShared) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = 0;
#pragma unroll
        for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            top = larger(top, a[k][2 * e + h]);
        const float2 range = fp16_range(quad_max(top));
        factor[h] = range.x;
#pragma unroll
        for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            a[k][2 * e + h] = to_half(a[k][2 * e + h], range.y);
      }
    }
  }

  static __device__ const typename P::Q* query_row(const AttentionParams& p, const DecodeWorkTile& work,
                                                   const RowContext& r) {
    return static_cast<const typename P::Q*>(p.q) + p.q_rows.offset(work.item.q_first + r.row, r.head);
  }
  static __device__ float larger(float top, uint32_t pair) {
    const float2 x = unpack<typename P::Q>(pair);
    return fmaxf(top, fmaxf(fabsf(x.x), fabsf(x.y)));
  }
  static __device__ uint32_t to_half(uint32_t pair, float by) {
    const float2 x = unpack<typename P::Q>(pair);
    return pack<__half>(x.x * by, x.y * by);
  }

  /// Loads the queries to shared memory [kRows, D], followed by the factors of the rows. For 8-bit keys,
  /// words 2 i and 2 i + 1 of each 16 dims are at i and 4 + i.
  __device__ void load_shared(const AttentionParams& p, const DecodeWorkTile& work, char* tile) {
    __syncthreads();           // the queries of the previous work tile have been read
    constexpr int kLanes = 4;  // consecutive lanes that load a row
    float* const factors = reinterpret_cast<float*>(tile + P::kRows * P::QTile::kPitch);
    for (int i = threadIdx.x; i < P::kRows * kLanes; i += P::kThreads) {
      const int row = i / kLanes;
      const RowContext r = row_context(p, work.item, work.item.row_first + row, work.head);
      const auto* from = reinterpret_cast<const unsigned*>(query_row(p, work, r));
      const int words = r.row < work.item.n_q ? p.head_dim / 2 : 0;
      float2 range = make_float2(1.0f, 1.0f);
      if constexpr (kToHalf) {
        float top = 0;
        for (int word = i % kLanes; word < words; word += kLanes)
          top = larger(top, __ldg(from + word));
        range = fp16_range(quad_max(top));
      }
      for (int word = i % kLanes; word < P::kD / 2; word += kLanes) {
        unsigned value = word < words ? __ldg(from + word) : 0u;
        if constexpr (kToHalf) value = to_half(value, range.y);
        const int place = P::kEightBit ? word / 8 * 8 + word % 2 * 4 + word % 8 / 2 : word;
        *reinterpret_cast<unsigned*>(tile + P::QTile::offset(row, place / 4) + place % 4 * 4) = value;
      }
      if (i % kLanes == 0) factors[row] = range.x;
    }
    __syncthreads();
    shared = shared_address(tile);
    const int g = threadIdx.x % 32 / 4;
    factor[0] = factors[g], factor[1] = factors[g + 8];
  }

  __device__ void fragment(uint32_t (&f)[4], int k) const {
    if constexpr (P::kQueryShared) {
      const unsigned lane = threadIdx.x % 32;
      ldmatrix_x4(f, shared + P::QTile::offset(lane % 16, 2 * k + lane / 16));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f[i] = a[k][i];
    }
  }
};

template <class P>
struct DecodeTile {
  static constexpr int kN = P::kWarpKeys / 8;  ///< groups of 8 keys

  float o[P::kPartDv / 8][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.0f, 0.0f};
  int position[2];   ///< positions of rows g and g + 8
  int limit[2];      ///< they see the keys below it (plain kernels)
  int unmasked_end;  ///< every row sees the keys below it

  __device__ DecodeTile(const AttentionParams& p, const DecodeWorkTile& work) {
    const WorkItem& item = work.item;
    const int g = threadIdx.x % 32 / 4, shift = item.n_k - item.n_q;
    unmasked_end = item.key_last;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      position[h] = p.group.quotient(item.row_first + h * 8 + g) + shift;
      limit[h] = p.mask.causal ? min(item.key_last, position[h] + 1) : item.key_last;
    }
    if (p.mask.causal) unmasked_end = min(unmasked_end, p.group.quotient(item.row_first) + shift + 1);
  }

  /// Processes this warp's keys of the tile that begins at `tile_key`, in the stage at `stage` of its ring.
  __device__ void step(const AttentionParams& p, const DecodeWorkTile& work, const DecodeQuery<P>& query,
                       uint32_t stage, int tile_key) {
    const int key0 = tile_key + static_cast<int>(threadIdx.x) / 32 / P::kValueParts * P::kWarpKeys;
    float s[kN][4] = {};
    scores(s, query, stage);
    const uint32_t scales = stage + P::kKBytes + P::kVBytes;
    const bool scaled = P::kEightBit && p.kv.k_scales != nullptr;
    if (scaled) multiply(s, scales, 1.0f);
    if constexpr (P::kGeneral && DecodeQuery<P>::kToHalf) {
#pragma unroll
      for (int i = 0; i < 4 * kN; ++i)
        s[i / 4][i % 4] *= query.factor[i % 4 / 2];
    }
    mask(s, p, work, key0);
    const float scale = P::kGeneral ? 1.0f : p.scale * kLog2e;
    online_softmax(s, scale * (P::kGeneral ? 1.0f : query.factor[0]),
                   scale * (P::kGeneral ? 1.0f : query.factor[1]));
    if (scaled) multiply(s, scales + P::kWarpKeys * 4, p.kv.v_gain);
    values(s, stage + P::kKBytes);
  }

  __device__ void scores(float (&s)[kN][4], const DecodeQuery<P>& query, uint32_t k_tile) const {
    const unsigned lane = threadIdx.x % 32;
    const unsigned row = lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
    if constexpr (!P::kEightBit) {
#pragma unroll
      for (int k = 0; k < P::kD / 16; ++k) {
        uint32_t a[4], b[4];
        query.fragment(a, k);
        ldmatrix_x4(b, k_tile + P::KTile::offset(row, 2 * k + chunk));
        Mma<typename P::Compute>::k16(s[0], a, b[0], b[1]);
        Mma<typename P::Compute>::k16(s[1], a, b[2], b[3]);
      }
    } else {
      // A chunk is the 16 dims of one mma.
#pragma unroll
      for (int k = 0; k < P::kD / 16; k += 2) {
        uint32_t a[2][4];
        query.fragment(a[0], k);
        query.fragment(a[1], k + 1);
#pragma unroll
        for (int n = 0; n < P::kWarpKeys / 16; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, k_tile + P::KTile::offset(n * 16 + row, k + chunk));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t wide[2];
            widen<P::kKv, typename P::Compute>(wide, b[i]);
            Mma<typename P::Compute>::k16(s[2 * n + i / 2], a[i % 2], wide[0], wide[1]);
          }
        }
      }
    }
  }

  /// Multiplies by `gain` and by the factors of the keys, fp32 in shared memory.
  __device__ void multiply(float (&s)[kN][4], uint32_t factors, float gain) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      float x, y;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(x), "=f"(y)
                   : "r"(factors + (n * 8 + threadIdx.x % 4 * 2) * 4)
                   : "memory");
      x *= gain, y *= gain;
      s[n][0] *= x, s[n][1] *= y, s[n][2] *= x, s[n][3] *= y;
    }
  }

  __device__ void mask(float (&s)[kN][4], const AttentionParams& p, const DecodeWorkTile& work,
                       int key0) const {
    const int q = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
    if constexpr (P::kGeneral) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const RowContext r = row_context(p, work.item, work.item.row_first + h * 8 + g, work.head);
#pragma unroll
        for (int i = 0; i < 2 * kN; ++i) {
          const int key = key0 + i / 2 * 8 + 2 * q + i % 2;
          float& x = s[i / 2][2 * h + i % 2];
          x = key < work.item.key_last ? general_score(p, work.item, r, key, x) : -INFINITY;
        }
      }
    } else if (key0 + P::kWarpKeys > unmasked_end) {
#pragma unroll
      for (int i = 0; i < 4 * kN; ++i)
        if (key0 + i / 4 * 8 + 2 * q + i % 2 >= limit[i / 2 % 2]) s[i / 4][i % 4] = -INFINITY;
    }
  }

  /// Scores -> unrounded probabilities. Rescales O and the row sums to the new row max.
  __device__ void online_softmax(float (&s)[kN][4], float scale0, float scale1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float scale = h == 0 ? scale0 : scale1;
      float top = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < kN; ++n)
        top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      top = fmaxf(row_max[h], quad_max(top) * scale);
      const float base = finite_max(top);
      const float f = exp2_approx(row_max[h] - base);
      row_max[h] = top;
      row_sum[h] *= f;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          s[n][2 * h + e] = exp2_approx(fmaf(s[n][2 * h + e], scale, -base));
          row_sum[h] += s[n][2 * h + e];
        }
      if (f != 1.0f) {
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j) {
          o[j][2 * h] *= f;
          o[j][2 * h + 1] *= f;
        }
      }
    }
  }

  __device__ void values(const float (&s)[kN][4], uint32_t v_tile) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < P::kWarpKeys / 16; ++n) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = pack<typename P::Compute>(s[2 * n + i / 2][i % 2 * 2], s[2 * n + i / 2][i % 2 * 2 + 1]);
      const unsigned row = n * 16 + lane % 16, chunk = lane / 16;
      if constexpr (!P::kEightBit) {
#pragma unroll
        for (int j = 0; j < P::kPartDv / 16; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, v_tile + P::VTile::offset(row, 2 * j + chunk));
          Mma<typename P::Compute>::k16(o[2 * j], a, b[0], b[1]);
          Mma<typename P::Compute>::k16(o[2 * j + 1], a, b[2], b[3]);
        }
      } else {
        // Transposed pairs of bytes: a register holds dims 2g and 2g + 1 of keys 2q and 2q + 1. Grouped by
        // dim they are the fragments of the even dims of a chunk and of its odd dims.
#pragma unroll
        for (int j = 0; j < P::kPartDv / 32; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, v_tile + P::VTile::offset(row, 2 * j + chunk));
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            uint32_t low[2], high[2];
            widen<P::kKv, typename P::Compute>(low, __byte_perm(b[2 * c], 0, 0x3120));
            widen<P::kKv, typename P::Compute>(high, __byte_perm(b[2 * c + 1], 0, 0x3120));
            Mma<typename P::Compute>::k16(o[4 * j + 2 * c], a, low[0], high[0]);
            Mma<typename P::Compute>::k16(o[4 * j + 2 * c + 1], a, low[1], high[1]);
          }
        }
      }
    }
  }
};

}  // namespace fovea::cuda::sm80
