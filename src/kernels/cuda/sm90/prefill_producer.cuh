#pragma once
// The producer warpgroup of a prefill block: it decides on units and brings queries, keys and values.
#include <cstddef>

#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda::sm90 {

/// Units are taken longest first as the schedule has them (a sequence's last rows first), by blocks as they
/// come for them. Heads of a section go before those of the next.
FOVEA_DEVICE void find_unit(int heads, int section_heads, int num_items, int unit, int& item, int& head) {
  const int section = unit / (num_items * section_heads), first = section * section_heads;
  const int here = min(section_heads, heads - first), rest = unit - num_items * first;
  item = rest / here;
  head = first + rest - item * here;
}

/// kBoxes: PrefillLoads::key_boxes.
template <class P, bool kBoxes>
class PrefillProducer {
 public:
  __device__ PrefillProducer(const PrefillParams& a, PrefillShared<P> shared, char* generic)
      : a_(a),
        shared_(shared),
        units_(reinterpret_cast<PrefillUnit*>(generic + P::kUnitsOffset)),
        counts_(reinterpret_cast<PrefillCounts*>(generic + P::kCountsOffset)),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    if (warp_ >= loaders()) return;
    if (warp_ == 0) {
      const int num_items = *a_.p.num_items;
      // Every block gets the same from the first item, which is there if any is.
      const int n_k = num_items > 0 ? __ldg(&a_.p.items->n_k) : 0;
      counts_->num_items = num_items;
      counts_->section_heads = max(1, min(heads(), a_.section_keys / max(n_k, 1)));
      __syncwarp();
      unit_ = static_cast<int>(blockIdx.x);
    }
    while (publish()) {
      load_unit();
      if (warp_ != 0) release_unit();
      ++units_before_;
    }
  }

 private:
  __device__ int loaders() const { return kBoxes ? a_.loads.warps : 4; }
  __device__ uint32_t unit_slot() const { return units_before_ % P::kUnits; }
  __device__ uint32_t unit_phase() const { return units_before_ / P::kUnits & 1; }

  // ---- units: warp 0 claims the next one while the last tiles of this one are under way, and need not wait

  static constexpr int kItemWords = static_cast<int>(sizeof(WorkItem)) / 4;
  static_assert(kItemWords + 2 <= 32 && offsetof(PrefillUnit, head) == sizeof(WorkItem) &&
                offsetof(PrefillUnit, valid) == sizeof(WorkItem) + 4);

  __device__ int heads() const { return static_cast<int>(a_.p.kv_heads.divisor); }
  __device__ int num_units() const { return counts_->num_items * heads(); }

  /// The counter is asked once for each unit that exists, so who is told that it was asked for the last time
  /// leaves it at 0.
  __device__ void claim_next() {
    if (a_.p.queue != nullptr && lane_ == 0) unit_ = static_cast<int>(gridDim.x) + atomicAdd(a_.p.queue, 1);
  }
  __device__ void go_to_next() {
    const int blocks = static_cast<int>(gridDim.x);
    if (a_.p.queue == nullptr) {
      unit_ += blocks;
    } else {
      unit_ = __shfl_sync(~0u, unit_, 0);
      if (unit_ - blocks == num_units() - 1 && lane_ == 0) *a_.p.queue = 0;
    }
  }
  /// This lane's word of the PrefillUnit.
  __device__ int32_t unit_word() const {
    if (unit_ >= num_units()) return 0;
    int item = 0, head = 0;
    find_unit(heads(), counts_->section_heads, counts_->num_items, unit_, item, head);
    if (lane_ < kItemWords) return __ldg(reinterpret_cast<const int32_t*>(a_.p.items + item) + lane_);
    return lane_ == kItemWords ? head : 1;
  }

  /// Warp 0 tells everyone what the unit is; all loaders then have it. False: there is none.
  __device__ bool publish() {
    const uint32_t full = shared_.unit_full(unit_slot());
    PrefillUnit& to = units_[unit_slot()];
    if (warp_ == 0) {
      const int32_t word = unit_word();
      mbarrier_wait(PrefillShared<P>::empty_of(full), unit_phase() ^ 1);
      if (lane_ < kItemWords + 2) reinterpret_cast<int32_t*>(&to)[lane_] = word;
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(full);
      __syncwarp();
    } else {
      mbarrier_wait(full, unit_phase());
    }
    return to.valid != 0;
  }
  __device__ void release_unit() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.unit_full(unit_slot())));
  }

  __device__ void load_unit() {
    if constexpr (kBoxes)
      load_by_boxes();
    else
      load_by_rows();
    if (warp_ == 0) go_to_next();
  }
  /// While tiles from `left` keys before the end on are asked for.
  __device__ void claim_in_time(int left, bool first) {
    constexpr int kTile = P::kTileKeys;
    if (warp_ == 0 && left <= 3 * kTile && (first || left > 2 * kTile)) claim_next();
  }
  __device__ void load_by_boxes() {
    // Read from shared memory again and again: registers are few.
    const volatile WorkItem& item = units_[unit_slot()].item;
    int key0 = item.key_first;
    Places places;
    find_places(item, key0, places);
    for (bool first = true;; first = false) {
      claim_in_time(item.key_last - key0, first);
      load_keys(places);
      if (first) load_query();
      const Places of_values = places;
      find_places(item, key0 + P::kTileKeys, places);
      load_values(of_values, item.key_low - key0, item.n_k - key0);
      key0 += P::kTileKeys;
      if (key0 >= item.key_last) break;
    }
  }

  // ---- queries

  __device__ void load_query() {
    const PrefillUnit& unit = units_[unit_slot()];
    const uint32_t query_slot = units_before_ % P::kQueryBuffers;
    const uint32_t full = shared_.query_full(query_slot), to = shared_.query(query_slot);
    const int group = static_cast<int>(a_.p.group.divisor), row_first = unit.item.row_first;
    mbarrier_wait(PrefillShared<P>::empty_of(full), (units_before_ / P::kQueryBuffers & 1) ^ 1);
    const int rows = min(unit.item.n_q * group - row_first, P::kRows);
    if (a_.loads.query_boxes && rows == P::kRows) {
      if (warp_ == 0 && lane_ == 0) {
        mbarrier_arrive_expect_tx(full, P::kQBytes);
#pragma unroll
        for (int panel = 0; panel < P::kKPanels; ++panel)
          tma_load_3d(to + panel * P::kQPanelBytes, &a_.q, full, panel * kPanelDims, unit.head * group,
                      unit.item.q_first + a_.p.group.quotient(row_first));
      }
      __syncwarp();
      return;
    }
    // Also where a box would reach past the sequence's rows: the tensor may end there. Nobody takes what is
    // computed for rows that stay as they are.
    const int warps = a_.loads.query_boxes ? 1 : loaders();
    if (warp_ >= warps) return;
    constexpr int kChunks = P::kKPanels * 8;
    for (int i = warp_ * 32 + lane_; i < rows * kChunks; i += warps * 32) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int token = a_.p.group.quotient(row_first + row);
      const int64_t offset =
          a_.p.q_rows.offset(unit.item.q_first + token, unit.head * group + row_first + row - token * group) +
          chunk * 8;
      cp_async_16(to + chunk / 8 * P::kQPanelBytes + row * 128 + ((chunk ^ row) % 8) * 16,
                  static_cast<const typename P::Q*>(a_.p.q) + offset, chunk < a_.p.head_dim / 8);
    }
    cp_async_wait_all();
    arrive_with_writes(full);
  }
  /// For this warp, which has written what wgmma will read.
  __device__ void arrive_with_writes(uint32_t full) const {
    fence_proxy_async();
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(full);
    __syncwarp();
  }

  // ---- keys and values by boxes: lane l of warp w has box b = w + warps * l of a tile, panel b % kPanels of
  // keys from b / kPanels * box_keys on

  static constexpr int kPanels = P::kKPanels > P::kVPanels ? P::kKPanels : P::kVPanels;
  __device__ int box() const { return warp_ + lane_ * loaders(); }
  __device__ int box_key() const { return box() / kPanels * a_.loads.box_keys; }

  /// Where the keys are that this lane sees to, of a tile: of its box, or of its row, the page and slot. slot
  /// < 0: none of it may be read. Keys below key_low and from n_k on are none of the sequence's, or no
  /// longer. Pages of a ragged cache are its rows.
  struct Places {
    int page, slot;
  };

  __device__ void find_places(const volatile WorkItem& item, int key0, Places& places) const {
    const int inside = box_key(), key = key0 + inside;
    places.slot = -1;
    if (inside >= P::kTileKeys || key + a_.loads.box_keys <= item.key_low || key >= item.n_k) return;
    if (a_.p.kv.pages == nullptr) {
      places.page = 0;
      places.slot = static_cast<int>(item.pages) + key;
    } else {
      const int index = a_.p.kv.page_size.quotient(key);
      places.page = __ldg(a_.p.kv.pages + item.pages + index);
      places.slot = key - index * static_cast<int>(a_.p.kv.page_size.divisor);
    }
  }

  __device__ void load_keys(const Places& places) {
    const uint32_t full = shared_.keys_full(tile_.slot), to = shared_.keys(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_boxes<P::kKPanels>(&a_.k, to, full, places.page, places.slot);
  }
  __device__ void load_values(const Places& places, int low, int past) {
    const uint32_t full = shared_.values_full(tile_.slot), to = shared_.values(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    values_by_boxes(full, to, places.page, places.slot, low, past);
    tile_.next();
  }

  template <int kCount>
  __device__ void copy_boxes(const CUtensorMap* map, uint32_t to, uint32_t full, int page, int slot) {
    const int panel = box() % kPanels;
    const bool mine = slot >= 0 && panel < kCount;
    const uint32_t boxes = static_cast<uint32_t>(__popc(__ballot_sync(~0u, mine)));
    if (lane_ == 0) mbarrier_arrive_expect_tx(full, boxes * 128 * static_cast<uint32_t>(a_.loads.box_keys));
    __syncwarp();
    if (mine)
      tma_load_4d(to + panel * P::kTilePanelBytes + box_key() * 128, map, full, panel * kPanelDims, slot,
                  units_[unit_slot()].head, page);
    __syncwarp();
  }

  /// Rows [low, past) of the tile are of keys that may be read; a probability of 0 does not hide what the
  /// others hold, so they become zeros.
  __device__ void values_by_boxes(uint32_t full, uint32_t to, int page, int slot, int low, int past) {
    if (low <= 0 && past >= P::kTileKeys) {
      copy_boxes<P::kVPanels>(&a_.v, to, full, page, slot);
    } else {
      copy_boxes<P::kVPanels>(&a_.v, to, shared_.raw_full(), page, slot);
      mbarrier_wait(shared_.raw_full(), raw_phase_);
      raw_phase_ ^= 1;
      for (int i = warp_ * 32 + lane_; i < P::kTileKeys * 8; i += loaders() * 32)
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

  // ---- keys and values row by row: so many lanes have a row, 16 bytes each. The warps' rows take turns, so
  // that what the swizzle sees of a lane's rows is the same (or one of two). Lane l of those that have a row
  // first knows where the l-th of their rows is.

  static constexpr int lanes_of(int dims) { return dims <= 64 ? 8 : dims <= 128 ? 16 : 32; }
  static constexpr int kKLanes = lanes_of(P::kD), kVLanes = lanes_of(P::kDv);
  static_assert(kKLanes == kVLanes || (kKLanes == 32 && kVLanes == 16));
  template <int kLanes>
  struct Turns {
    static constexpr int kAtOnce = 32 / kLanes, kStep = 4 * kAtOnce, kCount = P::kTileKeys / kStep;
    static_assert(P::kTileKeys % kStep == 0 && kCount <= kLanes);
  };

  __device__ void load_by_rows() {
    const volatile WorkItem& item = units_[unit_slot()].item;
    int key0 = item.key_first;
    Places places;
    find_row(item, key0 + lane_row(), places);
    for (bool first = true;; first = false) {
      claim_in_time(item.key_last - key0, first);
      load_key_rows(places);
      if (first) load_query();
      const Places of_values = places;
      key0 += P::kTileKeys;
      find_row(item, key0 + lane_row(), places);
      load_value_rows(of_values);
      if (key0 >= item.key_last) break;
    }
  }
  /// Of the tile, this lane's of those that it knows.
  __device__ int lane_row() const {
    using Keys = Turns<kKLanes>;
    return warp_ * Keys::kAtOnce + lane_ / kKLanes + lane_ % kKLanes * Keys::kStep;
  }
  __device__ void find_row(const volatile WorkItem& item, int key, Places& places) const {
    const KvParams& kv = a_.p.kv;
    const int low = item.key_low, n_k = item.n_k;
    places.slot = -1;
    if (lane_ % kKLanes >= Turns<kKLanes>::kCount || key < low || key >= n_k) return;
    places.slot = 0;
    if (kv.pages == nullptr) {
      places.page = static_cast<int>(item.pages) + key;
    } else {
      const int index = kv.page_size.quotient(key);
      places.page = __ldg(kv.pages + item.pages + index);
      places.slot = key - index * static_cast<int>(kv.page_size.divisor);
    }
  }
  __device__ void load_key_rows(const Places& places) {
    const KvParams& kv = a_.p.kv;
    const uint32_t full = shared_.keys_full(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kD, kKLanes>(kv.k, shared_.keys(tile_.slot), a_.p.head_dim, places, kv.k_page_stride,
                              kv.k_slot_stride, kv.k_head_stride);
    cp_async_mbarrier_arrive(full);  // consumers have the fence
  }
  __device__ void load_value_rows(const Places& places) {
    const KvParams& kv = a_.p.kv;
    const uint32_t full = shared_.values_full(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kDv, kVLanes>(kv.v, shared_.values(tile_.slot), a_.p.v_head_dim, places, kv.v_page_stride,
                               kv.v_slot_stride, kv.v_head_stride);
    cp_async_mbarrier_arrive(full);
    tile_.next();
  }

  template <int kDims, int kLanes>
  __device__ void copy_rows(const char* from, uint32_t to, int head_dim, const Places& places,
                            int64_t page_stride, int64_t slot_stride, int64_t head_stride) {
    using T = Turns<kLanes>;
    // Fewer lanes than keys have: of this warp's rows every other one.
    const int chunk = lane_ % kLanes;
    const int first_row =
        kLanes == kKLanes ? warp_ * T::kAtOnce + lane_ / kLanes : warp_ + lane_ / kLanes * 4;
    from += chunk * 16 + units_[unit_slot()].head * head_stride;
    to += first_row * 128 + chunk / 8 * P::kTilePanelBytes + (chunk ^ first_row) % 8 * 16;
    // In units of 16 bytes. Nearly always all rows exist and lie within 64 GiB: then a copy takes three
    // instructions.
    uint64_t unit = uint64_t{static_cast<uint32_t>(places.page)} * static_cast<uint32_t>(page_stride >> 4) +
                    uint64_t{static_cast<uint32_t>(places.slot)} * static_cast<uint32_t>(slot_stride >> 4);
    if (mutated(Mutation::prefill_offsets)) unit &= INT32_MAX / 16;
    const bool near = places.slot >= 0 ? unit >> 32 == 0 : lane_ % kKLanes >= Turns<kKLanes>::kCount;
    const bool fits = (page_stride | slot_stride) >> 36 == 0 && head_dim == kDims;
    if (__all_sync(~0u, near) && fits) [[likely]] {
      asm volatile("" : "+l"(from));  // one address, or it is added up anew for each copy
      const uint32_t low = turned<kLanes>(static_cast<uint32_t>(unit));
      constexpr int kUnroll = T::kCount > 10 ? T::kCount / 2 : T::kCount;
#pragma unroll kUnroll
      for (int i = 0; i < T::kCount; ++i) {
        const uint32_t at = __shfl_sync(~0u, low, i, kLanes);
        if (chunk < kDims / 8) cp_async_16(row_place<T::kStep>(to, i), from + uint64_t{at} * 16);
      }
    } else {
      const int64_t mine = places.slot < 0 ? -1
                                           : planted_offset<Mutation::prefill_offsets>(
                                                 places.page * page_stride + places.slot * slot_stride);
      const uint32_t low = turned<kLanes>(static_cast<uint32_t>(mine)),
                     high = turned<kLanes>(static_cast<uint32_t>(mine >> 32));
#pragma unroll 1
      for (int i = 0; i < T::kCount; ++i) {
        const int64_t offset = static_cast<int64_t>(uint64_t{__shfl_sync(~0u, high, i, kLanes)} << 32 |
                                                    __shfl_sync(~0u, low, i, kLanes));
        const bool valid = offset >= 0 && chunk < head_dim / 8;
        if (chunk < (kDims + kPanelDims - 1) / kPanelDims * 8)
          cp_async_16(row_place<T::kStep>(to, i), valid ? from + offset : from, valid);
      }
    }
  }
  /// What lanes know of their rows, for rows of fewer lanes.
  template <int kLanes>
  __device__ uint32_t turned(uint32_t of_row) const {
    if constexpr (kLanes == kKLanes) return of_row;
    return __shfl_sync(~0u, of_row, 2 * (lane_ % 16) + lane_ / 16);
  }
  /// Of a lane's row i, from that of its first.
  template <int kStep>
  static __device__ uint32_t row_place(uint32_t first, int i) {
    return (first ^ static_cast<uint32_t>(kStep * i % 8 * 16)) + static_cast<uint32_t>(i * kStep * 128);
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  PrefillUnit* const units_;
  volatile PrefillCounts* const counts_;
  const int warp_, lane_;
  uint32_t units_before_ = 0;  ///< of this block
  RingPosition<P::kStages> tile_;
  int unit_ = 0;  ///< warp 0: what this block works on, and once claimed, in lane 0, what comes next
  uint32_t raw_phase_ = 0;
};

}  // namespace fovea::cuda::sm90
