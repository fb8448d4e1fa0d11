#pragma once
// Tiles of MLA. A tile's records are widened once, into panels of 64 dimensions, and serve all rows of the
// item, as keys and then as values:
//
//   scores   S^T[key][row] = sum over d of k[key][d] q[d][row]: rows are lanes, so that no sum crosses lanes
//   softmax  over keys, for a vector of rows at once
//   values   O[row][d] += P^T[key][row] v[key][d]: dimensions are lanes
//
// Every (row, key) and every (row, dimension) is one chain of fused multiply-adds in ascending order, and
// every row's sum of weights one chain over its keys. No row count, tile shape or position in a vector
// changes a bit of it.
#include "kernels/cpu/attn_combine-inl.h"
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/attn_tile-inl.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

inline constexpr int kPanel = attn::kPadPanel;  // dimensions of a panel: [kTileKeys, kPanel], 16 KiB

inline constexpr int kLineFloats = 16;  // of a cache line

/// Rows of a register tile of P V; with kPanelVecs vectors, 16 (AVX-512) or 12 accumulators.
inline constexpr int kValueRows = Vec::kLanes == 16 ? 4 : 6;

/// Keys and vectors of rows in a register tile of scores, for `vecs` vectors of rows: 16 (AVX-512) or 12
/// accumulators, and about as many loads as products where rows are few.
struct ScoreTile {
  int vecs, keys;
};
constexpr ScoreTile score_tile_of(int vecs) {
  if (Vec::kLanes != 16) return {2, 6};
  return {vecs, vecs == 1 ? 16 : vecs == 4 ? 4 : 8};
}

/// A byte of an fp8_ds_mla record (kernels/cache/ds_mla.h).
struct ds_mla {
  uint8_t bits;
};

/// Dimensions [c, c + n) of a record, widened; they lie in one panel.
template <class T>
FOVEA_INLINE void widen_record(const T* record, int, int c, int n, float* out) {
  widen(record + c, n, out);
}
FOVEA_INLINE void widen_record(const ds_mla* record, int rank, int c, int n, float* out) {
  if (c >= rank) return widen(reinterpret_cast<const bf16*>(record + rank + rank / 32) + (c - rank), n, out);
  float scale;
  __builtin_memcpy(&scale, record + rank + c / 128 * 4, sizeof scale);
  const Vec by = set1(scale), code = set1(attn::load_factor(KvCacheDType::fp8_e4m3));
  const auto* codes = reinterpret_cast<const e4m3*>(record) + c;
  for (int i = 0; i < n; i += Vec::kLanes)  // n is a whole panel
    store(out + i, load(codes + i) * code * by);
}

/// Q of the item's rows as columns [d, kWidth], with zeros past the rows.
template <int kWidth, class T>
void load_query_columns(const attn::Params& a, const attn::Item& item, float* out) {
  constexpr int kLanes = Vec::kLanes;
  for (int r0 = 0; r0 < kWidth; r0 += kLanes) {
    const T* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const int r = item.row + r0 + i;
      rows[i] = r0 + i >= item.rows ? nullptr
                                    : static_cast<const T*>(a.q) +
                                          row_offset(a.q_rows, a.seqs[item.seq].first_row + r / a.group,
                                                     query_head(a, item.kv_head, r));
    }
    for (int c = 0; c < a.d; c += kLanes) {
      const int n = a.d - c < kLanes ? a.d - c : kLanes;
      Vec block[kLanes];
      for (int i = 0; i < kLanes; ++i)
        block[i] = rows[i] == nullptr ? zero() : load_n(rows[i] + c, n);
      transpose(block);
      for (int i = 0; i < n; ++i)
        store(out + static_cast<int64_t>(c + i) * kWidth + r0, block[i]);
    }
  }
}

/// Scores of kKeys keys with kVecs vectors of rows: adds n dimensions to `s`, or begins with them. `ahead`
/// (null = none): n cache lines that will be written soon.
template <int kWidth, int kVecs, int kKeys>
FOVEA_INLINE void score_columns(const float* q, const float* k, int n, bool begins, float* s,
                                const float* ahead) {
  constexpr int kLanes = Vec::kLanes;
  Vec sum[kKeys][kVecs];
#pragma GCC unroll 16
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      sum[j][v] = begins ? zero() : load(s + j * kWidth + v * kLanes);
  for (int c = 0; c < n; ++c) {
    if (ahead != nullptr) __builtin_prefetch(ahead + c * kLineFloats, 1, 3);
    Vec x[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      x[v] = load(q + c * kWidth + v * kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const Vec y = set1(k[j * kPanel + c]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v)
        sum[j][v] = fma(x[v], y, sum[j][v]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      store(s + j * kWidth + v * kLanes, sum[j][v]);
}

/// Scores of the keys [first, last), multiples of 4 apart, from one panel: q [n, kWidth], k [kTileKeys,
/// kPanel], s [kTileKeys, kWidth]. Meanwhile fetches the panel `ahead`, which is written next: its stores
/// would wait for L2.
template <int kWidth>
void score_panel(const float* q, const float* k, int n, bool begins, int first, int last, float* s,
                 const float* ahead) {
  constexpr int kVecs = kWidth / Vec::kLanes;
  constexpr ScoreTile tile = score_tile_of(kVecs);
  const float* end = ahead + attn::kTileKeys * kPanel;
  for (int j = first; j < last;) {
    const bool whole = j + tile.keys <= last;
    for (int v = 0; v < kVecs; v += tile.vecs) {
      const int at = v * Vec::kLanes;
      const float* lines = ahead < end ? ahead : nullptr;
      if (whole)
        score_columns<kWidth, tile.vecs, tile.keys>(q + at, k + j * kPanel, n, begins, s + j * kWidth + at,
                                                    lines);
      else
        score_columns<kWidth, tile.vecs, 4>(q + at, k + j * kPanel, n, begins, s + j * kWidth + at, lines);
      if (lines != nullptr) ahead += kPanel * kLineFloats;
    }
    j += whole ? tile.keys : 4;
  }
}

/// What the softmax of a tile needs: which rows see a key (bit r of seen[j]; not read if `uniform`), the keys
/// [first, last) that some row sees, and the scales of an 8-bit cache's tokens (null = none).
struct LatentTile {
  int first, last;
  uint64_t any;
  bool uniform;
  const uint64_t* seen;
  float scale;
  const float* k_scale;
  const float* v_scale;
};

/// Scores become weights e^(s - m) in place, 0 where a row does not see a key; updates m and l, and writes
/// the factors of the earlier sums.
template <int kWidth>
void softmax_columns(const LatentTile& tile, float* s, float* m, float* l, float* alpha) {
  constexpr int kLanes = Vec::kLanes;
  constexpr uint32_t kAll = kLanes == 32 ? ~0u : (1u << kLanes) - 1u;
  const float minus_inf = -__builtin_inff();
  for (int v = 0; v < kWidth; v += kLanes) {
    Vec high = set1(minus_inf);
    for (int j = tile.first; j < tile.last; ++j) {
      if ((tile.any >> j & 1) == 0) continue;
      Vec x = load(s + j * kWidth + v);
      if (tile.k_scale != nullptr) x = x * set1(tile.k_scale[j]);
      x = x * set1(tile.scale);
      if (!tile.uniform) x = select_bits(static_cast<uint32_t>(tile.seen[j] >> v) & kAll, x, set1(minus_inf));
      store(s + j * kWidth + v, x);
      high = max(high, x);
    }
    const Vec before = load(m + v);
    const Vec after = max(before, high);
    // All seen scores are -inf: every weight is 0.
    const Vec base = select_less(after, set1(-3.4028234663852886e38f), zero(), after);
    const Vec factor = exp(before - base);
    Vec total = load(l + v) * factor;
    store(m + v, after);
    store(alpha + v, factor);
    for (int j = tile.first; j < tile.last; ++j) {
      float* at = s + j * kWidth + v;
      if ((tile.any >> j & 1) == 0) {
        store(at, zero());
        continue;
      }
      const Vec below = load(at) - base;
      const Vec weight = select_less(below, set1(attn::kMinExponent), zero(), exp(below));
      total = total + weight;
      store(at, tile.v_scale != nullptr ? weight * set1(tile.v_scale[j]) : weight);
    }
    store(l + v, total);
  }
}

/// Parts of the next tile's records to prefetch: `count` elements from records[j] + at on; null = none.
template <class T>
struct Ahead {
  const T* const* records;
  int64_t at;
  int count;
};

/// Columns [0, kVecs x kLanes) of kRows rows of O. Meanwhile fetches those of the rows `o_ahead` (null =
/// none), which follow.
template <int kWidth, int kRows, int kVecs, class T>
FOVEA_INLINE void add_values_of(const float* p, const float* values, int first, int last, const float* alpha,
                                float* o, int64_t stride, Ahead<T> next, const float* o_ahead) {
  constexpr int kLanes = Vec::kLanes;
  for (int r = 0; r < kRows && o_ahead != nullptr; ++r)
    for (int c = 0; c < kVecs * kLanes; c += kLineFloats)
      __builtin_prefetch(o_ahead + r * stride + c, 1, 3);
  Vec sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec scale = set1(alpha[r]);
#pragma GCC unroll 4
    for (int c = 0; c < kVecs; ++c)
      sum[r][c] = load(o + r * stride + c * kLanes) * scale;
  }
  for (int j = first; j < last; ++j) {
    if (next.records != nullptr) prefetch(next.records[j] + next.at, next.count);
    Vec v[kVecs];
#pragma GCC unroll 4
    for (int c = 0; c < kVecs; ++c)
      v[c] = load(values + j * kPanel + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set1(p[j * kWidth + r]);
#pragma GCC unroll 4
      for (int c = 0; c < kVecs; ++c)
        sum[r][c] = fma(x, v[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kVecs; ++c)
      store(o + r * stride + c * kLanes, sum[r][c]);
}

/// O of one tile: p [kTileKeys, kWidth], panels [dv / kPanel][kTileKeys, kPanel] (a last panel may be partly
/// other dimensions, whose sums land in the padding of O), o [rows, dvp].
template <int kWidth, class T>
void add_latent_values(const attn::Params& a, int rows, const float* p, const float* panels, int first,
                       int last, const float* alpha, float* o, const T* const* next) {
  constexpr int kVecs = attn::kPanelVecs<Vec::kLanes>;
  constexpr int kColumns = kVecs * Vec::kLanes;
  const int64_t stride = a.layout.dvp;
  const int parts = static_cast<int>(stride / kColumns);
  const int share = (a.d + parts - 1) / parts;
  for (int part = 0; part < parts; ++part) {
    const int column = part * kColumns;
    const float* values = panels + int64_t{column / kPanel} * attn::kTileKeys * kPanel + column % kPanel;
    Ahead<T> ahead = {next, int64_t{part} * share, share};
    const auto add = [&]<int kRows>(int r) __attribute__((always_inline)) {
      float* at = o + r * stride + column;
      const float* o_ahead = r + 2 * kRows <= rows ? at + kRows * stride : nullptr;
      add_values_of<kWidth, kRows, kVecs>(p + r, values, first, last, alpha + r, at, stride, ahead, o_ahead);
      ahead.records = nullptr;  // once
    };
    int r = 0;
    for (; r + kValueRows <= rows; r += kValueRows)
      add.template operator()<kValueRows>(r);
    if (kValueRows > 4 && r + 4 <= rows) {
      add.template operator()<4>(r);
      r += 4;
    }
    for (; r + 2 <= rows; r += 2)
      add.template operator()<2>(r);
    if (r < rows) add.template operator()<1>(r);
  }
}

/// The same for tiles where 0 x V is not 0: each row adds the keys that it sees.
template <int kWidth>
void add_seen_latent_values(const attn::Params& a, int rows, const float* p, const float* panels,
                            const uint64_t* seen, const float* alpha, float* o) {
  for (int r = 0; r < rows; ++r)
    for (int64_t c = 0; c < a.layout.dvp; c += Vec::kLanes) {
      const float* values = panels + c / kPanel * attn::kTileKeys * kPanel + c % kPanel;
      float* at = o + r * a.layout.dvp + c;
      Vec sum = load(at) * set1(alpha[r]);
      for (uint64_t left = seen[r]; left != 0; left &= left - 1) {
        const int j = __builtin_ctzll(left);
        sum = fma(set1(p[j * kWidth + r]), load(values + int64_t{j} * kPanel), sum);
      }
      store(at, sum);
    }
}

/// Whether all values (and scales) of the keys [first, last) are finite.
inline bool all_finite_latents(const attn::Params& a, const float* panels, const float* v_scale, int first,
                               int last) {
  Vec sum = zero();  // of 0 x v: NaN if one is not finite
  for (int64_t c = 0; c < a.dv; c += Vec::kLanes) {
    const float* values = panels + c / kPanel * attn::kTileKeys * kPanel + c % kPanel;
    for (int j = first; j < last; ++j)
      sum = fma(zero(), load(values + int64_t{j} * kPanel), sum);
  }
  for (int j = first; j < last && v_scale != nullptr; ++j)
    sum = fma(zero(), set1(v_scale[j]), sum);
  return reduce_add(sum) == 0.0f;
}

/// Bit r of columns[j] = bit j of seen[r].
inline void seen_by_key(const uint64_t* seen, int rows, uint64_t* columns) {
  __builtin_memset(columns, 0, sizeof(uint64_t) * attn::kTileKeys);
  for (int r = 0; r < rows;) {
    uint64_t run = 0;  // rows in succession that see the same keys, as the heads of a token do
    const uint64_t bits = seen[r];
    for (; r < rows && seen[r] == bits; ++r)
      run |= uint64_t{1} << r;
    for (uint64_t left = bits; left != 0; left &= left - 1)
      columns[__builtin_ctzll(left)] |= run;
  }
}

/// Adds a tree's bias to scores that are already scaled.
template <int kWidth>
void add_tree_bias(const attn::Params& a, const attn::Item& item, int64_t start, uint64_t any, float* s) {
  const attn::Sequence& seq = a.seqs[item.seq];
  const int64_t context = seq.n_k - seq.n_q;
  const uint64_t in_tree = range_bits(context, context + seq.tree_size, start) & any;
  for (int r = 0; r < item.rows; ++r) {
    const int64_t row = (item.row + r) / a.group;
    for (uint64_t left = in_tree; left != 0; left &= left - 1) {
      const int j = __builtin_ctzll(left);
      s[j * kWidth + r] += seq.tree_bias[row * seq.tree_size + start + j - context];
    }
  }
}

/// Adds one tile to the state of an item's rows. q as load_query_columns() writes it; s [kTileKeys, kWidth]
/// and panels [dp / kPanel][kTileKeys, kPanel] are scratch.
template <int kWidth, class T>
void add_latent_tile(const attn::Params& a, const attn::Item& item, const Tile<T>& tile, const Tile<T>* next,
                     const float* q, float* s, float* panels, float* alpha, States state) {
  const int first = __builtin_ctzll(tile.any) / 4 * 4;
  const int last = (67 - __builtin_clzll(tile.any)) / 4 * 4;
  for (int c = 0; c < a.d; c += kPanel) {
    float* panel = panels + int64_t{c} * attn::kTileKeys;
    const int n = a.d - c < kPanel ? a.d - c : kPanel;
    for (int j = first; j < last; ++j)
      widen_record(tile.k[j], a.dv, c, n, panel + int64_t{j} * kPanel);
    const float* ahead = c + kPanel < a.d ? panel + attn::kTileKeys * kPanel : panels;
    score_panel<kWidth>(q + int64_t{c} * kWidth, panel, n, c == 0, first, last, s, ahead);
  }
  uint64_t columns[attn::kTileKeys];
  if (!tile.uniform) seen_by_key(tile.seen, item.rows, columns);
  LatentTile t = {first, last, tile.any, tile.uniform, columns, a.scale, nullptr, nullptr};
  if (a.kv.k_scales != nullptr) {
    t.k_scale = tile.k_scale;
    t.v_scale = tile.v_scale;
  }
  if (a.seqs[item.seq].tree_bias != nullptr) {
    for (int j = first; j < last; ++j)
      for (int v = 0; v < kWidth; v += Vec::kLanes) {
        float* at = s + j * kWidth + v;
        const Vec x = t.k_scale != nullptr ? load(at) * set1(t.k_scale[j]) : load(at);
        store(at, x * set1(t.scale));
      }
    add_tree_bias<kWidth>(a, item, tile.start, tile.any, s);
    t.k_scale = nullptr;
    t.scale = 1.0f;
  }
  softmax_columns<kWidth>(t, s, state.m, state.l, alpha);
  // A masked value contributes 0 x V, which is 0 only if V is finite.
  if (tile.uniform || all_finite_latents(a, panels, t.v_scale, first, last))
    return add_latent_values<kWidth>(a, item.rows, s, panels, first, last, alpha, state.o,
                                     next != nullptr ? next->k : nullptr);
  add_seen_latent_values<kWidth>(a, item.rows, s, panels, tile.seen, alpha, state.o);
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
