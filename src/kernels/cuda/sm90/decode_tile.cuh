#pragma once
// The arithmetic of the decode kernel: one warp's queries, scores, online softmax and O, with swapped
// operands: S^T = K Q^T and O^T = V^T P^T. Keys, and then the columns of V, are the 16 rows of a product and
// groups of 8 query rows its columns: as many groups are computed as there are rows, and which rows are
// beside a row in no way changes its bits.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/sm90/decode_policy.h"
#include "kernels/cuda/sm90/row_keys.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm90 {

/// The share of a consumer warp: keys of a tile (group) and columns of V (part).
template <class P>
struct WarpPlace {
  int lane, group, part;
  __device__ WarpPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    lane = static_cast<int>(threadIdx.x) % 32;
    group = warp / P::kValueParts;
    part = warp % P::kValueParts;
  }
};

/// 2^(exponent of x) / 2^14, and its inverse: dividing a row by the first brings its largest element, x, to
/// [2^14, 2^15), so fp16 represents bf16 elements exactly down to 2^-28 of it. 1 for 0, and for NaN and
/// infinity, which stay.
__device__ __forceinline__ float2 fp16_range(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23 & 0xff);
  if (exponent == 0 || exponent == 0xff) return make_float2(1.0f, 1.0f);
  const int shift = min(max(exponent - 127 - 14, -126), 126);
  return make_float2(__uint_as_float(static_cast<unsigned>(127 + shift) << 23),
                     __uint_as_float(static_cast<unsigned>(127 - shift) << 23));
}

/// The query fragments of a warp; rows past the end of the sequence are 0. A register of 8-bit keys holds 4
/// adjacent elements of D, which widen to the two halves of an mma's k. With 8-bit keys, a lane therefore has
/// 4 adjacent elements of Q too.
template <class P>
struct DecodeQuery {
  static constexpr uint32_t kQueryBarrier = 4;
  static constexpr bool kToHalf = !std::is_same_v<typename P::Q, typename P::Compute>;

  uint32_t a[P::kQueryShared ? 1 : P::kD / 16][P::kRowGroups][2];
  uint32_t shared = 0;
  float own_factor[P::kRowGroups][2];  ///< of rows 8 h + 2 q + e; unused with kQueryShared

  /// By which row 8 h + 2 q + e was divided.
  __device__ float factor(int h, int e) const {
    if constexpr (!kToHalf) return 1.0f;
    if constexpr (P::kQueryShared) {
      const auto row = static_cast<uint32_t>(8 * h + e) + threadIdx.x % 4 * 2;
      float by;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(by)
                   : "r"(shared + static_cast<uint32_t>(P::kRows * P::QTile::kPitch) + 4 * row));
      return by;
    }
    return own_factor[h][e];
  }

  static __device__ const typename P::Q* query_row(const AttentionParams& p, const WorkItem& item,
                                                   const RowContext& r) {
    return static_cast<const typename P::Q*>(p.q) + p.q_rows.offset(item.q_first + r.row, r.head);
  }
  static __device__ float larger(float top, uint32_t pair) {
    const float2 x = unpack<typename P::Q>(pair);
    return fmaxf(top, fmaxf(fabsf(x.x), fabsf(x.y)));
  }
  static __device__ uint32_t to_half(uint32_t pair, float by) {
    const float2 x = unpack<typename P::Q>(pair);
    return pack<__half>(x.x * by, x.y * by);
  }

  /// Loads the `rows` rows of an item's row tile.
  __device__ void load(const AttentionParams& p, const WorkItem& item, int head, int rows,
                       const WarpPlace<P>& place, char* tile) {
    if constexpr (P::kQueryShared) {
      load_shared(p, item, head, rows, tile);
    } else {
      const int g = place.lane / 4, q = place.lane % 4;
#pragma unroll
      for (int h = 0; h < P::kRowGroups; ++h) {
        const RowContext r = row_context(p, item, item.row_first + h * 8 + g, head);
        const auto* row = query_row(p, item, r);
        const bool valid = r.row < item.n_q;
#pragma unroll
        for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = 16 * k + (P::kEightBit ? 4 * q + 2 * e : 2 * q + 8 * e);
            a[k][h][e] = valid ? __ldcg(reinterpret_cast<const unsigned*>(row + d)) : 0u;
          }
        if constexpr (kToHalf) {
          float top = 0;
#pragma unroll
          for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              top = larger(top, a[k][h][e]);
          const float2 range = fp16_range(quad_max(top));
#pragma unroll
          for (int e = 0; e < 2; ++e)
            own_factor[h][e] = __shfl_sync(~0u, range.x, 4 * (2 * q + e));
#pragma unroll
          for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              a[k][h][e] = to_half(a[k][h][e], range.y);
        }
      }
    }
  }

  /// Loads queries through shared memory [kRows, D], followed by the factors of the rows. With 8-bit keys,
  /// words 2 i and 2 i + 1 of every 16 dims are stored at i and 4 + i.
  __device__ void load_shared(const AttentionParams& p, const WorkItem& item, int head, int rows,
                              char* tile) {
    named_barrier_sync(kQueryBarrier, P::kConsumers);  // the previous queries have been read
    constexpr int kLanes = kToHalf ? 4 : 16;           // of a row, adjacent in a warp
    float* const factors = reinterpret_cast<float*>(tile + P::kRows * P::QTile::kPitch);
    const int used = (rows + 7) / 8 * 8;  // step() reads no groups beyond
    for (int i = static_cast<int>(threadIdx.x); i < used * kLanes; i += P::kConsumers) {
      const int row = i / kLanes;
      const RowContext r = row_context(p, item, item.row_first + row, head);
      const auto* from = reinterpret_cast<const unsigned*>(query_row(p, item, r));
      const int words = r.row < item.n_q ? P::kD / 2 : 0;
      float2 range = make_float2(1.0f, 1.0f);
      if constexpr (kToHalf) {
        float top = 0;
        for (int word = i % kLanes; word < words; word += kLanes)
          top = larger(top, __ldcg(from + word));
        range = fp16_range(quad_max(top));
      }
#pragma unroll 8
      for (int word = i % kLanes; word < P::kD / 2; word += kLanes) {
        unsigned value = word < words ? __ldcg(from + word) : 0u;
        if constexpr (kToHalf) value = to_half(value, range.y);
        const int at = P::kEightBit ? word / 8 * 8 + word % 2 * 4 + word % 8 / 2 : word;
        *reinterpret_cast<unsigned*>(tile + P::QTile::offset(row, at / 4) + at % 4 * 4) = value;
      }
      if (i % kLanes == 0) factors[row] = range.x;
    }
    named_barrier_sync(kQueryBarrier, P::kConsumers);
    shared = shared_address(tile);
  }

  /// The fragments of dims 16 k to 16 k + 31, operand B, of rows 8 h to 8 h + 7: f[0] and f[1] are those of
  /// the first 16 dims.
  __device__ void fragment(uint32_t (&f)[4], int h, int k) const {
    if constexpr (P::kQueryShared) {
      const unsigned lane = threadIdx.x % 32;
      ldmatrix_x4(f, shared + P::QTile::offset(static_cast<unsigned>(8 * h) + lane % 8,
                                               static_cast<unsigned>(2 * k) + lane / 8));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f[i] = a[k + i / 2][h][i % 2];
    }
  }
};

/// Reductions over the 8 lanes, 4 apart, that hold the rows of a product.
__device__ __forceinline__ float column_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ __forceinline__ float column_sum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2)
    x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// O^T and the softmax state of a warp. Lane 4 g + q has rows g and g + 8 of a product, and columns 2 q and
/// 2 q + 1 of each group of 8 query rows.
template <class P>
struct DecodeTile {
  static constexpr int kM = P::kWarpKeys / 16;

  /// [16 columns of V][8 query rows]: o[j][h][2 r + e] is query row 8 h + 2 q + e and column 16 j + g + 8 r;
  /// with 8-bit values, column 16 j + 2 g + r.
  float o[P::kPartDv / 16][P::kRowGroups][4];
  /// Of query rows 8 h + 2 q + e; row_sum over this lane's keys only.
  float row_max[P::kRowGroups][2], row_sum[P::kRowGroups][2];
  KeyInterval unmasked;  ///< keys that every row of the warp sees
  uint32_t k_at, v_at;   ///< offset of this lane's row in a tile of K, of V

  __device__ explicit DecodeTile(const WarpPlace<P>& place) {
    const auto lane = static_cast<unsigned>(place.lane);
    const auto key = static_cast<unsigned>(place.group * P::kWarpKeys);
    const auto column = static_cast<unsigned>(place.part * (P::VTile::kChunks / P::kValueParts));
    k_at = P::KTile::offset(key + lane % 16, lane / 16);
    if constexpr (P::kPacked)
      v_at = P::run_offset(key / P::kRunKeys + lane / 16) +
             (static_cast<unsigned>(place.part * P::kPartDv) + lane % 16) * 16;
    else
      v_at = P::kEightBit ? P::VTile::offset(key + lane % 16, lane / 16 + column)
                          : P::VTile::offset(key + lane / 16 * 8 + lane % 8, lane / 8 % 2 + column);
  }

  /// The position of query row 8 h + 2 q + e of an item's row tile. Computed again where it is needed: it
  /// would take registers from O.
  static __device__ int position(const AttentionParams& p, const WorkItem& item, int lane, int h, int e) {
    const int packed = item.row_first + 8 * h + lane % 4 * 2 + e;
    return min(p.group.quotient(packed), item.n_q - 1) + item.n_k - item.n_q;
  }

  /// Sets unmasked for the rows of an item's row tile.
  __device__ void rows(const AttentionParams& p, const WorkItem& item, const WarpPlace<P>& place) {
    unmasked = {0, INT32_MAX};
#pragma unroll
    for (int i = 0; i < 2 * P::kRowGroups; ++i) {
      const KeyInterval seen = seen_keys(p.mask, item, position(p, item, place.lane, i / 2, i % 2));
      unmasked.first = max(unmasked.first, seen.first), unmasked.last = min(unmasked.last, seen.last);
    }
    unmasked.first = __reduce_max_sync(~0u, unmasked.first);
    unmasked.last = __reduce_min_sync(~0u, unmasked.last);
  }

  __device__ void reset() {
#pragma unroll
    for (int i = 0; i < 2 * P::kRowGroups; ++i)
      row_max[i / 2][i % 2] = -INFINITY, row_sum[i / 2][i % 2] = 0;
#pragma unroll
    for (int i = 0; i < P::kPartDv / 16 * P::kRowGroups * 4; ++i)
      o[i / 4 / P::kRowGroups][i / 4 % P::kRowGroups][i % 4] = 0;
  }

  /// Processes this warp's keys, from key0 on, of the tile at k_tile and v_tile. `rows` query rows exist: of
  /// groups of 8 beyond, nothing is computed.
  __device__ void step(const AttentionParams& p, const WorkItem& item, const DecodeQuery<P>& query,
                       uint32_t k_tile, uint32_t v_tile, int key0, int rows) {
    if (key0 >= item.key_last || key0 + P::kWarpKeys <= item.key_low) return;
    step_up_to<1>(p, item, query, k_tile, v_tile, key0, rows);
  }

  /// step_groups() of as many groups as `rows` need, at least `Groups`.
  template <int Groups>
  __device__ void step_up_to(const AttentionParams& p, const WorkItem& item, const DecodeQuery<P>& query,
                             uint32_t k_tile, uint32_t v_tile, int key0, int rows) {
    if constexpr (Groups < P::kRowGroups) {
      if (rows > 8 * Groups) return step_up_to<Groups + 1>(p, item, query, k_tile, v_tile, key0, rows);
    }
    step_groups<Groups>(p, item, query, k_tile, v_tile, key0);
  }

  template <int Groups>
  __device__ void step_groups(const AttentionParams& p, const WorkItem& item, const DecodeQuery<P>& query,
                              uint32_t k_tile, uint32_t v_tile, int key0) {
    float s[kM][Groups][4];
    scores(s, query, k_tile + k_at);
    float scale = p.scale * kLog2e;
    if (p.mask.softcap > 0.0f) {
      cap(s, p, query);
      scale = 1.0f;
    }
    if (key0 + P::kWarpKeys > min(unmasked.last, item.key_last) || key0 < unmasked.first)
      apply_mask(s, p, item, key0);
    softmax(s, p, query, scale);
    if constexpr (P::kPacked)
      if (key0 + P::kWarpKeys > item.key_last || key0 < item.key_low) clear_unread(item, v_tile + v_at, key0);
    values(s, v_tile + v_at);
  }

  /// A chunk of x-packed values has several keys, not all of which may be read: their values, NaN maybe,
  /// become 0 in this warp's columns.
  __device__ void clear_unread(const WorkItem& item, uint32_t from, int key0) const {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t columns = from - lane / 16 * P::run_offset(1) - lane % 16 * 16;  // of an even run
#pragma unroll 1
    for (int run = 0; run < P::kWarpKeys / P::kRunKeys; ++run) {
      const int first = key0 + run * P::kRunKeys;
      if (first >= item.key_low && first + P::kRunKeys <= item.key_last) continue;
      uint32_t read[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto half = [&](int key) { return key >= item.key_low && key < item.key_last ? 0xffffu : 0u; };
        read[i] = half(first + 2 * i) | half(first + 2 * i + 1) << 16;
      }
      for (unsigned column = lane; column < P::kPartDv; column += 32) {
        const uint32_t at = columns + static_cast<uint32_t>(run) * P::run_offset(1) + column * 16;
        uint32_t x[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0] & read[0]),
                     "r"(x[1] & read[1]), "r"(x[2] & read[2]), "r"(x[3] & read[3])
                     : "memory");
      }
    }
    __syncwarp();
  }

  /// Scores of two groups at a time, and the keys once more for the others: all at once would take too many
  /// registers.
  template <int Groups>
  __device__ void scores(float (&s)[kM][Groups][4], const DecodeQuery<P>& query, uint32_t from) const {
    scores_of < 0, Groups<2 ? Groups : 2>(s, query, from);
    if constexpr (Groups > 2) scores_of<2, Groups - 2>(s, query, from);
  }

  /// Separate accumulators for even and odd slices of 16 dims, which shortens the chains of dependent
  /// products.
  template <int First, int Count, int Groups>
  __device__ void scores_of(float (&s)[kM][Groups][4], const DecodeQuery<P>& query, uint32_t from) const {
    float odd[kM][Count][4] = {};
#pragma unroll
    for (int i = 0; i < 4 * kM * Count; ++i)
      s[i / (4 * Count)][First + i / 4 % Count][i % 4] = 0;
    // Queries in shared memory are loaded slice by slice, to limit register use.
    constexpr int kUnroll = P::kQueryShared ? 2 : P::kD / 32;
#pragma unroll kUnroll
    for (int k = 0; k < P::kD / 16; k += 2) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        uint32_t a[2][4];
        if constexpr (!P::kEightBit) {
          ldmatrix_x4(a[0], P::KTile::moved(from, 2 * k) + m * 16 * P::KTile::kPitch);
          ldmatrix_x4(a[1], P::KTile::moved(from, 2 * k + 2) + m * 16 * P::KTile::kPitch);
        } else {
          // A 16-byte chunk has the 16 dims of one mma.
          uint32_t b[4];
          ldmatrix_x4(b, P::KTile::moved(from, k) + m * 16 * P::KTile::kPitch);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t wide[2];
            widen<P::kKv, typename P::Compute>(wide, b[i]);
            a[i / 2][i % 2] = wide[0], a[i / 2][2 + i % 2] = wide[1];
          }
        }
#pragma unroll
        for (int h = 0; h < Count; ++h) {
          uint32_t f[4];
          query.fragment(f, First + h, k);
          Mma<typename P::Compute>::k16(s[m][First + h], a[0], f[0], f[1]);
          Mma<typename P::Compute>::k16(odd[m][h], a[1], f[2], f[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4 * kM * Count; ++i)
      s[i / (4 * Count)][First + i / 4 % Count][i % 4] += odd[i / (4 * Count)][i / 4 % Count][i % 4];
  }

  /// Applies the soft cap; scores are in log2 units afterwards.
  template <int Groups>
  __device__ void cap(float (&s)[kM][Groups][4], const AttentionParams& p,
                      const DecodeQuery<P>& query) const {
    const float by = 2.0f * kLog2e * p.scale / p.mask.softcap;
#pragma unroll
    for (int i = 0; i < 4 * kM * Groups; ++i) {
      const int h = i / 4 % Groups;
      float& x = s[i / (4 * Groups)][h][i % 4];
      // tanh(x) = 1 - 2 / (e^(2x) + 1): saturates at both ends without an overflow to NaN.
      const float e = exp2_approx(x * by * query.factor(h, i % 2));
      x = p.mask.softcap * kLog2e * (1.0f - __fdividef(2.0f, e + 1.0f));
    }
  }

  template <int Groups>
  static __device__ void apply_mask(float (&s)[kM][Groups][4], const AttentionParams& p, const WorkItem& item,
                                    int key0) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * Groups; ++i) {
      const KeyInterval seen = seen_keys(p.mask, item, position(p, item, lane, i / 2, i % 2));
#pragma unroll
      for (int n = 0; n < 2 * kM; ++n) {
        const int key = key0 + 8 * n + g;
        if (key < seen.first || key >= min(seen.last, item.key_last))
          s[n / 2][i / 2][n % 2 * 2 + i % 2] = -INFINITY;
      }
    }
  }

  /// Online softmax: scores -> unrounded probabilities. O and row_sum are rescaled where row_max grows.
  /// `scale` gives log2 units, without the rows' factors; capped scores have them already.
  template <int Groups>
  __device__ void softmax(float (&s)[kM][Groups][4], const AttentionParams& p, const DecodeQuery<P>& query,
                          float scale) {
#pragma unroll
    for (int h = 0; h < Groups; ++h) {
      float top[2], base[2], scales[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        top[e] = fmaxf(s[0][h][e], s[0][h][2 + e]);
#pragma unroll
        for (int m = 1; m < kM; ++m)
          top[e] = fmaxf(top[e], fmaxf(s[m][h][e], s[m][h][2 + e]));
        scales[e] = scale;
        if constexpr (DecodeQuery<P>::kToHalf)
          if (p.mask.softcap <= 0.0f) scales[e] = scale * query.factor(h, e);
        top[e] = fmaxf(row_max[h][e], column_max(top[e]) * scales[e]);
        base[e] = finite_max(top[e]);
      }
      if (top[0] > row_max[h][0] || top[1] > row_max[h][1]) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float f = exp2_approx(row_max[h][e] - base[e]);  // 1 for a row that keeps its row_max
          row_max[h][e] = top[e];
          row_sum[h][e] *= f;
#pragma unroll
          for (int j = 0; j < P::kPartDv / 16; ++j) {
            o[j][h][e] *= f;
            o[j][h][2 + e] *= f;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 4 * kM; ++i) {
        float& x = s[i / 4][h][i % 4];
        x = exp2_approx(fmaf(x, scales[i % 2], -base[i % 2]));
        row_sum[h][i % 2] += x;
      }
    }
  }

  template <int Groups>
  __device__ void values(const float (&s)[kM][Groups][4], uint32_t from) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      uint32_t p[Groups][2];
#pragma unroll
      for (int i = 0; i < 2 * Groups; ++i)
        p[i / 2][i % 2] =
            movmatrix_trans(pack<typename P::Compute>(s[m][i / 2][i % 2 * 2], s[m][i / 2][i % 2 * 2 + 1]));
      const uint32_t rows = from + m * 16 * P::VTile::kPitch;
      if constexpr (!P::kEightBit) {
#pragma unroll
        for (int j = 0; j < P::kPartDv / 16; ++j) {
          uint32_t a[4];
          if constexpr (P::kPacked)
            ldmatrix_x4(a, from + j * 256);
          else
            ldmatrix_x4_trans(a, P::VTile::moved(rows, 2 * j));
#pragma unroll
          for (int h = 0; h < Groups; ++h)
            Mma<typename P::Compute>::k16(o[j][h], a, p[h][0], p[h][1]);
        }
      } else {
        // Transposed pairs of bytes: a register holds dims 2 g, 2 g + 1 of keys 2 q and 2 q + 1. Reordered by
        // dim, the even dims of a chunk are rows 0 to 7 of a product and the odd ones rows 8 to 15.
#pragma unroll
        for (int j = 0; j < P::kPartDv / 32; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, P::VTile::moved(rows, 2 * j));
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            uint32_t low[2], high[2];
            widen<P::kKv, typename P::Compute>(low, __byte_perm(b[2 * c], 0, 0x3120));
            widen<P::kKv, typename P::Compute>(high, __byte_perm(b[2 * c + 1], 0, 0x3120));
            const uint32_t a[4] = {low[0], low[1], high[0], high[1]};
#pragma unroll
            for (int h = 0; h < Groups; ++h)
              Mma<typename P::Compute>::k16(o[2 * j + c][h], a, p[h][0], p[h][1]);
          }
        }
      }
    }
  }
};

}  // namespace fovea::cuda::sm90
