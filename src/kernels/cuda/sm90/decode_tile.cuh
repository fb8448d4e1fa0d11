#pragma once
// The arithmetic of the decode kernel: one warp's queries, scores, running softmax and O.
#include "kernels/cuda/sm80/finish.cuh"
#include "kernels/cuda/sm80/widen.cuh"
#include "kernels/cuda/sm90/decode_policy.h"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm90 {

using sm80::finite_max;
using sm80::kLog2e;

/// Which keys, columns and rows are a consumer warp's.
template <class P>
struct WarpPlace {
  int lane, group, part, row_tile;
  __device__ WarpPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    lane = static_cast<int>(threadIdx.x) % 32;
    group = warp / (P::kValueParts * P::kRowTiles);
    part = warp / P::kRowTiles % P::kValueParts;
    row_tile = warp % P::kRowTiles;
  }
};

/// 2^(exponent of x) / 2^14, and its inverse: dividing a row by the first brings its largest element, x, to
/// [2^14, 2^15), whence fp16 is exact for bf16 elements down to 2^-28 of it. 1 for 0, and for NaN and
/// infinity, which stay.
__device__ __forceinline__ float2 fp16_range(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23 & 0xff);
  if (exponent == 0 || exponent == 0xff) return make_float2(1.0f, 1.0f);
  const int shift = min(max(exponent - 127 - 14, -126), 126);
  return make_float2(__uint_as_float(static_cast<unsigned>(127 + shift) << 23),
                     __uint_as_float(static_cast<unsigned>(127 - shift) << 23));
}

/// The query fragments of a warp's 16 rows; rows past the sequence are 0. A lane's register of 8-bit keys
/// holds 4 neighbours of D, which widen to the two halves of an mma's k; so for them its queries are 4
/// neighbours too.
template <class P>
struct DecodeQuery {
  static constexpr uint32_t kQueryBarrier = 4;
  static constexpr bool kToHalf = !std::is_same_v<typename P::Q, typename P::Compute>;

  uint32_t a[P::kQueryShared ? 1 : P::kD / 16][4];
  uint32_t shared = 0;
  float factor[2] = {1.0f, 1.0f};  ///< what rows g and g + 8 were divided by

  static __device__ const typename P::Q* query_row(const AttentionParams& p, const WorkItem& item,
                                                   const sm80::RowContext& r) {
    return static_cast<const typename P::Q*>(p.q) +
           static_cast<int64_t>(item.q_first + r.row) * p.q_row_stride +
           static_cast<int64_t>(r.head) * p.head_dim;
  }
  static __device__ float larger(float top, uint32_t pair) {
    const float2 x = unpack<typename P::Q>(pair);
    return fmaxf(top, fmaxf(fabsf(x.x), fabsf(x.y)));
  }
  static __device__ uint32_t to_half(uint32_t pair, float by) {
    const float2 x = unpack<typename P::Q>(pair);
    return pack<__half>(x.x * by, x.y * by);
  }

  __device__ void load(const AttentionParams& p, const WorkItem& item, int head, const WarpPlace<P>& place,
                       char* tile) {
    if constexpr (P::kQueryShared) {
      load_shared(p, item, head, place, tile);
    } else {
      const int g = place.lane / 4, q = place.lane % 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const sm80::RowContext r =
            sm80::row_context(p, item, item.row_first + place.row_tile * 16 + h * 8 + g, head);
        const auto* row = query_row(p, item, r);
        const bool valid = r.row < item.n_q;
#pragma unroll
        for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = 16 * k + (P::kEightBit ? 4 * q + 2 * e : 2 * q + 8 * e);
            a[k][2 * e + h] = valid ? __ldcg(reinterpret_cast<const unsigned*>(row + d)) : 0u;
          }
        if constexpr (kToHalf) {
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
  }

  /// Through shared memory [kRows, D], where a query of 8-bit keys has words 2 i and 2 i + 1 of 16 dims at i
  /// and 4 + i; then the rows' factors.
  __device__ void load_shared(const AttentionParams& p, const WorkItem& item, int head,
                              const WarpPlace<P>& place, char* tile) {
    named_barrier_sync(kQueryBarrier, P::kConsumers);  // the last queries have been read
    constexpr int kLanes = 4;                          // of a row, neighbours in a warp
    float* const factors = reinterpret_cast<float*>(tile + P::kRows * P::QTile::kPitch);
    for (int i = static_cast<int>(threadIdx.x); i < P::kRows * kLanes; i += P::kConsumers) {
      const int row = i / kLanes;
      const sm80::RowContext r = sm80::row_context(p, item, item.row_first + row, head);
      const auto* from = reinterpret_cast<const unsigned*>(query_row(p, item, r));
      const int words = r.row < item.n_q ? P::kD / 2 : 0;
      float2 range = make_float2(1.0f, 1.0f);
      if constexpr (kToHalf) {
        float top = 0;
        for (int word = i % kLanes; word < words; word += kLanes)
          top = larger(top, __ldcg(from + word));
        range = fp16_range(quad_max(top));
      }
      for (int word = i % kLanes; word < P::kD / 2; word += kLanes) {
        unsigned value = word < words ? __ldcg(from + word) : 0u;
        if constexpr (kToHalf) value = to_half(value, range.y);
        const int at = P::kEightBit ? word / 8 * 8 + word % 2 * 4 + word % 8 / 2 : word;
        *reinterpret_cast<unsigned*>(tile + P::QTile::offset(row, at / 4) + at % 4 * 4) = value;
      }
      if (i % kLanes == 0) factors[row] = range.x;
    }
    named_barrier_sync(kQueryBarrier, P::kConsumers);
    shared = shared_address(tile) + place.row_tile * 16 * P::QTile::kPitch;
    const int g = place.row_tile * 16 + place.lane / 4;
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

/// The keys [first, last) that a row sees, of masks that leave an interval.
struct KeyInterval {
  int first, last;
};
__device__ inline KeyInterval seen_keys(const MaskParams& m, const WorkItem& item, int position) {
  KeyInterval seen{0, item.n_k};
  if (m.causal) seen.last = min(seen.last, position + 1);
  if (m.window_right >= 0 && m.window_right < seen.last - position) seen.last = position + m.window_right + 1;
  if (m.window_left >= 0) seen.first = max(seen.first, position - m.window_left);
  if (m.chunk > 0) {
    const int begin = sm80::floor_divide(position, m.chunk) * m.chunk;
    seen.first = max(seen.first, begin);
    if (m.chunk < seen.last - begin) seen.last = begin + m.chunk;
  }
  return seen;
}

template <class P>
struct DecodeTile {
  static constexpr int kN = P::kWarpKeys / 8;  ///< groups of 8 keys

  float o[P::kPartDv / 8][4];
  float maximum[2], sum[2];
  KeyInterval seen[2];  ///< by rows g and g + 8
  KeyInterval safe;     ///< by every row of the warp
  uint32_t k_at, v_at;  ///< of this lane's row, in a tile

  __device__ explicit DecodeTile(const WarpPlace<P>& place) {
    const auto lane = static_cast<unsigned>(place.lane);
    const auto key = static_cast<unsigned>(place.group * P::kWarpKeys);
    k_at = P::KTile::offset(key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    v_at = P::VTile::offset(
        key + lane % 16,
        lane / 16 + static_cast<unsigned>(place.part * (P::VTile::kChunks / P::kValueParts)));
  }

  /// For the rows of an item's tile.
  __device__ void rows(const AttentionParams& p, const WorkItem& item, const WarpPlace<P>& place) {
    const int shift = item.n_k - item.n_q;
    safe = {0, INT32_MAX};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int packed = item.row_first + place.row_tile * 16 + h * 8 + place.lane / 4;
      seen[h] = seen_keys(p.mask, item, min(p.group.quotient(packed), item.n_q - 1) + shift);
      safe.first = max(safe.first, seen[h].first), safe.last = min(safe.last, seen[h].last);
    }
    safe.first = __reduce_max_sync(~0u, safe.first);
    safe.last = __reduce_min_sync(~0u, safe.last);
  }

  __device__ void reset() {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      maximum[h] = -INFINITY, sum[h] = 0;
#pragma unroll
    for (int i = 0; i < P::kPartDv / 2; ++i)
      o[i / 4][i % 4] = 0;
  }

  /// This warp's keys, from key0 on, of the tile at k_tile and v_tile.
  __device__ void step(const AttentionParams& p, const WorkItem& item, const DecodeQuery<P>& query,
                       uint32_t k_tile, uint32_t v_tile, int key0) {
    if (key0 >= item.key_last || key0 + P::kWarpKeys <= item.key_low) return;
    float s[kN][4] = {};
    scores(s, query, k_tile + k_at);
    const float scale = p.scale * kLog2e;
    float scales[2] = {scale * query.factor[0], scale * query.factor[1]};
    if (p.mask.softcap > 0.0f) {
      cap(s, p, query);
      scales[0] = scales[1] = 1.0f;
    }
    if (key0 + P::kWarpKeys > min(safe.last, item.key_last) || key0 < safe.first)
      mask(s, item.key_last, key0);
    softmax(s, scales);
    values(s, v_tile + v_at);
  }

  __device__ void scores(float (&s)[kN][4], const DecodeQuery<P>& query, uint32_t from) const {
    if constexpr (!P::kEightBit) {
#pragma unroll
      for (int k = 0; k < P::kD / 16; ++k) {
        uint32_t a[4];
        query.fragment(a, k);
#pragma unroll
        for (int n = 0; n < kN / 2; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, P::KTile::moved(from, 2 * k) + n * 16 * P::KTile::kPitch);
          Mma<typename P::Compute>::k16(s[2 * n], a, b[0], b[1]);
          Mma<typename P::Compute>::k16(s[2 * n + 1], a, b[2], b[3]);
        }
      }
    } else {
      // A chunk is the 16 dims of one mma.
#pragma unroll
      for (int k = 0; k < P::kD / 16; k += 2) {
        uint32_t a[2][4];
        query.fragment(a[0], k);
        query.fragment(a[1], k + 1);
#pragma unroll
        for (int n = 0; n < kN / 2; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, P::KTile::moved(from, k) + n * 16 * P::KTile::kPitch);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t wide[2];
            sm80::widen<P::kKv, typename P::Compute>(wide, b[i]);
            Mma<typename P::Compute>::k16(s[2 * n + i / 2], a[i % 2], wide[0], wide[1]);
          }
        }
      }
    }
  }

  /// Soft cap: scores in log2 units.
  __device__ void cap(float (&s)[kN][4], const AttentionParams& p, const DecodeQuery<P>& query) const {
    const float by = 2.0f * kLog2e * p.scale / p.mask.softcap;
#pragma unroll
    for (int i = 0; i < 4 * kN; ++i) {
      // tanh(x) = 1 - 2 / (e^(2x) + 1): saturates at both ends without an overflow to NaN.
      const float e = exp2_approx(s[i / 4][i % 4] * by * query.factor[i / 2 % 2]);
      s[i / 4][i % 4] = p.mask.softcap * kLog2e * (1.0f - __fdividef(2.0f, e + 1.0f));
    }
  }

  __device__ void mask(float (&s)[kN][4], int key_last, int key0) const {
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 4 * kN; ++i) {
      const int key = key0 + i / 4 * 8 + 2 * q + i % 2, h = i / 2 % 2;
      if (key < seen[h].first || key >= min(seen[h].last, key_last)) s[i / 4][i % 4] = -INFINITY;
    }
  }

  /// Scores -> probabilities, unrounded; O and the sums are brought to the new maximum.
  __device__ void softmax(float (&s)[kN][4], const float (&scales)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < kN; ++n)
        top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      top = fmaxf(maximum[h], quad_max(top) * scales[h]);
      const float base = finite_max(top);
      if (top > maximum[h]) {
        const float f = exp2_approx(maximum[h] - base);
        maximum[h] = top;
        sum[h] *= f;
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j) {
          o[j][2 * h] *= f;
          o[j][2 * h + 1] *= f;
        }
      }
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          s[n][2 * h + e] = exp2_approx(fmaf(s[n][2 * h + e], scales[h], -base));
          sum[h] += s[n][2 * h + e];
        }
    }
  }

  __device__ void values(const float (&s)[kN][4], uint32_t from) {
#pragma unroll
    for (int n = 0; n < P::kWarpKeys / 16; ++n) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = pack<typename P::Compute>(s[2 * n + i / 2][i % 2 * 2], s[2 * n + i / 2][i % 2 * 2 + 1]);
      const uint32_t rows = from + n * 16 * P::VTile::kPitch;
      if constexpr (!P::kEightBit) {
#pragma unroll
        for (int j = 0; j < P::kPartDv / 16; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, P::VTile::moved(rows, 2 * j));
          Mma<typename P::Compute>::k16(o[2 * j], a, b[0], b[1]);
          Mma<typename P::Compute>::k16(o[2 * j + 1], a, b[2], b[3]);
        }
      } else {
        // Transposed pairs of bytes: a register holds dims 2g, 2g + 1 of keys 2q and 2q + 1. Brought together
        // by dim they are the fragments of the even dims of a chunk and of its odd ones.
#pragma unroll
        for (int j = 0; j < P::kPartDv / 32; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, P::VTile::moved(rows, 2 * j));
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            uint32_t low[2], high[2];
            sm80::widen<P::kKv, typename P::Compute>(low, __byte_perm(b[2 * c], 0, 0x3120));
            sm80::widen<P::kKv, typename P::Compute>(high, __byte_perm(b[2 * c + 1], 0, 0x3120));
            Mma<typename P::Compute>::k16(o[4 * j + 2 * c], a, low[0], high[0]);
            Mma<typename P::Compute>::k16(o[4 * j + 2 * c + 1], a, low[1], high[1]);
          }
        }
      }
    }
  }
};

}  // namespace fovea::cuda::sm90
