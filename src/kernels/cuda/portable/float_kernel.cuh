#pragma once
// Attention in fp32 on the CUDA cores: fp32 queries, and keys whose type differs from that of the queries.
// Each split is combined as it ends, with the arithmetic of the combine kernel, so that a row's bits do not
// depend on whether its keys were split: every chunking of a prefill, and decode, give the same bits.
#include "kernels/cuda/portable/finish.cuh"
#include "kernels/cuda/portable/key_stream.cuh"
#include "kernels/cuda/portable/scores.cuh"

namespace fovea::cuda::portable {

/// The scores of a lane: rows lane / 8 + 4 r of the warp's 16, keys lane % 8 + 8 i of the tile.
template <class P>
struct FloatScores {
  static constexpr int kRows = 4, kKeys = P::kTileKeys / 8, kLanes = 8;
  static constexpr bool kPrecise = true;
  float (&s)[kRows][kKeys];
  int first_row;         ///< of the warp
  const RowKeys* table;  ///< of the warp

  __device__ float& at(int r, int i) const { return s[r][i]; }
  __device__ static int offset(int r) { return static_cast<int>(threadIdx.x) % 32 / 8 + 4 * r; }
  __device__ int row(int r) const { return first_row + offset(r); }
  __device__ RowKeys keys(int r) const { return table[offset(r)]; }
  __device__ static int key(int i) { return static_cast<int>(threadIdx.x) % 8 + 8 * i; }
};

/// A work tile (a WorkItem under one KV head), computed by the warps of a CTA.
template <class P>
struct FloatWorkTile {
  using Scores = FloatScores<P>;
  static_assert(P::kGroupRows == 16);
  static constexpr int kRows = Scores::kRows, kKeys = Scores::kKeys;
  static constexpr int kColumns = P::kPartD / 32;  ///< groups of four columns, 32 columns apart
  /// The scores of a tile that a warp computes: blocks of 8 keys for all rows of a lane, or one block for
  /// some rows.
  static constexpr int kOwnKeys = kKeys >= P::kGroupWarps ? kKeys / P::kGroupWarps : 1;
  static constexpr int kOwnRows = kKeys >= P::kGroupWarps ? kRows : kRows * kKeys / P::kGroupWarps;

  const AttentionParams& p;
  const Access& access;
  const WorkItem& item;
  const int head;
  char* const shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = warp / P::kGroupWarps, part = warp % P::kGroupWarps;
  float4 o[kRows][kColumns], combined_o[kRows][kColumns];
  RowState<kRows> state;
  CombinedState combined[kRows];

  __device__ RowKeys* row_keys_of_tile() const {
    return reinterpret_cast<RowKeys*>(shared + P::kSharedBytes - P::kRowKeyBytes);
  }
  __device__ int first_row() const { return item.row_first + group * 16; }
  __device__ float* exchange() const {
    return reinterpret_cast<float*>(shared + P::kQueryBytes + P::kSlots * P::kSlotBytes + P::kOffsetBytes +
                                    P::kFactorBytes) +
           group * 16 * P::kScorePitch;
  }
  /// The buffer of this warp's probabilities in shared memory.
  __device__ float* probability_buffer() const {
    return reinterpret_cast<float*>(shared + P::kQueryBytes + P::kSlots * P::kSlotBytes + P::kOffsetBytes +
                                    P::kFactorBytes + P::kScoreBytes) +
           warp * 16 * P::kScorePitch;
  }
  __device__ int own_key() const { return part * kOwnKeys % kKeys; }
  __device__ int own_row() const { return kKeys >= P::kGroupWarps ? 0 : part / kKeys * kOwnRows; }

  __device__ void products(uint32_t k_tile, float (&s)[kOwnRows][kOwnKeys]) const {
    const uint32_t q_tile = shared_address(shared);
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r)
#pragma unroll
      for (int i = 0; i < kOwnKeys; ++i)
        s[r][i] = 0.0f;
    const int steps = (p.head_dim + 3) / 4;
#pragma unroll 2
    for (int d = 0; d < steps; ++d) {
      float4 q[kOwnRows], k[kOwnKeys];
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r)
        q[r] = load_shared4(q_tile + P::Tile::offset(group * 16 + lane / 8 + 4 * (own_row() + r), d));
#pragma unroll
      for (int i = 0; i < kOwnKeys; ++i)
        k[i] = load_shared4(k_tile + P::Tile::offset((own_key() + i) * 8 + lane % 8, d));
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r)
#pragma unroll
        for (int i = 0; i < kOwnKeys; ++i) {
          s[r][i] = fmaf(q[r].x, k[i].x, s[r][i]);
          s[r][i] = fmaf(q[r].y, k[i].y, s[r][i]);
          s[r][i] = fmaf(q[r].z, k[i].z, s[r][i]);
          s[r][i] = fmaf(q[r].w, k[i].w, s[r][i]);
        }
    }
  }

  __device__ float* score(float* scores, int row, int key) const {
    return scores + (lane / 8 + 4 * row) * P::kScorePitch + key * 8 + lane % 8;
  }

  __device__ void tile(const KeyStream<P>& keys, const WarpKeys& sees, int n, int key0, uint32_t v_tile,
                       float (&s)[kRows][kKeys]) {
    const Scores scores{s, first_row(), row_keys_of_tile() + group * P::kGroupRows};
    const float* factors =
        reinterpret_cast<const float*>(reinterpret_cast<const char*>(keys.row_offsets) + P::kOffsetBytes) +
        n % 3 * (2 * P::kTileKeys);
    const auto rescale = [this](const float(&factor)[kRows]) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          o[r][c].x *= factor[r], o[r][c].y *= factor[r];
          o[r][c].z *= factor[r], o[r][c].w *= factor[r];
        }
    };
    probabilities(p, item, head, key0, P::kTileKeys, sees, factors, scores, state, rescale);
    if (p.kv.v_scales != nullptr) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const float x = factors[P::kTileKeys + Scores::key(i)] * p.kv.v_gain;
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          s[r][i] *= x;
      }
    }
    __syncwarp();  // the probabilities of the previous tile have been read
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kKeys; ++i)
        *score(probability_buffer(), r, i) = s[r][i];
    __syncwarp();
    const uint32_t from = shared_address(probability_buffer() + lane / 8 * P::kScorePitch);
#pragma unroll 1
    for (int key = 0; key < P::kTileKeys; key += 4) {
      float w[kRows][4];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 x = load_shared4(from + (4 * r * P::kScorePitch + key) * 4);
        w[r][0] = x.x, w[r][1] = x.y, w[r][2] = x.z, w[r][3] = x.w;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float4 v =
              load_shared4(v_tile + P::Tile::offset(key + e, part * (P::kPartD / 4) + 8 * c + lane % 8));
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            o[r][c].x = fmaf(w[r][e], v.x, o[r][c].x);
            o[r][c].y = fmaf(w[r][e], v.y, o[r][c].y);
            o[r][c].z = fmaf(w[r][e], v.z, o[r][c].z);
            o[r][c].w = fmaf(w[r][e], v.w, o[r][c].w);
          }
        }
    }
  }

  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        o[r][c] = make_float4(0, 0, 0, 0);
    state.reset();
  }
  __device__ float total(int r) const {
    float sum = state.row_sum[r];
#pragma unroll
    for (int step = 1; step < 8; step *= 2)
      sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
  }
  /// Combines the split that has ended with those before it.
  __device__ void combine_split() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const CombineFactors f = combine_state(combined[r], state.row_max_or_neg_inf(r), total(r));
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        combined_o[r][c].x = combine(combined_o[r][c].x, o[r][c].x, f);
        combined_o[r][c].y = combine(combined_o[r][c].y, o[r][c].y, f);
        combined_o[r][c].z = combine(combined_o[r][c].z, o[r][c].z, f);
        combined_o[r][c].w = combine(combined_o[r][c].w, o[r][c].w, f);
      }
    }
    reset();
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
    reset();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      combined[r] = CombinedState{};
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        combined_o[r][c] = make_float4(0, 0, 0, 0);
    }
    const WarpKeys sees = warp_keys(p, item, first_row(), 16);
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
      float own[kOwnRows][kOwnKeys];
      if (visible_tile) {
        products(k_tile, own);
        if constexpr (P::kGroupWarps > 1) {
#pragma unroll
          for (int r = 0; r < kOwnRows; ++r)
#pragma unroll
            for (int i = 0; i < kOwnKeys; ++i)
              *score(exchange(), own_row() + r, own_key() + i) = own[r][i];
        }
      }
      cp_async_wait<1>();
      __syncthreads();  // V has arrived; K has been read
      if (key1 < keys.key_last) keys.template load<true>(n + 1, slot);
      cp_async_commit();
      if (visible_tile) {
        if constexpr (P::kGroupWarps > 1) {
          float s[kRows][kKeys];
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < kKeys; ++i)
              s[r][i] = *score(exchange(), r, i);
          tile(keys, sees, n, key0, v_tile, s);
        } else {
          tile(keys, sees, n, key0, v_tile, own);
        }
      }
      if (item.num_splits == 1 && key1 < keys.key_last && key1 / P::kSplitKeys != key0 / P::kSplitKeys)
        combine_split();
      const int key2 = keys.next(key1);
      keys.store_offsets(n + 2, key2, page);
      page = keys.page_of(keys.next(key2));
      key0 = key1, key1 = key2, slot = next_slot;
    }
    cp_async_wait_all();
    finish();
  }

  __device__ void finish() {
    const int rows = item.n_q * static_cast<int>(p.group.divisor);
    const bool writes_state = part == 0 && lane % 8 == 0;
    const int column = part * P::kPartD + lane % 8 * 4;
    if (item.num_splits > 1) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float sum = total(r);
        const int row = first_row() + lane / 8 + 4 * r;
        if (row >= rows) continue;
        const int64_t at = partial_row(p, item.partial_first + item.split, head, row - item.row_first);
        if (writes_state) store_state(p, at, state.row_max_or_neg_inf(r), sum);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          __stcg(reinterpret_cast<float4*>(p.partial_out + at * P::kD + column + 32 * c), o[r][c]);
      }
      return;
    }
    combine_split();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first_row() + lane / 8 + 4 * r;
      if (row >= rows) continue;
      const RowContext context = row_context(p, item, row, head);
      const float f =
          finish_row_and_store_lse(p, item, context, combined[r].maximum, combined[r].sum, writes_state);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float4 a = combined_o[r][c];
        const float x[4] = {a.x * f, a.y * f, a.z * f, a.w * f};
        if (column + 32 * c < p.v_head_dim)
          store_row<4>(p, access, item.q_first + context.row, context.head, column + 32 * c, x);
      }
    }
  }
};

}  // namespace fovea::cuda::portable
