#pragma once
// A tile of keys of a work item: pointers to the keys and values, which row sees which key, and the copy
// widened to fp32.
#include "base/mutation.h"
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Prefetches `n` elements at `p`, one cache line after the other, into L2: the next tile is as large as L1.
/// Calls are spread over the products, because few cache misses can be in flight.
template <class T>
FOVEA_INLINE void prefetch(const T* p, int n) {
  for (int at = 0; at < n; at += 64 / static_cast<int>(sizeof(T)))
    __builtin_prefetch(p + at, 0, 2);
}

/// Bits of the keys [first, last) in the tile that begins at key `start`.
FOVEA_INLINE uint64_t range_bits(int64_t first, int64_t last, int64_t start) {
  const int64_t a = first - start < 0 ? 0 : first - start;
  const int64_t b = last - start > attn::kTileKeys ? attn::kTileKeys : last - start;
  if (a >= b) return 0;
  return (~uint64_t{0} >> (attn::kTileKeys - (b - a))) << a;
}

/// Bits [start, start + count) of row `row` of a packed mask with n_k columns; count <= 64.
inline uint64_t packed_bits(const uint8_t* packed, int64_t row, int64_t n_k, int64_t start, int count) {
  const int64_t bit = row * n_k + start;
  const int64_t byte = bit / 8;
  const int shift = static_cast<int>(bit % 8);
  const int bytes = (shift + count + 7) / 8;  // up to 9, all inside the mask
  uint64_t word = 0;
  for (int i = 0; i < bytes && i < 8; ++i)
    word |= static_cast<uint64_t>(packed[byte + i]) << (8 * i);
  word >>= shift;
  if (bytes == 9) word |= static_cast<uint64_t>(packed[byte + 8]) << (64 - shift);
  return word;
}

/// The list of a sequence's one row, where attention is sparse.
FOVEA_INLINE const int32_t* chosen_keys(const attn::Params& a, const attn::Sequence& seq) {
  return a.chosen + seq.first_row * a.chosen_row;
}

/// Keys of the tile at `start` that query row `row` of `seq` sees.
inline uint64_t row_bits(const attn::Params& a, const attn::Sequence& seq, int64_t row, int64_t start) {
  const attn::RowKeys& keys = a.row_keys[seq.first_row + row];
  uint64_t bits =
      range_bits(keys.first, keys.last, start) | range_bits(keys.sink_first, keys.sink_last, start);
  if (bits == 0) return 0;
  if (a.chosen != nullptr) {
    const int32_t* list = chosen_keys(a, seq) + start;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
      const int32_t key = list[__builtin_ctzll(left)];
      if (key < 0 || key >= seq.n_listed) bits &= ~(left & (~left + 1));
    }
  }
  if (seq.packed != nullptr) {
    const int64_t left = seq.n_k - start;
    const int count = left < attn::kTileKeys ? static_cast<int>(left) : attn::kTileKeys;
    bits &= packed_bits(seq.packed, row, seq.n_k, start, count);
  }
  if (seq.tree_bias != nullptr) {  // -inf hides a key, and so its value
    const int64_t context = seq.n_k - seq.n_q;
    const uint64_t in_tree = range_bits(context, context + seq.tree_size, start) & bits;
    for (uint64_t left = in_tree; left != 0; left &= left - 1) {
      const int64_t key = start + __builtin_ctzll(left);
      if (seq.tree_bias[row * seq.tree_size + key - context] == -__builtin_inff())
        bits &= ~(left & (~left + 1));
    }
  }
  return bits;
}

template <class T>
struct Tile {
  int64_t start = 0;     // first key
  uint64_t any = 0;      // keys that some row sees; 0 = no tile
  bool uniform = false;  // every row sees `any`
  uint64_t seen[attn::kBlockRows];
  const T* k[attn::kTileKeys];  // unseen keys point to zeros: their page may be invalid
  const T* v[attn::kTileKeys];
  // Only where the cache has scales of its own for each token and head; 0 for unseen keys.
  float k_scale[attn::kTileKeys], v_scale[attn::kTileKeys];
};

/// Fills `seen`, `any` and `uniform` of the tile that begins at `start`.
template <class T>
void find_seen(const attn::Params& a, const attn::Item& item, int64_t start, Tile<T>& tile) {
  const attn::Sequence& seq = a.seqs[item.seq];
  uint64_t any = 0, all = ~uint64_t{0}, bits = 0;
  int64_t last_row = -1;
  for (int r = 0; r < item.rows; ++r) {
    const int64_t row = (item.row + r) / a.group;
    if (row != last_row) bits = row_bits(a, seq, row, start);
    last_row = row;
    tile.seen[r] = bits;
    any |= bits;
    all &= bits;
  }
  for (int r = item.rows; r < attn::kBlockRows; ++r)
    tile.seen[r] = 0;
  tile.start = start;
  tile.any = any;
  tile.uniform = any == all;
}

/// Prefetches the scales of the kTileKeys keys from `start` on, which are those of the next tile: find_keys()
/// reads them, and each line would be a miss. Addresses are only prefetched, never read: page ids of keys
/// that no row sees may be invalid. Forced inline: the compiler drops calls to a function that only
/// prefetches.
FOVEA_INLINE void prefetch_scales(const attn::Params& a, const attn::Item& item, int64_t start) {
  const attn::Pages& kv = a.kv;
  const attn::Sequence& seq = a.seqs[item.seq];
  const int64_t end = start + attn::kTileKeys < seq.n_k ? start + attn::kTileKeys : seq.n_k;
  const int64_t line = kv.scale_slot > 0 && kv.scale_slot < 16 ? 16 / kv.scale_slot : 1;  // keys per line
  for (int64_t j = start; j < end;) {
    const int64_t slot = j % kv.page_size;
    const int64_t count = kv.page_size - slot < end - j ? kv.page_size - slot : end - j;
    const auto page = static_cast<uint64_t>(seq.pages[j / kv.page_size]);
    const uint64_t at = page * static_cast<uint64_t>(kv.scale_page) +
                        static_cast<uint64_t>(item.kv_head * kv.scale_head + slot * kv.scale_slot);
    for (int64_t i = 0; i < count; i += line) {
      const uint64_t bytes = (at + static_cast<uint64_t>(i * kv.scale_slot)) * sizeof(float);
      // NOLINTBEGIN(performance-no-int-to-ptr): a pointer must not go beyond its array, an address may
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uint64_t>(kv.k_scales) + bytes), 0,
                         2);
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uint64_t>(kv.v_scales) + bytes), 0,
                         2);
      // NOLINTEND(performance-no-int-to-ptr)
    }
    j += count;
  }
}

/// Offset of a key in the cache, in elements.
FOVEA_INLINE int64_t offset_of(int64_t elements) {
  return mutated(Mutation::offsets_of_32_bits) ? elements & 0x7fffffff : elements;
}

/// Offset of a slot of V in its page.
template <class T>
FOVEA_INLINE int64_t v_slot(const attn::Pages& kv, int64_t slot) {
  constexpr int64_t kX = 16 / static_cast<int64_t>(sizeof(T));
  return kv.v_chunk == 0 ? slot * kv.v_slot : slot / kX * kv.v_chunk + slot % kX * kv.v_slot;
}

/// find_keys() for keys that a row lists: records of MLA.
template <class T>
void find_chosen_keys(const attn::Params& a, const attn::Item& item, const T* zeros, Tile<T>& tile) {
  const attn::Pages& kv = a.kv;
  const attn::Sequence& seq = a.seqs[item.seq];
  const int32_t* list = chosen_keys(a, seq) + tile.start;
  const T* k = static_cast<const T*>(kv.k);
  for (int j = 0; j < attn::kTileKeys; ++j) {
    tile.k[j] = tile.v[j] = zeros;
    tile.k_scale[j] = tile.v_scale[j] = 0.0f;
    if ((tile.any >> j & 1) == 0) continue;
    const int64_t page = seq.pages[list[j] / kv.page_size], slot = list[j] % kv.page_size;
    tile.k[j] = tile.v[j] = k + offset_of(page * kv.k_page + slot * kv.k_slot);
    if (kv.k_scales == nullptr) continue;
    const int64_t scale = page * kv.scale_page + slot * kv.scale_slot;
    tile.k_scale[j] = kv.k_scales[scale];
    tile.v_scale[j] = kv.v_scales[scale];
  }
}

/// Sets the pointers k and v of a tile to its keys, reading only the table entries of seen keys.
template <class T>
void find_keys(const attn::Params& a, const attn::Item& item, const T* zeros, Tile<T>& tile) {
  if (a.chosen != nullptr) return find_chosen_keys(a, item, zeros, tile);
  const attn::Pages& kv = a.kv;
  const int32_t* pages = a.seqs[item.seq].pages;
  const T* k = static_cast<const T*>(kv.k) + item.kv_head * kv.k_head;
  const T* v = static_cast<const T*>(kv.v) + item.kv_head * kv.v_head;
  const int64_t scale_base = item.kv_head * kv.scale_head;
  if (kv.k_scales != nullptr) prefetch_scales(a, item, tile.start + attn::kTileKeys);
  int64_t entry = tile.start / kv.page_size;
  int64_t slot = tile.start % kv.page_size;
  for (int j = 0; j < attn::kTileKeys;) {
    const int64_t left = kv.page_size - slot;
    const int end = left < attn::kTileKeys - j ? j + static_cast<int>(left) : attn::kTileKeys;
    if (range_bits(j, end, 0) & tile.any) {
      const int64_t page = pages[entry];
      const T* k_row = k + offset_of(page * kv.k_page + slot * kv.k_slot);
      const T* v_row = v + offset_of(page * kv.v_page);
      const int64_t scale = scale_base + page * kv.scale_page + slot * kv.scale_slot;
      for (int64_t i = 0; j < end; ++i, ++j) {
        const bool seen = (tile.any >> j) & 1;
        tile.k[j] = seen ? k_row + i * kv.k_slot : zeros;
        tile.v[j] = seen ? v_row + v_slot<T>(kv, slot + i) : zeros;
        if (kv.k_scales == nullptr) continue;
        tile.k_scale[j] = seen ? kv.k_scales[scale + i * kv.scale_slot] : 0.0f;
        tile.v_scale[j] = seen ? kv.v_scales[scale + i * kv.scale_slot] : 0.0f;
      }
    } else {
      for (; j < end; ++j) {
        tile.k[j] = tile.v[j] = zeros;
        tile.k_scale[j] = tile.v_scale[j] = 0.0f;
      }
    }
    ++entry;
    slot = 0;
  }
}

/// The tiles of an item that have a seen key, in ascending order.
struct TileCursor {
  int64_t next, end, body, body_end;

  explicit TileCursor(const attn::Item& item)
      : next(item.sink_tile), end(item.sink_tile_end), body(item.tile), body_end(item.tile_end) {}
};

/// The next tile, with its keys; tile.any == 0 when there is none.
template <class T>
void next_tile(const attn::Params& a, const attn::Item& item, TileCursor& cursor, const T* zeros,
               Tile<T>& tile) {
  tile.any = 0;
  for (;;) {
    if (cursor.next >= cursor.end) {
      if (cursor.body >= cursor.body_end) return;
      cursor.next = cursor.body;
      cursor.end = cursor.body = cursor.body_end;
      continue;
    }
    find_seen(a, item, cursor.next * attn::kTileKeys, tile);
    ++cursor.next;
    if (tile.any != 0) return find_keys(a, item, zeros, tile);
  }
}

/// Copies n elements widened to `out`, whose length is n rounded up to whole vectors; the rest is 0.
template <class T>
FOVEA_INLINE void widen(const T* in, int n, float* out) {
  int c = 0;
  for (; c + Vec::kLanes <= n; c += Vec::kLanes)
    store(out + c, load(in + c));
  if (c < n) store(out + c, load_n(in + c, n - c));
}

/// A key of the x-packed layout, whose chunks of x elements are k_chunk apart, widened like widen(). x is 4,
/// 8 or 16 elements and divides d.
template <class T>
FOVEA_INLINE void widen_chunks(const T* in, int64_t chunk, int d, float* out) {
  constexpr int kX = 16 / static_cast<int>(sizeof(T));
  constexpr int kStep = kX < Vec::kLanes ? kX : Vec::kLanes;
  for (int c = 0; c < d; c += kStep)
    store_n(out + c, load_n(in + c / kX * chunk + c % kX, kStep), kStep);
  for (int c = d; c % Vec::kLanes != 0; ++c)
    out[c] = 0.0f;
}

/// The values of `count` keys whose slots lie side by side, with elements `stride` apart, widened into the
/// panels of key 0 on: whole vectors of slots are read and transposed.
template <class T>
void widen_columns(const T* in, int count, int64_t stride, int dv, float* out) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kWidth = attn::kPanelVecs<kLanes> * kLanes;
  for (int c = 0; c < dv; c += kLanes) {
    Vec rows[kLanes];
    for (int i = 0; i < kLanes; ++i)
      rows[i] = c + i < dv ? load_n(in + (c + i) * stride, count) : zero();
    transpose(rows);
    for (int j = 0; j < count; ++j)
      store(out + c / kWidth * kWidth * attn::kTileKeys + j * kWidth + c % kWidth, rows[j]);
  }
}

/// widen_tile() for the x-packed layout. Unseen keys point to plain zeros, not to a page.
template <class T>
void widen_packed_tile(const attn::Params& a, const Tile<T>& tile, float* k, float* v) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kWidth = attn::kPanelVecs<kLanes> * kLanes;
  const auto seen = [&](int j) { return (tile.any >> j & 1) != 0; };
  for (int j = 0; j < attn::kTileKeys; ++j) {
    if (seen(j))
      widen_chunks(tile.k[j], a.kv.k_chunk, a.d, k + j * a.layout.dp);
    else
      widen(tile.k[j], a.d, k + j * a.layout.dp);
  }
  for (int j = 0; j < attn::kTileKeys;) {
    int count = 1;
    if (seen(j)) {
      while (count < kLanes && j + count < attn::kTileKeys && seen(j + count) &&
             tile.v[j + count] == tile.v[j] + count)
        ++count;
      widen_columns(tile.v[j], count, a.kv.v_dim, a.dv, v + j * kWidth);
    } else {
      for (int c = 0; c < a.dv; c += kWidth)
        widen(tile.v[j] + c, a.dv - c < kWidth ? a.dv - c : kWidth, v + c * attn::kTileKeys + j * kWidth);
    }
    j += count;
  }
}

/// Keys and values of a tile widened to scratch: k [kTileKeys, dp] padded with zeros, v in panels
/// [dvp / width, kTileKeys, width]; k_rows and v_rows receive the pointers. `next` (null = none) is
/// prefetched.
template <class T>
void widen_tile(const attn::Params& a, const Tile<T>& tile, const Tile<T>* next, float* k, float* v,
                const float** k_rows, const float** v_rows) {
  constexpr int kWidth = attn::kPanelVecs<Vec::kLanes> * Vec::kLanes;
  for (int j = 0; j < attn::kTileKeys; ++j) {
    if (next != nullptr) {
      // A head's elements of an x-packed page are contiguous too, in another order: slot s prefetches the
      // s-th part of them.
      const bool packed = a.kv.x_packed && (next->any >> j & 1) != 0;
      const int64_t slot = packed ? (next->start + j) % a.kv.page_size : 0;
      prefetch(next->k[j] + slot * (a.d - 16 / static_cast<int>(sizeof(T))), a.d);
      const int64_t v_slots = a.kv.v_chunk == 0 ? slot : slot % (16 / static_cast<int>(sizeof(T)));
      prefetch(next->v[j] + v_slots * (a.dv - 1), a.dv);
    }
    k_rows[j] = k + j * a.layout.dp;
    v_rows[j] = v + j * kWidth;
    if (a.kv.x_packed) continue;
    widen(tile.k[j], a.d, k + j * a.layout.dp);
    for (int c = 0; c < a.dv; c += kWidth)
      widen(tile.v[j] + c, a.dv - c < kWidth ? a.dv - c : kWidth, v + c * attn::kTileKeys + j * kWidth);
  }
  if (a.kv.x_packed) widen_packed_tile(a, tile, k, v);
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
