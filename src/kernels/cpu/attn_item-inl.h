#pragma once
// The mainloop: the rows of one work item over its key tiles, split by split. Included by attn_<isa>.cc.
#include "kernels/cpu/attn_combine-inl.h"
#include "kernels/cpu/attn_latent-inl.h"
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/attn_pv-inl.h"
#include "kernels/cpu/attn_qk-inl.h"
#include "kernels/cpu/attn_softmax-inl.h"
#include "kernels/cpu/attn_tile-inl.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Rows are processed in groups of 4; the last group has 1, 2 or 4 rows (3 rows: 4, the last of zeros).
FOVEA_INLINE int group_width(int rows_left) {
  return rows_left >= 3 ? 4 : rows_left;
}

template <class T>
void load_query_row(const T* in, int d, int64_t dp, float* out) {
  constexpr int kLanes = Vec::kLanes;
  for (int64_t c = 0; c < dp; c += kLanes)
    store(out + c, c < d ? load_n(in + c, d - c < kLanes ? static_cast<int>(d - c) : kLanes) : zero());
}

/// Q of the item's rows as fp32 [rows, dp], rounded up to whole groups with zeros.
inline void load_queries(const attn::Params& a, const attn::Item& item, float* q) {
  for (int r = 0; r < (item.rows + 3) / 4 * 4; ++r) {
    float* out = q + r * a.layout.dp;
    if (r >= item.rows) {
      for (int64_t c = 0; c < a.layout.dp; c += Vec::kLanes)
        store(out + c, zero());
      continue;
    }
    const int64_t token = a.seqs[item.seq].first_row + (item.row + r) / a.group;
    const int64_t head = query_head(a, item.kv_head, item.row + r);
    const int64_t at = row_offset(a.q_rows, token, head);
    switch (a.dtype) {
      case DType::f32: load_query_row(static_cast<const float*>(a.q) + at, a.d, a.layout.dp, out); break;
      case DType::f16: load_query_row(static_cast<const fp16*>(a.q) + at, a.d, a.layout.dp, out); break;
      case DType::bf16: load_query_row(static_cast<const bf16*>(a.q) + at, a.d, a.layout.dp, out); break;
    }
  }
}

/// Computes one work item; of MLA, with kRowLanes lanes for its rows (0 = other attention).
template <class T, int kRowLanes = 0>
class ItemRun {
 public:
  ItemRun(const attn::Params& a, const attn::Item& item, float* scratch)
      : a_(a),
        item_(item),
        seq_(a.seqs[item.seq]),
        q_(scratch + a.layout.q),
        scores_(scratch + a.layout.scores),
        lanes_(scratch + a.layout.lanes),
        alpha_(scratch + a.layout.alpha),
        k_(scratch + a.layout.k),
        v_(scratch + a.layout.v),
        zeros_(scratch + a.layout.zeros),
        current_(states(scratch + a.layout.state[0])),
        combined_(states(scratch + a.layout.state[1])) {}

  void run() {
    if constexpr (kRowLanes > 0) {
      switch (a_.dtype) {
        case DType::f32: load_query_columns<kRowLanes, float>(a_, item_, q_); break;
        case DType::f16: load_query_columns<kRowLanes, fp16>(a_, item_, q_); break;
        case DType::bf16: load_query_columns<kRowLanes, bf16>(a_, item_, q_); break;
      }
    } else {
      load_queries(a_, item_, q_);
    }
    const int64_t zero_floats = a_.layout.dp > a_.layout.dvp ? a_.layout.dp : a_.layout.dvp;
    __builtin_memset(zeros_, 0, static_cast<size_t>(zero_floats) * sizeof(float));
    if (item_.partial >= 0) clear_records();
    const T* zeros = reinterpret_cast<const T*>(zeros_);
    TileCursor cursor(item_);
    Tile<T> tiles[2];
    int at = 0;
    next_tile(a_, item_, cursor, zeros, tiles[0]);
    while (tiles[at].any != 0) {
      next_tile(a_, item_, cursor, zeros, tiles[1 - at]);
      const int split = static_cast<int>(tiles[at].start / split_keys());
      if (split != split_) close_split(split);
      add_tile(tiles[at], tiles[1 - at].any != 0 ? &tiles[1 - at] : nullptr);
      at = 1 - at;
    }
    close_split(-1);
    if (item_.partial < 0) finish();
  }

 private:
  int64_t split_keys() const {
    return mutated(Mutation::borders_by_work) && item_.partial < 0 ? 2 * attn::kSplitKeys : attn::kSplitKeys;
  }

  States states(float* p) const { return {p, p + attn::kBlockRows, p + 2 * attn::kBlockRows}; }

  /// Marks all records as empty; those of splits without a tile stay so.
  void clear_records() {
    const int64_t record = a_.layout.dvp + attn::kPadFloats;
    for (int64_t i = 0; i < static_cast<int64_t>(item_.splits) * item_.rows; ++i) {
      float* out = a_.partials + (item_.partial + i) * record;
      out[0] = -__builtin_inff();
      out[1] = 0.0f;
    }
  }

  /// Ends the current split, if any, and begins `next` (-1 = none).
  void close_split(int next) {
    if (split_ >= 0) {
      for (int r = 0; r < item_.rows && kRowLanes == 0; ++r)
        current_.l[r] = reduce_add(load(lanes_ + r * attn::kPadFloats));
      if (item_.partial >= 0) {
        store_records();
      } else if (!any_combined_) {
        const States swap = current_;
        current_ = combined_;
        combined_ = swap;
        any_combined_ = true;
      } else {
        for (int r = 0; r < item_.rows; ++r)
          combine_row(combined_.m + r, combined_.l + r, combined_.o + r * a_.layout.dvp, current_.m[r],
                      current_.l[r], current_.o + r * a_.layout.dvp, a_.layout.dvp);
      }
    }
    split_ = next;
    if (next < 0) return;
    const int rows = kRowLanes > 0 ? kRowLanes : (item_.rows + 3) / 4 * 4;
    for (int r = 0; r < rows; ++r) {
      current_.m[r] = -__builtin_inff();
      current_.l[r] = 0.0f;
    }
    __builtin_memset(lanes_, 0, sizeof(float) * static_cast<size_t>(rows * attn::kPadFloats));
    __builtin_memset(current_.o, 0, sizeof(float) * static_cast<size_t>(rows * a_.layout.dvp));
  }

  void store_records() {
    const int64_t record = a_.layout.dvp + attn::kPadFloats;
    const int64_t first = item_.partial + static_cast<int64_t>(split_ - item_.first_split) * item_.rows;
    for (int r = 0; r < item_.rows; ++r) {
      float* out = a_.partials + (first + r) * record;
      out[0] = current_.m[r];
      out[1] = current_.l[r];
      for (int64_t c = 0; c < a_.layout.dvp; c += Vec::kLanes)
        store(out + attn::kPadFloats + c, load(current_.o + r * a_.layout.dvp + c));
    }
  }

  void finish() {
    const float* zeros = zeros_;
    for (int r = 0; r < item_.rows; ++r) {
      const float m = any_combined_ ? combined_.m[r] : -__builtin_inff();
      const float l = any_combined_ ? combined_.l[r] : 0.0f;
      finish_packed_row(a_, item_.seq, item_.kv_head, item_.row + r, m, l,
                        any_combined_ ? combined_.o + r * a_.layout.dvp : zeros);
    }
  }

  void add_tile(const Tile<T>& tile, const Tile<T>* next) {
    if constexpr (kRowLanes > 0) {
      add_latent_tile<kRowLanes>(a_, item_, tile, next, q_, scores_, k_, alpha_, current_);
    } else if (item_.rows >= attn::kWidenRows || a_.kv.x_packed) {
      const float* k_rows[attn::kTileKeys];
      const float* v_rows[attn::kTileKeys];
      widen_tile(a_, tile, next, k_, v_, k_rows, v_rows);
      constexpr int kWidth = attn::kPanelVecs<Vec::kLanes> * Vec::kLanes;
      products<float>(tile, k_rows, {v_rows, nullptr, int64_t{attn::kTileKeys} * kWidth}, nullptr);
    } else {
      constexpr int kWidth = attn::kPanelVecs<Vec::kLanes> * Vec::kLanes;
      products<T>(tile, tile.k, {tile.v, next != nullptr ? next->v : nullptr, kWidth},
                  next != nullptr ? next->k : nullptr);
    }
  }

  template <class E>
  void products(const Tile<T>& tile, const E* const* keys, const TileValues<E>& values,
                const E* const* next_k) {
    score_tile<E>(tile, keys, next_k);
    for (int r = 0; r < item_.rows; ++r)
      softmax(tile, r);
    for (int r = item_.rows; r < (item_.rows + 3) / 4 * 4; ++r) {  // padding of the last group
      alpha_[r] = 1.0f;
      __builtin_memset(scores_ + r * attn::kTileKeys, 0, sizeof(float) * attn::kTileKeys);
    }
    // A masked value contributes 0 x V, which is 0 only if V is finite.
    if (tile.uniform || (finite_scales(tile) && all_finite(values, a_.dv, tile.any)))
      return add_values<E>(tile, values);
    for (int r = 0; r < item_.rows; ++r)
      accumulate_seen(scores_ + r * attn::kTileKeys, values, a_.dv, tile.seen[r], alpha_[r],
                      current_.o + r * a_.layout.dvp);
  }

  /// The weights include the scales of V, also those of unseen keys as 0 x scale.
  bool finite_scales(const Tile<T>& tile) const {
    if (a_.kv.v_scales == nullptr) return true;
    Vec sum = zero();
    for (int j = 0; j < attn::kTileKeys; j += Vec::kLanes)
      sum = fma(zero(), load(tile.v_scale + j), sum);
    return reduce_add(sum) == 0.0f;
  }

  static void multiply(float* s, const float* by) {
    for (int j = 0; j < attn::kTileKeys; j += Vec::kLanes)
      store(s + j, load(s + j) * load(by + j));
  }

  uint64_t group_seen(const Tile<T>& tile, int row, int width) const {
    uint64_t seen = 0;
    for (int r = row; r < row + width; ++r)
      seen |= tile.seen[r];
    return seen;
  }

  template <class E>
  void score_tile(const Tile<T>& tile, const E* const* keys, const E* const* next) {
    // Blocks of keys that stay in L1 while all rows are scored against them.
    int block = attn::kTileKeys;
    while (block > 16 && block * a_.layout.dp * static_cast<int64_t>(sizeof(E)) > attn::kScoreBlockBytes)
      block /= 2;
    for (int j = 0; j < attn::kTileKeys; j += block) {
      const uint64_t inside = range_bits(j, j + block, 0);
      for (int r = 0, width = 0; r < item_.rows; r += width) {
        width = group_width(item_.rows - r);
        const uint64_t seen = group_seen(tile, r, width) & inside;
        if (seen == 0) continue;
        const float* q = q_ + r * a_.layout.dp;
        float* s = scores_ + r * attn::kTileKeys;
        if (width == 4)
          score_rows<E, 4>(q, a_.layout.dp, a_.d, keys, seen, next, s);
        else if (width == 2)
          score_rows<E, 2>(q, a_.layout.dp, a_.d, keys, seen, next, s);
        else
          score_rows<E, 1>(q, a_.layout.dp, a_.d, keys, seen, next, s);
        next = nullptr;  // prefetch once
      }
    }
  }

  void softmax(const Tile<T>& tile, int r) {
    float* s = scores_ + r * attn::kTileKeys;
    const uint64_t seen = tile.seen[r];
    if (seen == 0) {
      alpha_[r] = 1.0f;
      __builtin_memset(s, 0, sizeof(float) * attn::kTileKeys);
      return;
    }
    RowScore score;
    score.scale = a_.scale;
    score.softcap = a_.softcap;
    const int row = (item_.row + r) / a_.group;
    if (a_.alibi_slopes != nullptr) {
      const int head = query_head(a_, item_.kv_head, item_.row + r);
      score.slope = a_.alibi_slopes[head];
      if (mutated(Mutation::slopes_of_heads))
        score.slope =
            __builtin_exp2f(-8.0f * static_cast<float>(head + 1) / static_cast<float>(a_.num_heads));
      score.distance = static_cast<float>(row + seq_.n_k - seq_.n_q - tile.start);
    }
    if (seq_.tree_bias != nullptr) {
      const uint64_t in_tree =
          range_bits(seq_.n_k - seq_.n_q, seq_.n_k - seq_.n_q + seq_.tree_size, tile.start) & tile.any;
      if (in_tree != 0) {
        score.bias_first = __builtin_ctzll(in_tree);
        score.bias_last = 64 - __builtin_clzll(in_tree);
        score.bias = seq_.tree_bias + static_cast<int64_t>(row) * seq_.tree_size + tile.start +
                     score.bias_first - (seq_.n_k - seq_.n_q);
      }
    }
    if (a_.kv.k_scales != nullptr) multiply(s, tile.k_scale);
    alpha_[r] = softmax_row(s, seen, score, {current_.m + r, lanes_ + r * attn::kPadFloats});
    if (a_.kv.v_scales != nullptr) multiply(s, tile.v_scale);  // for P V only: row_sum already has P
  }

  template <class E>
  void add_values(const Tile<T>& tile, const TileValues<E>& values) {
    constexpr int kWidth = attn::kPanelVecs<Vec::kLanes> * Vec::kLanes;
    const int panels = (a_.dv + kWidth - 1) / kWidth;
    for (int panel = 0; panel < panels; ++panel) {
      for (int r = 0, width = 0; r < item_.rows; r += width) {
        width = group_width(item_.rows - r);
        const uint64_t seen = group_seen(tile, r, width);
        if (seen == 0) continue;
        const int first = __builtin_ctzll(seen);
        const int last = 64 - __builtin_clzll(seen);
        const float* p = scores_ + r * attn::kTileKeys;
        float* o = current_.o + r * a_.layout.dvp;
        const int64_t stride = a_.layout.dvp;
        if (width == 4)
          accumulate_rows<E, 4>(p, values, r == 0 ? values.next : nullptr, panel, a_.dv, first, last,
                                alpha_ + r, o, stride);
        else if (width == 2)
          accumulate_rows<E, 2>(p, values, r == 0 ? values.next : nullptr, panel, a_.dv, first, last,
                                alpha_ + r, o, stride);
        else
          accumulate_rows<E, 1>(p, values, r == 0 ? values.next : nullptr, panel, a_.dv, first, last,
                                alpha_ + r, o, stride);
      }
    }
  }

  const attn::Params& a_;
  const attn::Item& item_;
  const attn::Sequence& seq_;
  float *q_, *scores_, *lanes_, *alpha_, *k_, *v_, *zeros_;
  States current_, combined_;  // the current split, and those before it
  int split_ = -1;
  bool any_combined_ = false;
};

template <class T>
void run_latent_item(const attn::Params& a, const attn::Item& item, float* scratch) {
  if (item.rows <= 16) return ItemRun<T, 16>(a, item, scratch).run();
  if (item.rows <= 32) return ItemRun<T, 32>(a, item, scratch).run();
  if (item.rows <= 48) return ItemRun<T, 48>(a, item, scratch).run();
  return ItemRun<T, 64>(a, item, scratch).run();
}

template <class T>
void run_item_of(const attn::Params& a, const attn::Item& item, float* scratch) {
  if (a.latent) return run_latent_item<T>(a, item, scratch);
  ItemRun<T>(a, item, scratch).run();
}

inline void run_item(const attn::Params& a, const attn::Item& item, float* scratch) {
  if (mutated(Mutation::instance_missing) && a.kv.dtype == KvCacheDType::fp8_e5m2) return;
  switch (a.kv.dtype) {
    case KvCacheDType::float32: return run_item_of<float>(a, item, scratch);
    case KvCacheDType::float16: return run_item_of<fp16>(a, item, scratch);
    case KvCacheDType::bfloat16: return run_item_of<bf16>(a, item, scratch);
    case KvCacheDType::fp8_e4m3: return run_item_of<e4m3>(a, item, scratch);
    case KvCacheDType::fp8_e5m2: return run_item_of<e5m2>(a, item, scratch);
    case KvCacheDType::int8_per_token_head: return run_item_of<int8_t>(a, item, scratch);
    case KvCacheDType::fp8_ds_mla: return run_latent_item<ds_mla>(a, item, scratch);
    default: __builtin_unreachable();  // the backend rejects other types
  }
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
