#pragma once
// Queries and tiles of keys and values, of any type and place, into shared memory as the type of the products.
#include "kernels/cuda/portable/elements.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::portable {

/// Rows of the item's tile, zeros where there are none. What is copied comes with the next group of copies; a
/// barrier must follow.
template <class P>
__device__ void load_queries(const AttentionParams& p, const Access& access, const WorkItem& item, int head,
                             uint32_t tile) {
  const KvType type = stored_query(access.q);
  const int bytes = kv_bytes(type), group = static_cast<int>(p.group.divisor);
  const int rows = item.n_q * group - item.row_first;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < P::kRows * P::kUnits; i += P::kThreads) {
    const int row = i / P::kUnits, unit = i % P::kUnits;
    const int packed = item.row_first + row, q_row = p.group.quotient(packed);
    const int count = row < rows ? p.head_dim - unit * P::kUnit : 0;
    const int64_t at = static_cast<int64_t>(item.q_first + q_row) * p.q_row_stride +
                       static_cast<int64_t>(head * group + packed - q_row * group) * p.head_dim +
                       unit * P::kUnit;
    const char* from = static_cast<const char*>(p.q) + (count > 0 ? at * bytes : 0);
    const uint32_t to = tile + P::Tile::offset(row, unit);
    if (access.load_q == Load::copy) {
      cp_async_16(to, from, count > 0);
      continue;
    }
    const Unit raw = read_scalar<P::kUnit>(from, bytes, bytes, count);
    store_shared(to, convert<typename P::C>(type, raw));
  }
}

/// Where a key lies, of one thread; threads past a tile's keys have none.
struct KeyPlace {
  int64_t page = 0;
  int slot = 0;
  bool wanted = false;  ///< keys that no row sees are never read
};

template <class P>
struct KeyStream {
  static constexpr int kTile = P::kTileKeys;
  static constexpr int64_t kNone = INT64_MIN;

  const AttentionParams& p;
  const Access& access;
  const WorkItem& item;
  int head;
  uint32_t slots;
  int64_t* places;    ///< [2][K, V][kTile] offsets in bytes
  uint32_t factors;   ///< [3][K, V][kTile] scales of tokens

  /// `shared`: after the queries.
  __device__ KeyStream(const AttentionParams& params, const Access& how, const WorkItem& work, int kv_head,
                       char* shared)
      : p(params), access(how), item(work), head(kv_head), slots(shared_address(shared)) {
    shared += P::kSlots * P::kSlotBytes;
    places = reinterpret_cast<int64_t*>(shared);
    factors = shared_address(shared) + P::kPlaceBytes;
  }

  /// The first tile, and the one after; tiles between the sink tokens and the window are left out.
  __device__ int first() const { return skip(item.key_first); }
  __device__ int next(int key) const { return skip(key + kTile); }
  __device__ int skip(int key) const {
    return key >= p.mask.sink_tokens && key + kTile <= item.key_low ? item.key_low / kTile * kTile : key;
  }

  /// This thread's key of the tile at `tile_key`.
  __device__ KeyPlace find(int tile_key) const {
    KeyPlace place;
    const int key = tile_key + static_cast<int>(threadIdx.x);
    place.wanted = threadIdx.x < kTile && key < item.key_last &&
                   (key >= item.key_low || key < p.mask.sink_tokens);
    if (!place.wanted) return place;
    if (p.kv.pages == nullptr) {
      place.page = item.pages + key;
      return place;
    }
    const int index = p.kv.page_size.quotient(key);
    place.slot = key - index * static_cast<int>(p.kv.page_size.divisor);
    place.page = __ldg(p.kv.pages + item.pages + index);
    return place;
  }

  /// Notes where tile n's keys lie and asks for their scales; those come with the next group of copies.
  __device__ void put(int n, const KeyPlace& place) const {
    if (threadIdx.x >= kTile) return;
    const KvParams& kv = p.kv;
    int64_t* to = places + n % 2 * (2 * kTile) + threadIdx.x;
    to[0] = place.wanted ? place.page * kv.k_page_stride + place.slot * kv.k_slot_stride : kNone;
    to[kTile] = place.wanted ? place.page * kv.v_page_stride + place.slot * kv.v_slot_stride : kNone;
    if (kv.k_scales == nullptr) return;
    const int64_t at = place.page * kv.scale_page_stride + place.slot * kv.scale_slot_stride +
                       head * kv.scale_head_stride;
    const uint32_t factor = factors_of(n) + threadIdx.x * 4;
    cp_async_4(factor, kv.k_scales + (place.wanted ? at : 0), place.wanted);
    cp_async_4(factor + kTile * 4, kv.v_scales + (place.wanted ? at : 0), place.wanted);
  }
  /// K's of tile n; V's follow.
  __device__ uint32_t factors_of(int n) const { return factors + n % 3 * (2 * kTile * 4); }

  /// K or V of tile n, put before, into a slot.
  template <bool IsV>
  __device__ void load(int n, int slot) const {
    const KvParams& kv = p.kv;
    const char* base = IsV ? kv.v + head * kv.v_head_stride : kv.k + head * kv.k_head_stride;
    const int64_t* offsets = places + n % 2 * (2 * kTile) + (IsV ? kTile : 0);
    const uint32_t tile = slots + slot * P::kSlotBytes;
    const int dims = IsV ? p.v_head_dim : p.head_dim;
    const Load how = IsV ? access.load_v : access.load_k;
    static_assert(kTile * P::kUnits % P::kThreads == 0 && P::kThreads % 32 == 0);
    constexpr int kEach = kTile * P::kUnits / P::kThreads;
    if (how == Load::copy) {
      const int64_t unit_stride = !IsV && kv.k_chunk_stride != 0 ? kv.k_chunk_stride : 16;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int index = i * P::kThreads + static_cast<int>(threadIdx.x);
        const int row = index / P::kUnits, unit = index % P::kUnits;
        const int64_t at = offsets[row];
        const bool valid = at != kNone && unit * P::kUnit < dims;
        cp_async_16(tile + P::Tile::offset(row, unit), valid ? base + at + unit * unit_stride : base, valid);
      }
      return;
    }
    const int bytes = kv_bytes(access.kv);
    const int64_t stride = IsV && kv.v_dim_stride != 0 ? kv.v_dim_stride : bytes;
    // Where a unit of a row begins; it is at most 16 bytes, so that one of K lies in one run.
    const auto place = [&](int64_t at, int unit) {
      const int first = unit * P::kUnit * bytes;
      if (IsV || kv.k_chunk_stride == 0) return base + at + unit * P::kUnit * stride;
      return base + at + first / 16 * kv.k_chunk_stride + first % 16;
    };
    if (how == Load::wide) {
      constexpr int kBatch = kEach < 4 ? kEach : 4;  // loads in flight
#pragma unroll 1
      for (int first = static_cast<int>(threadIdx.x); first < kTile * P::kUnits;
           first += kBatch * P::kThreads) {
        Unit raw[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int row = row_of(first + i * P::kThreads), unit = unit_of(first + i * P::kThreads);
          const int64_t at = offsets[row];
          raw[i] = Unit{};
          if (at != kNone && unit * P::kUnit < dims) raw[i] = read_wide<P::kUnit>(place(at, unit), bytes);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int row = row_of(first + i * P::kThreads), unit = unit_of(first + i * P::kThreads);
          store_shared(tile + P::Tile::offset(row, unit), convert<typename P::C>(access.kv, raw[i]));
        }
      }
      return;
    }
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * P::kUnits; i += P::kThreads) {
      const int row = row_of(i), unit = unit_of(i);
      const int64_t at = offsets[row];
      const int count = at == kNone ? 0 : dims - unit * P::kUnit;
      Unit raw{};
      if (count > 0) raw = read_scalar<P::kUnit>(place(at, unit), stride, bytes, count);
      store_shared(tile + P::Tile::offset(row, unit), convert<typename P::C>(access.kv, raw));
    }
  }

 private:
  /// Lanes follow what is contiguous in memory.
  __device__ int row_of(int index) const { return access.x_packed ? index % kTile : index / P::kUnits; }
  __device__ int unit_of(int index) const { return access.x_packed ? index / kTile : index % P::kUnits; }
};

}  // namespace fovea::cuda::portable
