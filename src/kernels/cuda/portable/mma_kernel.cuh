#pragma once
// Attention with mma.sync: fp16 and bf16 queries.
#include "kernels/cuda/portable/finish.cuh"
#include "kernels/cuda/portable/key_stream.cuh"
#include "kernels/cuda/portable/scores.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::portable {

/// The scores of a warp: row 2 t + h is row g + 8 h of its t-th 16, keys are in the order of the mma
/// accumulators.
template <class P>
struct MmaScores {
  static constexpr int kTiles = P::kGroupRows / 16, kBlocks = P::kTileKeys / 8;
  static constexpr int kRows = 2 * kTiles, kKeys = 2 * kBlocks, kLanes = 4;
  static constexpr bool kPrecise = false;
  float (&s)[kTiles][kBlocks][4];
  int first_row;         ///< of the warp
  const RowKeys* table;  ///< of the warp

  __device__ float& at(int r, int i) const { return s[r / 2][i / 2][2 * (r % 2) + i % 2]; }
  __device__ static int offset(int r) { return r * 8 + static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ int row(int r) const { return first_row + offset(r); }
  __device__ RowKeys keys(int r) const { return table[offset(r)]; }
  __device__ static int key(int i) { return i / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }
};

/// The address of chunk c + `more` of a row, given `address` of its chunk c, which has no bits in common with
/// `more`: equal to TileLayout::offset, without a register for each chunk.
FOVEA_DEVICE uint32_t advance_chunks(uint32_t address, unsigned more) {
  return (address ^ (more & 7) << 4) + (more >> 3 << 7);
}

/// A work tile (a WorkItem under one KV head), computed by the warps of a CTA.
template <class P>
struct MmaWorkTile {
  static_assert(P::Tile::kSwizzled);
  using C = typename P::C;
  using Scores = MmaScores<P>;
  static constexpr int kTiles = Scores::kTiles, kBlocks = Scores::kBlocks, kColumns = P::kPartD / 8;
  /// Blocks of 8 keys whose scores a warp computes; with more warps in a group than blocks, some compute
  /// none.
  static constexpr int kOwnBlocks = kBlocks > P::kGroupWarps ? kBlocks / P::kGroupWarps : 1;
  /// Loops over D are unrolled where little of D is padding.
  static constexpr bool kUnrolled = P::kD <= 128;

  const AttentionParams& p;
  const Access& access;
  const WorkItem& item;
  const int head;
  char* const shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = warp / P::kGroupWarps, part = warp % P::kGroupWarps;
  float o[kTiles][kColumns][4];
  RowState<Scores::kRows> state;

  __device__ RowKeys* row_keys_of_tile() const {
    return reinterpret_cast<RowKeys*>(shared + P::kSharedBytes - P::kRowKeyBytes);
  }
  __device__ int first_row() const { return item.row_first + group * P::kGroupRows; }
  /// This group's scores in shared memory, where several warps compute them.
  __device__ float* exchange() const {
    return reinterpret_cast<float*>(shared + P::kQueryBytes + P::kSlots * P::kSlotBytes + P::kOffsetBytes +
                                    P::kFactorBytes) +
           group * P::kGroupRows * P::kScorePitch;
  }

  /// Computes the scores of this warp's blocks of keys; the first is block `part` * kOwnBlocks.
  __device__ void products(uint32_t k_tile, float (&s)[kTiles][kOwnBlocks][4]) const {
    const uint32_t q_tile = shared_address(shared);
    const int first_key = part * kOwnBlocks * 8;
    const uint32_t a_from = q_tile + P::Tile::offset(group * P::kGroupRows + lane % 16, lane / 16);
    const int steps = kUnrolled ? P::kD / 16 : (p.head_dim + 31) / 32 * 2;
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kOwnBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          s[t][n][i] = 0.0f;
    if constexpr (kOwnBlocks % 2 == 0) {
      const uint32_t b_from = k_tile + P::Tile::offset(first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll(kUnrolled ? P::kD / 16 : 4)
      for (int k = 0; k < steps; ++k) {
        uint32_t a[kTiles][4];
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          ldmatrix_x4(a[t], advance_chunks(a_from, 2 * k) + t * 16 * P::Tile::kPitch);
#pragma unroll
        for (int n = 0; n < kOwnBlocks / 2; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, advance_chunks(b_from, 2 * k) + n * 16 * P::Tile::kPitch);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            Mma<C>::k16(s[t][2 * n], a[t], b[0], b[1]);
            Mma<C>::k16(s[t][2 * n + 1], a[t], b[2], b[3]);
          }
        }
      }
    } else {
      static_assert(kOwnBlocks == 1);
      const uint32_t b_from = k_tile + P::Tile::offset(first_key + lane % 8, lane / 8);
#pragma unroll 4
      for (int k = 0; k < steps; k += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, advance_chunks(b_from, 2 * k));
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            uint32_t a[4];
            ldmatrix_x4(a, advance_chunks(a_from, 2 * (k + half)) + t * 16 * P::Tile::kPitch);
            Mma<C>::k16(s[t][0], a, b[2 * half], b[2 * half + 1]);
          }
      }
    }
  }

  /// Writes this warp's scores to shared memory.
  __device__ void put(const float (&s)[kTiles][kOwnBlocks][4]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kOwnBlocks; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(exchange() + (t * 16 + h * 8 + lane / 4) * P::kScorePitch +
                                     (part * kOwnBlocks + n) * 8 + lane % 4 * 2) =
              make_float2(s[t][n][2 * h], s[t][n][2 * h + 1]);
  }
  /// Reads all scores of the group from shared memory.
  __device__ void get(float (&s)[kTiles][kBlocks][4]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float2 x = *reinterpret_cast<const float2*>(
              exchange() + (t * 16 + h * 8 + lane / 4) * P::kScorePitch + n * 8 + lane % 4 * 2);
          s[t][n][2 * h] = x.x, s[t][n][2 * h + 1] = x.y;
        }
  }

  /// O += P V for this warp's columns.
  __device__ void accumulate(uint32_t v_tile, const float* factors, float (&s)[kTiles][kBlocks][4]) {
    const uint32_t from = v_tile + P::Tile::offset(lane % 16, part * kColumns + lane / 16);
#pragma unroll
    for (int n = 0; n < kBlocks / 2; ++n) {
      if (p.kv.v_scales != nullptr) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = factors[n * 16 + Scores::key(i)] * p.kv.v_gain;
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
            s[t][2 * n + i / 2][i % 2] *= x, s[t][2 * n + i / 2][2 + i % 2] *= x;
        }
      }
      uint32_t a[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          a[t][i] = pack<C>(s[t][2 * n + i / 2][2 * (i % 2)], s[t][2 * n + i / 2][2 * (i % 2) + 1]);
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, advance_chunks(from, 2 * j) + n * 16 * P::Tile::kPitch);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          Mma<C>::k16(o[t][2 * j], a[t], b[0], b[1]);
          Mma<C>::k16(o[t][2 * j + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  __device__ void tile(const KeyStream<P>& keys, const WarpKeys& warp_sees, int n, int key0, uint32_t v_tile,
                       float (&s)[kTiles][kBlocks][4]) {
    const Scores scores{s, first_row(), row_keys_of_tile() + group * P::kGroupRows};
    const float* factors =
        reinterpret_cast<const float*>(reinterpret_cast<const char*>(keys.row_offsets) + P::kOffsetBytes) +
        n % 3 * (2 * P::kTileKeys);
    const auto rescale = [this](const float(&factor)[Scores::kRows]) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            o[t][j][i] *= factor[2 * t + i / 2];
    };
    probabilities(p, item, head, key0, P::kTileKeys, warp_sees, factors, scores, state, rescale);
    accumulate(v_tile, factors + P::kTileKeys, s);
  }

  __device__ void run() {
    load_queries<P>(p, access, item, head, shared_address(shared));
    store_row_keys<P>(p, item, row_keys_of_tile());
    const KeyStream<P> keys(p, access, item, head, shared + P::kQueryBytes);
    // Row offsets are stored two tiles ahead, and page ids are loaded three tiles ahead.
    int key0 = keys.first(), key1 = keys.next(key0);
    int32_t page = keys.page_of(key1);
    keys.store_offsets(0, key0, keys.page_of(key0));
    keys.store_offsets(1, key1, page);
    page = keys.page_of(keys.next(key1));
    __syncthreads();
    int slot = 0;
    keys.template load<false>(0, slot);
    cp_async_commit();
    keys.template load<true>(0, slot + 1);
    cp_async_commit();
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          o[t][j][i] = 0.0f;
    state.reset();
    __shared__ WarpKeys seen_by_warp[P::kThreads / 32];  // in shared memory, to save registers
    WarpKeys& sees = seen_by_warp[warp];
    sees = warp_keys(p, item, first_row(), P::kGroupRows);
    __syncwarp();
#pragma unroll 1
    for (int n = 0; key0 < keys.key_last; ++n) {
      const int v_slot = slot == 2 ? 0 : slot + 1, next_slot = v_slot == 2 ? 0 : v_slot + 1;
      if (keys.widens()) {
        cp_async_wait_all();
        keys.widen(slot, v_slot);
      } else {
        cp_async_wait<1>();
      }
      __syncthreads();  // K of this tile has arrived; V of the previous tile has been read
      if (key1 < keys.key_last) keys.template load<false>(n + 1, next_slot);
      cp_async_commit();
      const bool visible_tile =
          key0 < sees.any_last && (key0 + P::kTileKeys > sees.any_first || key0 < p.mask.sink_tokens);
      const uint32_t k_tile = keys.slots + slot * P::kSlotBytes, v_tile = keys.slots + v_slot * P::kSlotBytes;
      float s[kTiles][kBlocks][4];
      if constexpr (P::kGroupWarps == 1) {
        if (visible_tile) products(k_tile, s);
      } else if (visible_tile && part * kOwnBlocks < kBlocks) {
        float own[kTiles][kOwnBlocks][4];
        products(k_tile, own);
        put(own);
      }
      cp_async_wait<1>();
      __syncthreads();  // V has arrived; K has been read
      if (key1 < keys.key_last) keys.template load<true>(n + 1, slot);
      cp_async_commit();
      if (visible_tile) {
        if constexpr (P::kGroupWarps > 1) get(s);
        tile(keys, sees, n, key0, v_tile, s);
      }
      const int key2 = keys.next(key1);
      keys.store_offsets(n + 2, key2, page);
      page = keys.page_of(keys.next(key2));
      key0 = key1, key1 = key2, slot = next_slot;
    }
    cp_async_wait_all();
    finish();
  }

  __device__ void finish() const {
    const int rows = item.n_q * static_cast<int>(p.group.divisor);
#pragma unroll
    for (int r = 0; r < Scores::kRows; ++r) {
      const float sum = quad_sum(state.row_sum[r]);
      const int row = first_row() + r * 8 + lane / 4;
      if (row >= rows) continue;
      const int column = part * P::kPartD + lane % 4 * 2;
      const bool writes_state = part == 0 && lane % 4 == 0;
      if (item.num_splits > 1) {
        const int64_t at = partial_row(p, item.partial_first + item.split, head, row - item.row_first);
        if (writes_state) store_state(p, at, state.row_max_or_neg_inf(r), sum);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          __stcg(reinterpret_cast<float2*>(p.partial_out + at * P::kD + column + 8 * j),
                 make_float2(o[r / 2][j][2 * (r % 2)], o[r / 2][j][2 * (r % 2) + 1]));
      } else {
        const RowContext context = row_context(p, item, row, head);
        const float f =
            finish_row_and_store_lse(p, item, context, state.row_max_or_neg_inf(r), sum, writes_state);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const float x[2] = {o[r / 2][j][2 * (r % 2)] * f, o[r / 2][j][2 * (r % 2) + 1] * f};
          if (column + 8 * j < p.v_head_dim)
            store_row<2>(p, access, item.q_first + context.row, context.head, column + 8 * j, x);
        }
      }
    }
  }
};

}  // namespace fovea::cuda::portable
