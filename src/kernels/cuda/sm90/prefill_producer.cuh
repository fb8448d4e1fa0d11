#pragma once
// The producer warpgroup of a prefill CTA: fetches work tiles and loads queries, keys and values.
#include <cstddef>

#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda::sm90 {

/// The item and KV head of work tile number `work_tile`. Items are in the order of the schedule, longest
/// first (a sequence's last rows first); all work tiles of a section of KV heads precede those of the next
/// section.
FOVEA_DEVICE void find_work_tile(int heads, int section_heads, int num_items, int work_tile, int& item,
                                 int& head) {
  const int section = work_tile / (num_items * section_heads), first = section * section_heads;
  const int here = min(section_heads, heads - first), rest = work_tile - num_items * first;
  item = rest / here;
  head = first + rest - item * here;
}

/// KV heads of a section. Their keys about fit in L2, and all sections have one size: in a last one of few
/// heads, CTAs would wait for its longest item.
FOVEA_DEVICE int section_heads(int heads, int n_k, int section_keys) {
  const float sections =
      floorf(static_cast<float>(heads) * static_cast<float>(n_k) / static_cast<float>(section_keys));
  return static_cast<int>(ceilf(static_cast<float>(heads) / fmaxf(sections, 1.0f)));
}

/// Loads K and V by kLoadMode, which PrefillLoads::kv_by_tma selects.
template <class P, LoadMode kLoadMode>
class PrefillProducer {
 public:
  __device__ PrefillProducer(const PrefillParams& a, PrefillShared<P> shared, char* generic)
      : a_(a),
        shared_(shared),
        work_tiles_(reinterpret_cast<PrefillWorkTile*>(generic + P::kWorkTilesOffset)),
        scheduler_(reinterpret_cast<TileSchedulerState*>(generic + P::kSchedulerOffset)),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    if constexpr (P::kOwnPace)
      if (warp_ == a_.loads.query_warp && warp_ >= load_warps()) load_queries();
    if (warp_ >= load_warps()) return;
    if (warp_ == 0) {
      const int num_items = *a_.p.num_items;
      // All CTAs derive the same section size, from the first item.
      const int n_k = num_items > 0 ? __ldg(&a_.p.items->n_k) : 0;
      scheduler_->num_items = num_items;
      scheduler_->section_heads = section_heads(heads(), n_k, a_.section_keys);
      __syncwarp();
      work_tile_ = static_cast<int>(blockIdx.x);
    }
    while (publish()) {
      load_work_tile();
      if (warp_ != 0) release_work_tile();
      ++work_tile_count_;
    }
  }

 private:
  __device__ int load_warps() const { return kLoadMode == LoadMode::tma ? a_.loads.warps : 4; }
  __device__ uint32_t work_tile_stage() const { return work_tile_count_ % P::kWorkTileStages; }
  __device__ uint32_t work_tile_phase() const { return work_tile_count_ / P::kWorkTileStages & 1; }

  // ---- Work tiles: warp 0 claims the next one while the last key tiles of the current one are in flight,
  // which hides the latency of the atomic.

  static constexpr int kItemWords = static_cast<int>(sizeof(WorkItem)) / 4;
  static_assert(kItemWords + 2 <= 32 && offsetof(PrefillWorkTile, head) == sizeof(WorkItem) &&
                offsetof(PrefillWorkTile, valid) == sizeof(WorkItem) + 4);

  __device__ int heads() const { return static_cast<int>(a_.p.kv_heads.divisor); }
  __device__ int num_work_tiles() const { return scheduler_->num_items * heads(); }

  /// Requests the next work tile from the counter. Each work tile causes exactly one request, so the CTA that
  /// makes the last one resets the counter to 0.
  __device__ void claim_next() {
    if (a_.p.queue != nullptr && lane_ == 0)
      work_tile_ = static_cast<int>(gridDim.x) + atomicAdd(a_.p.queue, 1);
  }
  __device__ void advance_to_next() {
    const int ctas = static_cast<int>(gridDim.x);
    if (a_.p.queue == nullptr) {
      work_tile_ += ctas;
    } else {
      work_tile_ = __shfl_sync(~0u, work_tile_, 0);
      if (work_tile_ - ctas == num_work_tiles() - 1 && lane_ == 0) *a_.p.queue = 0;
    }
  }
  /// This lane's 32-bit word of the PrefillWorkTile.
  __device__ int32_t work_tile_word() const {
    if (work_tile_ >= num_work_tiles()) return 0;
    int item = 0, head = 0;
    find_work_tile(heads(), scheduler_->section_heads, scheduler_->num_items, work_tile_, item, head);
    if (lane_ < kItemWords) return __ldg(reinterpret_cast<const int32_t*>(a_.p.items + item) + lane_);
    return lane_ == kItemWords ? head : 1;
  }

  /// Warp 0 publishes the work tile to the consumers and the other producer warps, which wait for it. False:
  /// no work is left.
  __device__ bool publish() {
    const uint32_t full = shared_.work_tile_full(work_tile_stage());
    PrefillWorkTile& to = work_tiles_[work_tile_stage()];
    if (warp_ == 0) {
      const int32_t word = work_tile_word();
      mbarrier_wait(PrefillShared<P>::empty_of(full), work_tile_phase() ^ 1);
      if (lane_ < kItemWords + 2) reinterpret_cast<int32_t*>(&to)[lane_] = word;
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(full);
      __syncwarp();
    } else {
      mbarrier_wait(full, work_tile_phase());
    }
    return to.valid != 0;
  }
  __device__ void release_work_tile() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.work_tile_full(work_tile_stage())));
  }

  __device__ void load_work_tile() {
    if constexpr (kLoadMode == LoadMode::tma)
      load_tma();
    else
      load_cp_async();
    if (warp_ == 0) advance_to_next();
  }
  /// Claims the next work tile once: with the third key tile from the end, or with the first where there are
  /// fewer. `left`: keys from the key tile that is loaded next to the end.
  __device__ void claim_when_due(int left, bool first) {
    constexpr int kTile = P::kTileKeys;
    if (warp_ == 0 && left <= 3 * kTile && (first || left > 2 * kTile)) claim_next();
  }
  __device__ void load_tma() {
    // Volatile: read from shared memory each time, to save registers.
    const volatile WorkItem& item = work_tiles_[work_tile_stage()].item;
    int key0 = item.key_first;
    KeyLocation location;
    locate_tma_box(item, key0, location);
    for (bool first = true;; first = false) {
      claim_when_due(item.key_last - key0, first);
      load_keys(location, item.pages + key0);
      if (first && (!P::kOwnPace || a_.loads.query_warp == 0)) load_query();
      const KeyLocation values_location = location;
      locate_tma_box(item, key0 + P::kTileKeys, location);
      load_values(values_location, item.key_low - key0, item.n_k - key0);
      key0 += P::kTileKeys;
      if (key0 >= item.key_last) break;
    }
  }

  // ---- Queries

  /// The whole work of a warp that loads queries only.
  __device__ void load_queries() {
    while (publish()) {
      load_query();
      release_work_tile();
      ++work_tile_count_;
    }
  }
  /// Where consumers have their own pace, a part after the other. Apart from that it repeats the code for one
  /// part: with one function for both, other kernels spill registers.
  __device__ void load_query() {
    if constexpr (P::kOwnPace) {
      for (int part = 0; part < a_.loads.query_parts; ++part)
        load_query_part(part);
    } else {
      load_whole_query();
    }
  }
  __device__ void load_whole_query() {
    const PrefillWorkTile& work_tile = work_tiles_[work_tile_stage()];
    const uint32_t query_stage = work_tile_count_ % P::kQueryStages;
    const uint32_t full = shared_.query_full(query_stage, 0), to = shared_.query(query_stage);
    const int group = static_cast<int>(a_.p.group.divisor), row_first = work_tile.item.row_first;
    mbarrier_wait(PrefillShared<P>::empty_of(full), (work_tile_count_ / P::kQueryStages & 1) ^ 1);
    const int rows = min(work_tile.item.n_q * group - row_first, P::kRows);
    if (a_.loads.query_by_tma && rows == P::kRows) {
      if (warp_ == 0 && lane_ == 0) {
        mbarrier_arrive_expect_tx(full, P::kQBytes);
#pragma unroll
        for (int panel = 0; panel < P::kKPanels; ++panel)
          tma_load_3d(to + panel * P::kQPanelBytes, &a_.q, full, panel * kPanelDims, work_tile.head * group,
                      work_tile.item.q_first + a_.p.group.quotient(row_first));
      }
      __syncwarp();
      return;
    }
    // cp.async also where a TMA box would reach past the sequence's rows, as the tensor may end there. Rows
    // that are not loaded keep stale data; their results are not stored.
    const int warps = a_.loads.query_by_tma ? 1 : load_warps();
    if (warp_ >= warps) return;
    constexpr int kChunks = P::kKPanels * 8;
    for (int i = warp_ * 32 + lane_; i < rows * kChunks; i += warps * 32) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int token = a_.p.group.quotient(row_first + row);
      const int64_t offset = a_.p.q_rows.offset(work_tile.item.q_first + token,
                                                work_tile.head * group + row_first + row - token * group) +
                             chunk * 8;
      cp_async_16(to + chunk / 8 * P::kQPanelBytes + row * 128 + ((chunk ^ row) % 8) * 16,
                  static_cast<const typename P::Q*>(a_.p.q) + offset, chunk < a_.p.head_dim / 8);
    }
    cp_async_wait_all();
    arrive_with_writes(full);
  }
  __device__ void load_query_part(int part) {
    const PrefillWorkTile& work_tile = work_tiles_[work_tile_stage()];
    const uint32_t query_stage = work_tile_count_ % P::kQueryStages;
    const int most = a_.loads.query_parts > 1 ? 64 : P::kRows, first = part * 64;
    const uint32_t full = shared_.query_full(query_stage, part),
                   to = shared_.query(query_stage) + static_cast<uint32_t>(first) * 128;
    const int group = static_cast<int>(a_.p.group.divisor), row_first = work_tile.item.row_first + first;
    mbarrier_wait(PrefillShared<P>::empty_of(full), (work_tile_count_ / P::kQueryStages & 1) ^ 1);
    const int rows = min(work_tile.item.n_q * group - row_first, most);
    if (a_.loads.query_by_tma && rows == most) {
      if (warp_ == a_.loads.query_warp && lane_ == 0) {
        mbarrier_arrive_expect_tx(full, static_cast<uint32_t>(most) * P::kKPanels * 128);
#pragma unroll
        for (int panel = 0; panel < P::kKPanels; ++panel)
          tma_load_3d(to + panel * P::kQPanelBytes, &a_.q, full, panel * kPanelDims, work_tile.head * group,
                      work_tile.item.q_first + a_.p.group.quotient(row_first));
      }
      __syncwarp();
      return;
    }
    // cp.async also where a TMA box would reach past the sequence's rows, as the tensor may end there. Rows
    // that are not loaded keep stale data; their results are not stored.
    const int warps = a_.loads.query_by_tma ? 1 : load_warps();
    if (warp_ - a_.loads.query_warp >= warps) return;
    constexpr int kChunks = P::kKPanels * 8;
    for (int i = (warp_ - a_.loads.query_warp) * 32 + lane_; i < rows * kChunks; i += warps * 32) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int token = a_.p.group.quotient(row_first + row);
      const int64_t offset = a_.p.q_rows.offset(work_tile.item.q_first + token,
                                                work_tile.head * group + row_first + row - token * group) +
                             chunk * 8;
      cp_async_16(to + chunk / 8 * P::kQPanelBytes + row * 128 + ((chunk ^ row) % 8) * 16,
                  static_cast<const typename P::Q*>(a_.p.q) + offset, chunk < a_.p.head_dim / 8);
    }
    cp_async_wait_all();
    arrive_with_writes(full);
  }
  /// Arrives for this warp, whose generic-proxy writes wgmma will read.
  __device__ void arrive_with_writes(uint32_t full) const {
    fence_proxy_async();
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(full);
    __syncwarp();
  }

  // ---- Keys and values by TMA: lane l of warp w issues TMA box b = w + warps * l of a tile: panel b %
  // kPanels, keys from b / kPanels * tma_box_keys on

  static constexpr int kPanels = P::kKPanels > P::kVPanels ? P::kKPanels : P::kVPanels;
  __device__ int tma_box() const { return warp_ + lane_ * load_warps(); }
  __device__ int tma_box_key() const { return tma_box() / kPanels * a_.loads.tma_box_keys; }

  /// Page and slot of the keys that this lane loads: of its TMA box, or of its row. slot < 0: none of them
  /// may be read. Keys below key_low or from n_k on are outside the sequence or no longer in the cache. In a
  /// ragged cache the page of a row is its index.
  struct KeyLocation {
    int page, slot;
  };

  __device__ void locate_tma_box(const volatile WorkItem& item, int key0, KeyLocation& location) const {
    const int offset = tma_box_key(), key = key0 + offset;
    location.slot = -1;
    if (offset >= P::kTileKeys || key + a_.loads.tma_box_keys <= item.key_low || key >= item.n_k) return;
    if (a_.p.kv.pages == nullptr) {
      location.page = 0;
      location.slot = static_cast<int>(item.pages) + key;
    } else {
      const int index = a_.p.kv.page_size.quotient(key);
      location.page = __ldg(a_.p.kv.pages + item.pages + index);
      location.slot = key - index * static_cast<int>(a_.p.kv.page_size.divisor);
    }
  }

  __device__ void load_keys(const KeyLocation& location, int64_t row) {
    const uint32_t full = shared_.keys_full(tile_.slot), to = shared_.keys(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    if constexpr (P::kTokenScales) load_scales(full, row);
    copy_tma_boxes<P::kKPanels>(&a_.k, to, full, location.page, location.slot);
  }
  /// The scales of K and V of the tile's keys, which lie one after the other for each head, zeros where there
  /// is no key. TMA boxes are whole tiles then, of one warp.
  __device__ void load_scales(uint32_t full, int64_t row) const {
    const KvParams& kv = a_.p.kv;
    if (lane_ == 0) {
      const int64_t at = work_tiles_[work_tile_stage()].head * kv.scale_head_stride + row;
      const uint32_t to = shared_.scales(tile_);
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(full), "r"(P::kScaleBytes)
                   : "memory");
      bulk_load(to, kv.k_scales + at, P::kScaleBytes / 2, full);
      bulk_load(to + P::kScaleBytes / 2, kv.v_scales + at, P::kScaleBytes / 2, full);
    }
    __syncwarp();
  }
  __device__ void load_values(const KeyLocation& location, int low, int past) {
    const uint32_t full = shared_.values_full(tile_.slot), to = shared_.values(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    load_values_tma(full, to, location.page, location.slot, low, past);
    tile_.next();
  }

  template <int kCount>
  __device__ void copy_tma_boxes(const CUtensorMap* map, uint32_t to, uint32_t full, int page, int slot) {
    const int panel = tma_box() % kPanels;
    const bool mine = slot >= 0 && panel < kCount;
    const uint32_t tma_boxes = static_cast<uint32_t>(__popc(__ballot_sync(~0u, mine)));
    if (lane_ == 0)
      mbarrier_arrive_expect_tx(full, tma_boxes * 128 * static_cast<uint32_t>(a_.loads.tma_box_keys));
    __syncwarp();
    if (mine)
      tma_load_4d(to + panel * P::kTilePanelBytes + tma_box_key() * 128, map, full, panel * kPanelDims, slot,
                  work_tiles_[work_tile_stage()].head, page);
    __syncwarp();
  }

  /// Whether a pass in front has transposed the values and set those that must not be read to zeros.
  static constexpr bool kTransposed = requires { requires P::kTransposedValues; };
  /// Rows [low, past) of the tile may be read. The other rows become zeros, because a probability of 0 does
  /// not mask a NaN or infinity.
  __device__ void load_values_tma(uint32_t full, uint32_t to, int page, int slot, int low, int past) {
    if (kTransposed || (low <= 0 && past >= P::kTileKeys)) {
      copy_tma_boxes<P::kVPanels>(&a_.v, to, full, page, slot);
    } else {
      copy_tma_boxes<P::kVPanels>(&a_.v, to, shared_.raw_full(), page, slot);
      mbarrier_wait(shared_.raw_full(), raw_phase_);
      raw_phase_ ^= 1;
      for (int i = warp_ * 32 + lane_; i < P::kTileKeys * 8; i += load_warps() * 32)
        if (i / 8 < low || i / 8 >= past) {
#pragma unroll
          for (int panel = 0; panel < P::kVPanels; ++panel)
            store_zeros(to + panel * P::kTilePanelBytes + i * 16);
        }
      arrive_with_writes(full);
    }
  }
  static __device__ void store_zeros(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }

  // ---- Keys and values by cp.async: 8, 16 or 32 lanes copy a row, 16 bytes each. Rows are interleaved
  // between the warps, so that the rows of a lane have the same swizzle (or one of two). Among the lanes that
  // start at a row, lane l holds the location of its l-th row.

  static constexpr int lanes_of(int dims) { return dims <= 64 ? 8 : dims <= 128 ? 16 : 32; }
  static constexpr int kKLanes = lanes_of(P::kD), kVLanes = lanes_of(P::kDv);
  static_assert(kKLanes == kVLanes || (kKLanes == 32 && kVLanes == 16));
  template <int kLanes>
  struct RowSteps {
    static constexpr int kWarpRows = 32 / kLanes;  ///< rows that a warp copies in a step
    static constexpr int kStride = 4 * kWarpRows;  ///< from a lane's row to its next
    static constexpr int kCount = P::kTileKeys / kStride;
    static_assert(P::kTileKeys % kStride == 0 && kCount <= kLanes);
  };

  __device__ void load_cp_async() {
    const volatile WorkItem& item = work_tiles_[work_tile_stage()].item;
    int key0 = item.key_first;
    KeyLocation location;
    locate_row(item, key0 + lane_row(), location);
    for (bool first = true;; first = false) {
      claim_when_due(item.key_last - key0, first);
      load_key_rows(location);
      if (first) load_query();
      const KeyLocation values_location = location;
      key0 += P::kTileKeys;
      locate_row(item, key0 + lane_row(), location);
      load_value_rows(values_location);
      if (key0 >= item.key_last) break;
    }
  }
  /// The row of the tile whose location this lane holds.
  __device__ int lane_row() const {
    using Keys = RowSteps<kKLanes>;
    return warp_ * Keys::kWarpRows + lane_ / kKLanes + lane_ % kKLanes * Keys::kStride;
  }
  __device__ void locate_row(const volatile WorkItem& item, int key, KeyLocation& location) const {
    locate_key(item, lane_ % kKLanes < RowSteps<kKLanes>::kCount ? key : -1, location);
  }
  __device__ void locate_key(const volatile WorkItem& item, int key, KeyLocation& location) const {
    const KvParams& kv = a_.p.kv;
    const int low = item.key_low, n_k = item.n_k;
    location.slot = -1;
    if (key < low || key < 0 || key >= n_k) return;
    location.slot = 0;
    if (kv.pages == nullptr) {
      location.page = static_cast<int>(item.pages) + key;
    } else {
      const int index = kv.page_size.quotient(key);
      location.page = __ldg(kv.pages + item.pages + index);
      location.slot = key - index * static_cast<int>(kv.page_size.divisor);
    }
  }
  __device__ void load_key_rows(const KeyLocation& location) {
    const KvParams& kv = a_.p.kv;
    const uint32_t full = shared_.keys_full(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kD, kKLanes>(kv.k, shared_.keys(tile_.slot), a_.p.head_dim, location, kv.k_page_stride,
                              kv.k_slot_stride, kv.k_head_stride);
    cp_async_mbarrier_arrive(full);  // the consumers issue the proxy fence
  }
  __device__ void load_value_rows(const KeyLocation& location) {
    const KvParams& kv = a_.p.kv;
    const uint32_t full = shared_.values_full(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kDv, kVLanes>(kv.v, shared_.values(tile_.slot), a_.p.v_head_dim, location, kv.v_page_stride,
                               kv.v_slot_stride, kv.v_head_stride);
    cp_async_mbarrier_arrive(full);
    tile_.next();
  }

  template <int kDims, int kLanes>
  __device__ void copy_rows(const char* from, uint32_t to, int head_dim, const KeyLocation& location,
                            int64_t page_stride, int64_t slot_stride, int64_t head_stride) {
    using T = RowSteps<kLanes>;
    // If V has fewer lanes per row than K, every other row of this warp.
    const int chunk = lane_ % kLanes;
    const int first_row =
        kLanes == kKLanes ? warp_ * T::kWarpRows + lane_ / kLanes : warp_ + lane_ / kLanes * 4;
    from += chunk * 16 + work_tiles_[work_tile_stage()].head * head_stride;
    to += first_row * 128 + chunk / 8 * P::kTilePanelBytes + (chunk ^ first_row) % 8 * 16;
    // Offset in 16-byte words. Nearly always all rows exist and lie within 64 GiB: a copy then takes three
    // instructions.
    uint64_t words =
        uint64_t{static_cast<uint32_t>(location.page)} * static_cast<uint32_t>(page_stride >> 4) +
        uint64_t{static_cast<uint32_t>(location.slot)} * static_cast<uint32_t>(slot_stride >> 4);
    if (mutated(Mutation::prefill_offsets)) words &= INT32_MAX / 16;
    const bool near = location.slot >= 0 ? words >> 32 == 0 : lane_ % kKLanes >= RowSteps<kKLanes>::kCount;
    const bool fits = (page_stride | slot_stride) >> 36 == 0 && head_dim == kDims;
    if (__all_sync(~0u, near) && fits) [[likely]] {
      // An opaque base address; otherwise the compiler recomputes it for each copy.
      asm volatile("" : "+l"(from));
      const uint32_t low = permute_rows<kLanes>(static_cast<uint32_t>(words));
      constexpr int kUnroll = T::kCount > 10 ? T::kCount / 2 : T::kCount;
#pragma unroll kUnroll
      for (int i = 0; i < T::kCount; ++i) {
        const uint32_t at = __shfl_sync(~0u, low, i, kLanes);
        if (chunk < kDims / 8) cp_async_16(row_address<T::kStride>(to, i), from + uint64_t{at} * 16);
      }
    } else {
      const int64_t mine = location.slot < 0 ? -1
                                             : planted_offset<Mutation::prefill_offsets>(
                                                   location.page * page_stride + location.slot * slot_stride);
      const uint32_t low = permute_rows<kLanes>(static_cast<uint32_t>(mine)),
                     high = permute_rows<kLanes>(static_cast<uint32_t>(mine >> 32));
#pragma unroll 1
      for (int i = 0; i < T::kCount; ++i) {
        const int64_t offset = static_cast<int64_t>(uint64_t{__shfl_sync(~0u, high, i, kLanes)} << 32 |
                                                    __shfl_sync(~0u, low, i, kLanes));
        const bool valid = offset >= 0 && chunk < head_dim / 8;
        if (chunk < (kDims + kPanelDims - 1) / kPanelDims * 8)
          cp_async_16(row_address<T::kStride>(to, i), valid ? from + offset : from, valid);
      }
    }
  }
  /// Moves a value of each lane's row to the lane that holds this row in the layout of kLanes per row.
  template <int kLanes>
  __device__ uint32_t permute_rows(uint32_t value) const {
    if constexpr (kLanes == kKLanes) return value;
    return __shfl_sync(~0u, value, 2 * (lane_ % 16) + lane_ / 16);
  }
  /// The address of a lane's row i, from that of its first row.
  template <int kStride>
  static __device__ uint32_t row_address(uint32_t first, int i) {
    return (first ^ static_cast<uint32_t>(kStride * i % 8 * 16)) + static_cast<uint32_t>(i * kStride * 128);
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  PrefillWorkTile* const work_tiles_;
  volatile TileSchedulerState* const scheduler_;
  const int warp_, lane_;
  uint32_t work_tile_count_ = 0;  ///< work tiles of this CTA before the current one
  RingPosition<P::kStages> tile_;
  int work_tile_ = 0;  ///< warp 0: number of the current work tile; once claimed, in lane 0, the next
  uint32_t raw_phase_ = 0;
};

}  // namespace fovea::cuda::sm90
