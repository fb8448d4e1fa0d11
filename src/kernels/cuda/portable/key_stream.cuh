#pragma once
// Loads queries and tiles of keys and values, of any type and layout, to shared memory, converted to the type
// of the products.
#include "kernels/cuda/portable/elements.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::portable {

/// Loads the query rows of a work item; rows that do not exist are zeros. Asynchronous copies belong to the
/// next committed group; a barrier must follow.
template <class P>
__device__ void load_queries(const AttentionParams& p, const Access& access, const WorkItem& item, int head,
                             uint32_t tile) {
  const KvType type = stored_query(access.q);
  const int bytes = kv_bytes(type), group = static_cast<int>(p.group.divisor);
  const int rows = item.n_q * group - item.row_first;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < P::kRows * P::kRowChunks; i += P::kThreads) {
    const int row = i / P::kRowChunks, chunk = i % P::kRowChunks;
    const int packed = item.row_first + row, q_row = p.group.quotient(packed);
    const int count = row < rows ? p.head_dim - chunk * P::kChunk : 0;
    const int64_t at =
        p.q_rows.offset(item.q_first + q_row, head * group + packed - q_row * group) + chunk * P::kChunk;
    const char* from = static_cast<const char*>(p.q) + (count > 0 ? at * bytes : 0);
    const uint32_t to = tile + P::Tile::offset(row, chunk);
    if (access.load_q == Load::copy) {
      cp_async_16(to, from, count > 0);
      continue;
    }
    const Chunk raw = read_scalar<P::kChunk>(from, bytes, bytes, count);
    store_shared(to, convert<typename P::C>(type, raw));
  }
}

/// The ring of K and V tiles.
template <class P>
struct KeyStream {
  static constexpr int kTile = P::kTileKeys;
  static constexpr int64_t kNone = INT64_MIN;
  static constexpr int kEach = kTile * P::kRowChunks / P::kThreads;  ///< chunks of a thread
  static_assert(kTile * P::kRowChunks % P::kThreads == 0);

  const AttentionParams& p;
  const Access& access;
  const WorkItem& item;
  const int key_last;  ///< the item's
  int head;
  uint32_t slots;
  int64_t* row_offsets;  ///< [2][K, V][kTile] offsets in bytes
  uint32_t factors;      ///< [3][K, V][kTile] scales of tokens

  /// `shared`: the shared memory after the queries.
  __device__ KeyStream(const AttentionParams& params, const Access& how, const WorkItem& work, int kv_head,
                       char* shared)
      : p(params),
        access(how),
        item(work),
        key_last(work.key_last),
        head(kv_head),
        slots(shared_address(shared)) {
    shared += P::kSlots * P::kSlotBytes;
    row_offsets = reinterpret_cast<int64_t*>(shared);
    factors = shared_address(shared) + P::kOffsetBytes;
  }

  /// The first key of the first tile, and of the tile after `key`; tiles between the sink tokens and the
  /// window are skipped.
  __device__ int first() const { return skip(item.key_first); }
  __device__ int next(int key) const { return skip(key + kTile); }
  __device__ int skip(int key) const {
    return key >= p.mask.sink_tokens && key + kTile <= item.key_low ? item.key_low / kTile * kTile : key;
  }

  /// Whether a key is read; keys that no row sees are not.
  __device__ bool wanted(int key) const {
    return threadIdx.x < kTile && key < key_last &&
           (key >= item.key_low || (key >= item.sink_first && key < p.mask.sink_tokens));
  }

  /// The page of this thread's key of the tile at `tile_key`; threads past a tile's keys have none.
  __device__ int32_t page_of(int tile_key) const {
    const int key = tile_key + static_cast<int>(threadIdx.x);
    if (p.kv.pages == nullptr || !wanted(key)) return 0;
    return __ldg(p.kv.pages + item.pages + p.kv.page_size.quotient(key));
  }

  /// Stores the offsets of the keys of tile n, at `tile_key`, and issues the copies of their scales, which
  /// belong to the next committed group.
  __device__ void store_offsets(int n, int tile_key, int32_t table_page) const {
    if (threadIdx.x >= kTile) return;
    const KvParams& kv = p.kv;
    const int key = tile_key + static_cast<int>(threadIdx.x);
    const bool read = wanted(key);
    int64_t page = table_page;
    int slot = 0;
    if (kv.pages == nullptr)
      page = item.pages + key;
    else
      slot = key - kv.page_size.quotient(key) * static_cast<int>(kv.page_size.divisor);
    int64_t* to = row_offsets + n % 2 * (2 * kTile) + threadIdx.x;
    to[0] = read ? planted_offset(page * kv.k_page_stride + slot * kv.k_slot_stride) : kNone;
    int64_t in_page = slot * kv.v_slot_stride;
    if (kv.v_chunk_stride != 0) {
      const int x = 16 / kv_bytes(access.kv);
      in_page = slot / x * kv.v_chunk_stride + slot % x * kv.v_slot_stride;
    }
    to[kTile] = read ? planted_offset(page * kv.v_page_stride + in_page) : kNone;
    if (kv.k_scales == nullptr) return;
    const int64_t at =
        page * kv.scale_page_stride + slot * kv.scale_slot_stride + head * kv.scale_head_stride;
    const uint32_t factor = factors_of(n) + threadIdx.x * 4;
    cp_async_4(factor, kv.k_scales + (read ? at : 0), read);
    cp_async_4(factor + kTile * 4, kv.v_scales + (read ? at : 0), read);
  }
  /// The scales of K of tile n; those of V follow.
  __device__ uint32_t factors_of(int n) const { return factors + n % 3 * (2 * kTile * 4); }

  /// Loads K or V of tile n, whose offsets have been stored, to a slot.
  template <bool IsV>
  __device__ void load(int n, int slot) const {
    const KvParams& kv = p.kv;
    const char* base = IsV ? kv.v + head * kv.v_head_stride : kv.k + head * kv.k_head_stride;
    const int64_t* offsets = row_offsets + n % 2 * (2 * kTile) + (IsV ? kTile : 0);
    const uint32_t tile = slots + slot * P::kSlotBytes;
    const int dims = IsV ? p.v_head_dim : p.head_dim;
    const Load how = IsV ? access.load_v : access.load_k;
    constexpr int kBatch = kEach < 4 ? kEach : 4;  // loads in flight
    static_assert(kEach % kBatch == 0);
    if (how == Load::copy) {
      const int64_t chunk_stride = !IsV && kv.k_chunk_stride != 0 ? kv.k_chunk_stride : 16;
#pragma unroll 1
      for (int first = static_cast<int>(threadIdx.x); first < kTile * P::kRowChunks;
           first += kBatch * P::kThreads) {
        int64_t at[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          at[i] = offsets[(first + i * P::kThreads) / P::kRowChunks];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int row = (first + i * P::kThreads) / P::kRowChunks,
                    chunk = (first + i * P::kThreads) % P::kRowChunks;
          const bool valid = at[i] != kNone && chunk * P::kChunk < dims;
          cp_async_16(tile + P::Tile::offset(row, chunk), valid ? base + at[i] + chunk * chunk_stride : base,
                      valid);
        }
      }
      return;
    }
    const int bytes = kv_bytes(access.kv);
    const int64_t stride = IsV && kv.v_dim_stride != 0 ? kv.v_dim_stride : bytes;
    // The address of a chunk of a row; it is at most 16 bytes, so that a chunk of K is contiguous.
    const auto chunk_address = [&](int64_t at, int chunk) {
      const int first = chunk * P::kChunk * bytes;
      if (IsV || kv.k_chunk_stride == 0) return base + at + chunk * P::kChunk * stride;
      return base + at + first / 16 * kv.k_chunk_stride + first % 16;
    };
    if (how == Load::wide) {  // unconverted, to where its chunk begins; see widen()
#pragma unroll 2
      for (int i = static_cast<int>(threadIdx.x); i < kTile * P::kRowChunks; i += P::kThreads) {
        const int row = i / P::kRowChunks, chunk = i % P::kRowChunks;
        const int64_t at = offsets[row];
        const bool valid = at != kNone && chunk * P::kChunk < dims;
        const char* from = valid ? chunk_address(at, chunk) : base;
        const uint32_t to = tile + P::Tile::offset(row, chunk);
        if (P::kChunk * bytes == 8)
          cp_async_8(to, from, valid);
        else
          cp_async_4(to, from, valid);
      }
      return;
    }
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * P::kRowChunks; i += P::kThreads) {
      // Consecutive lanes read consecutive memory.
      const int row = access.x_packed ? i % kTile : i / P::kRowChunks;
      const int chunk = access.x_packed ? i / kTile : i % P::kRowChunks;
      const int64_t at = offsets[row];
      const int count = at == kNone ? 0 : dims - chunk * P::kChunk;
      Chunk raw{};
      if (count > 0) raw = read_scalar<P::kChunk>(chunk_address(at, chunk), stride, bytes, count);
      store_shared(tile + P::Tile::offset(row, chunk), convert<typename P::C>(access.kv, raw));
    }
  }

  /// Whether tiles are to be widened after load(): then all of a tile must have arrived first.
  __device__ bool widens() const { return access.load_k == Load::wide || access.load_v == Load::wide; }

  /// Widens K and V of a tile in place; each thread widens what it has copied itself. A barrier must follow.
  __device__ void widen(int k_slot, int v_slot) const {
    if (access.load_k == Load::wide) widen(slots + k_slot * P::kSlotBytes);
    if (access.load_v == Load::wide) widen(slots + v_slot * P::kSlotBytes);
  }

 private:
  __device__ void widen(uint32_t tile) const {
    constexpr int kBatch = kEach < 4 ? kEach : 4;  // loads in flight
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first < kTile * P::kRowChunks;
         first += kBatch * P::kThreads) {
      Chunk raw[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const uint32_t at = tile + chunk_offset(first + i * P::kThreads);
        raw[i] = Chunk{};
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                     : "=r"(raw[i].word[0]), "=r"(raw[i].word[1])
                     : "r"(at)
                     : "memory");
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        store_shared(tile + chunk_offset(first + i * P::kThreads), convert<typename P::C>(access.kv, raw[i]));
    }
  }
  /// The offset of chunk `index` of a tile, counted row by row.
  __device__ static uint32_t chunk_offset(int index) {
    return P::Tile::offset(index / P::kRowChunks, index % P::kRowChunks);
  }
};

}  // namespace fovea::cuda::portable
