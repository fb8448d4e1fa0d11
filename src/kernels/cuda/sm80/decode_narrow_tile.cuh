#pragma once
// The arithmetic of the narrow decode kernel: queries, scores, online softmax and O of one warp, with swapped
// operands. Lane (g, q) = (lane / 4, lane % 4) has keys g and g + 8 of 16 for query rows 2 q and 2 q + 1.
#include "kernels/cuda/sm80/decode_narrow_loader.cuh"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm80 {

/// The query fragments of a work tile, with the dims in the order of the keys' fragments; rows past the
/// sequence are 0. Lane (g, q) has row g. Each lane keeps its fragments in shared memory that no other lane
/// uses: registers are needed for loads in flight. Double-buffered: the queries of a work tile arrive during
/// the previous one.
template <class P>
struct NarrowQuery {
  static constexpr bool kToHalf = !std::is_same_v<typename P::Q, typename P::Compute>;

  uint32_t shared;  ///< this lane's first 16 bytes of the current buffer; the others follow at kStride
  uint32_t next;    ///< of the other buffer
  static constexpr unsigned kStride = 32 * 16;
  float factor[2] = {1.0f, 1.0f};  ///< divisors of rows 2 q and 2 q + 1

  /// `copies`: [2, kWarps, kQueryChunks, 32 lanes, 16 bytes].
  __device__ explicit NarrowQuery(const char* copies)
      : shared(shared_address(copies) + threadIdx.x / 32 * (P::kQueryChunks * kStride) +
               threadIdx.x % 32 * 16),
        next(shared + P::kQueryBytes) {}

  /// Issues the loads of a work tile's queries; call finish() before they are used.
  __device__ void load(const AttentionParams& p, const WorkItem& item, int head) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const RowContext r = row_context(p, item, item.row_first + g, head);
    const auto* row = static_cast<const typename P::Q*>(p.q);
    const bool inside = r.row < item.n_q;
    if (inside) row += p.q_rows.offset(item.q_first + r.row, r.head);
#pragma unroll
    for (int c = 0; c < P::kQueryChunks; ++c) {
      // The dims of a 16-byte chunk of a key are 16 bytes here, or 32 with 8-bit keys.
      constexpr int kEach = P::kQueryChunks / P::kKChunks;
      const int d = (4 * (c / kEach) + q) * (8 * kEach) + c % kEach * 8;
      const bool valid = inside && d < p.head_dim;
      cp_async_16(next + c * kStride, valid ? row + d : row, valid);
    }
    cp_async_commit();
  }

  __device__ void finish() {
    cp_async_wait<0>();
    const uint32_t last = shared;
    shared = next;
    next = last;
    if constexpr (kToHalf) {
      float top = 0;
#pragma unroll
      for (int i = 0; i < 4 * P::kQueryChunks; ++i) {
        const float2 x = unpack<typename P::Q>(word(i));
        top = fmaxf(top, fmaxf(fabsf(x.x), fabsf(x.y)));
      }
      const float2 range = fp16_range(quad_max(top));
      const int q = threadIdx.x % 4;
      factor[0] = __shfl_sync(~0u, range.x, 8 * q);
      factor[1] = __shfl_sync(~0u, range.x, 8 * q + 4);
#pragma unroll
      for (int i = 0; i < 4 * P::kQueryChunks; ++i) {
        const float2 x = unpack<typename P::Q>(word(i));
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared + i / 4 * kStride + i % 4 * 4),
                     "r"(pack<__half>(x.x * range.y, x.y * range.y))
                     : "memory");
      }
    }
  }

  /// Four words of fragments.
  __device__ void chunk(uint32_t (&a)[4], int c) const {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared + c * kStride));
  }

 private:
  __device__ uint32_t word(int i) const {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(shared + i / 4 * kStride + i % 4 * 4) : "memory");
    return x;
  }
};

/// Transposes an 8 x 8 matrix of 16-bit elements, of which each lane has two neighbours of a row.
__device__ __forceinline__ uint32_t transpose8x8(uint32_t x) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

template <class P>
struct NarrowTile {
  using Product = Mma<typename P::Compute>;

  float o[P::kVTiles][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY},
        row_sum[2] = {0.0f, 0.0f};  ///< of rows 2 q and 2 q + 1; row_sum is this lane's share
  int unmasked_end;                 ///< every row sees the keys below it (plain kernels)

  __device__ NarrowTile(const AttentionParams& p, const WorkItem& item) {
    unmasked_end = item.key_last;
    if (p.mask.causal)
      unmasked_end = min(unmasked_end, p.group.quotient(item.row_first) + item.n_k - item.n_q + 1);
  }

  /// Raw scores: s[m] of 16 keys has (key g; rows 2 q, 2 q + 1), (key g + 8; the same rows).
  __device__ static void scores(float (&s)[P::kKeyTiles][4], const NarrowLoader<P>& keys,
                                const NarrowQuery<P>& query) {
#pragma unroll
    for (int i = 0; i < P::kKChunks; ++i) {
      constexpr int kEach = P::kQueryChunks / P::kKChunks;
      uint32_t b[4 * kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        query.chunk(*reinterpret_cast<uint32_t(*)[4]>(b + 4 * e), kEach * i + e);
#pragma unroll
      for (int m = 0; m < P::kKeyTiles; ++m) {
        const uint32_t(&low)[4] = keys.k[m][0][i];
        const uint32_t(&high)[4] = keys.k[m][1][i];
        if constexpr (!P::kEightBit) {
#pragma unroll
          for (int w = 0; w < 4; w += 2)
            add(s[m], {low[w], high[w], low[w + 1], high[w + 1]}, b + w, i == 0 && w == 0);
        } else {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t x[2], y[2];
            widen<P::kKv, typename P::Compute>(x, low[w]);
            widen<P::kKv, typename P::Compute>(y, high[w]);
            add(s[m], {x[0], y[0], x[1], y[1]}, b + 2 * w, i == 0 && w == 0);
          }
        }
      }
    }
  }

  /// Raw scores of the warp's keys from key0 on -> unrounded probabilities times the scales of the values.
  /// Rescales O and the row sums to the new row max. `k_scale` and `v_scale` are those of this lane's key.
  __device__ void online_softmax(float (&s)[P::kKeyTiles][4], const AttentionParams& p, int work_index,
                                 const float (&factor)[2], int key0, float k_scale, float v_scale) {
    const bool scaled = P::kEightBit && p.kv.k_scales != nullptr;
    if (scaled) multiply(s, k_scale);
    mask(s, p, work_index, factor, key0);
    float f[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float scale = P::kGeneral ? 1.0f : p.scale * kLog2e * factor[e];
      float top = fmaxf(s[0][e], s[0][2 + e]);
#pragma unroll
      for (int m = 1; m < P::kKeyTiles; ++m)
        top = fmaxf(top, fmaxf(s[m][e], s[m][2 + e]));
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      top = fmaxf(row_max[e], top * scale);
      const float base = finite_max(top);
      f[e] = exp2_approx(row_max[e] - base);
      row_max[e] = top;
      row_sum[e] *= f[e];
#pragma unroll
      for (int i = 0; i < 2 * P::kKeyTiles; ++i) {
        float& x = s[i / 2][i % 2 * 2 + e];
        x = exp2_approx(fmaf(x, scale, -base));
        row_sum[e] += x;
      }
    }
    if (__any_sync(~0u, f[0] != 1.0f || f[1] != 1.0f)) {
#pragma unroll
      for (int t = 0; t < P::kVTiles; ++t) {
        o[t][0] *= f[0], o[t][1] *= f[1];
        o[t][2] *= f[0], o[t][3] *= f[1];
      }
    }
    if (scaled) multiply(s, v_scale * p.kv.v_gain);
  }

  /// O^T += V^T P^T.
  __device__ void values(const float (&s)[P::kKeyTiles][4], const NarrowLoader<P>& keys) {
#pragma unroll
    for (int m = 0; m < P::kKeyTiles; ++m) {
      const uint32_t b0 = transpose8x8(pack<typename P::Compute>(s[m][0], s[m][1]));
      const uint32_t b1 = transpose8x8(pack<typename P::Compute>(s[m][2], s[m][3]));
      const auto& v = keys.v[m];
      if constexpr (!P::kEightBit) {
        // Rows g and g + 8 of product t are one element of each of two pieces, or, for the last piece where
        // their number is odd, two elements of it.
#pragma unroll
        for (int t = 0; t < P::kVTiles; ++t) {
          const int pair = t / 8 * 2;
          const bool odd = pair + 1 == P::kVSets;
          const int low = t % 8, high = odd ? low + 4 : low, set = odd ? pair : pair + 1;
          const uint32_t a[4] = {
              element_pair(v[0][pair], v[1][pair], low), element_pair(v[0][set], v[1][set], high),
              element_pair(v[2][pair], v[3][pair], low), element_pair(v[2][set], v[3][set], high)};
          Product::k16(o[t], a, b0, b1);
        }
      } else {
        // Four dims of a piece are rows of two products: the even dims are their rows g, the odd dims rows g
        // + 8.
#pragma unroll
        for (int w = 0; w < P::kVTiles / 2; ++w) {
          const int set = w / (P::kVBytes / 4), word = w % (P::kVBytes / 4);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const unsigned order = half == 0 ? 0x5140 : 0x7362;
            uint32_t x[2], y[2];
            widen<P::kKv, typename P::Compute>(x, __byte_perm(v[0][set][word], v[1][set][word], order));
            widen<P::kKv, typename P::Compute>(y, __byte_perm(v[2][set][word], v[3][set][word], order));
            const uint32_t a[4] = {x[0], x[1], y[0], y[1]};
            Product::k16(o[2 * w + half], a, b0, b1);
          }
        }
      }
    }
  }

  /// Dim i of piece g + 8 set under row 2 q + e.
  __device__ float value(int set, int i, int e) const {
    if constexpr (P::kEightBit) return o[set * (P::kVDims / 2) + i / 2][i % 2 * 2 + e];
    const int tile = set / 2 * 8;
    if (set % 2 == 0 && set + 1 == P::kVSets) return o[tile + i % 4][i / 4 * 2 + e];
    return o[tile + i][set % 2 * 2 + e];
  }

 private:
  __device__ static void add(float (&s)[4], const uint32_t (&a)[4], const uint32_t* b, bool first) {
    if (first)
      Product::k16_first(s, a, b[0], b[1]);
    else
      Product::k16(s, a, b[0], b[1]);
  }

  /// Element i of two rows as a pair.
  __device__ static uint32_t element_pair(const uint32_t (&first)[P::kVBytes / 4],
                                          const uint32_t (&second)[P::kVBytes / 4], int i) {
    return __byte_perm(first[i / 2], second[i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
  }

  /// Multiplies the scores of each key by the factor that its lane holds.
  __device__ static void multiply(float (&s)[P::kKeyTiles][4], float factor) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < P::kKeyTiles; ++m) {
      const float x = __shfl_sync(~0u, factor, 16 * m + g), y = __shfl_sync(~0u, factor, 16 * m + 8 + g);
      s[m][0] *= x, s[m][1] *= x, s[m][2] *= y, s[m][3] *= y;
    }
  }

  __device__ void mask(float (&s)[P::kKeyTiles][4], const AttentionParams& p, int work_index,
                       const float (&factor)[2], int key0) const {
    if (!P::kGeneral && key0 + P::kWarpKeys <= unmasked_end) return;
    const int q = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
    const int index = p.kv_heads.quotient(work_index),
              head = work_index - index * static_cast<int>(p.kv_heads.divisor);
    const WorkItem item = p.items[index];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const RowContext r = row_context(p, item, item.row_first + 2 * q + e, head);
      const int limit = p.mask.causal ? min(item.key_last, r.position + 1) : item.key_last;
#pragma unroll
      for (int i = 0; i < 2 * P::kKeyTiles; ++i) {
        const int key = key0 + 8 * i + g;
        float& x = s[i / 2][i % 2 * 2 + e];
        if constexpr (P::kGeneral)
          x = key < item.key_last ? general_score(p, item, r, key, x * factor[e]) : -INFINITY;
        else if (key >= limit)
          x = -INFINITY;
      }
    }
  }
};

}  // namespace fovea::cuda::sm80
