#pragma once
// The producer warpgroup of a prefill block: it decides on units and brings queries, keys and values.
#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
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
      next_.unit = static_cast<int>(blockIdx.x);
      find_next();
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

  // ---- units: warp 0 claims the next one while the last tiles of this one are under way, and then asks for
  // its item, so that it waits for neither

  __device__ int heads() const { return static_cast<int>(a_.p.kv_heads.divisor); }
  __device__ int num_units() const { return counts_->num_items * heads(); }

  /// The counter is asked once for each unit that exists, so who is told that it was asked for the last time
  /// leaves it at 0.
  __device__ void claim_next() {
    if (a_.p.queue != nullptr && lane_ == 0) next_.claimed = atomicAdd(a_.p.queue, 1);
  }
  __device__ void look_up_next() {
    const int blocks = static_cast<int>(gridDim.x);
    if (a_.p.queue == nullptr) {
      next_.unit += blocks;
    } else {
      const int claimed = __shfl_sync(~0u, next_.claimed, 0);
      if (claimed == num_units() - 1 && lane_ == 0) *a_.p.queue = 0;
      next_.unit = blocks + claimed;
    }
    find_next();
  }
  __device__ void find_next() {
    if (next_.unit >= num_units()) return;
    int item = 0;
    find_unit(heads(), counts_->section_heads, counts_->num_items, next_.unit, item, next_.head);
    if (lane_ < 16) next_.word = __ldg(reinterpret_cast<const int32_t*>(a_.p.items + item) + lane_);
  }

  /// Warp 0 tells everyone what the unit is; all loaders then have it. False: there is none.
  __device__ bool publish() {
    const uint32_t full = shared_.unit_full(unit_slot());
    PrefillUnit& to = units_[unit_slot()];
    if (warp_ == 0) {
      const bool valid = next_.unit < num_units();
      mbarrier_wait(PrefillShared<P>::empty_of(full), unit_phase() ^ 1);
      if (lane_ < 16) reinterpret_cast<int32_t*>(&to.item)[lane_] = next_.word;
      if (lane_ == 16) to.head = next_.head, to.valid = valid ? 1 : 0;
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(full);
      __syncwarp();
      return valid;
    }
    mbarrier_wait(full, unit_phase());
    return to.valid != 0;
  }
  __device__ void release_unit() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.unit_full(unit_slot())));
  }

  __device__ void load_unit() {
    // Read from shared memory again and again: registers are few.
    const volatile WorkItem& item = units_[unit_slot()].item;
    int key0 = item.key_first;
    Places places;
    find_places(item, key0, places);
    for (bool first = true;; first = false) {
      const int left = item.key_last - key0;
      constexpr int kTile = P::kTileKeys;
      if (warp_ == 0 && left <= 3 * kTile && (first || left > 2 * kTile)) claim_next();
      load_keys(places);
      if (first) load_query();
      const Places of_values = places;
      find_places(item, key0 + kTile, places);
      load_values(of_values, item.key_low - key0, item.n_k - key0);
      key0 += kTile;
      if (left <= kTile) break;
    }
    if (warp_ == 0) look_up_next();
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
      const int64_t offset = (unit.item.q_first + token) * a_.p.q_row_stride +
                             static_cast<int64_t>(unit.head * group + row_first + row - token * group) *
                                 a_.p.head_dim +
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

  // ---- keys and values by boxes: lane l of warp w has box b = w + warps * l of a tile, panel b % kPanels of keys
  // from b / kPanels * box_keys on

  static constexpr int kPanels = P::kKPanels > P::kVPanels ? P::kKPanels : P::kVPanels;
  static constexpr int kWarpKeys = P::kTileKeys / 4;  ///< row by row
  static_assert(P::kTileKeys % 4 == 0);
  static constexpr int kRounds = kBoxes ? 1 : (kWarpKeys + 31) / 32;
  __device__ int box() const { return warp_ + lane_ * loaders(); }
  __device__ int box_key() const { return box() / kPanels * a_.loads.box_keys; }

  /// Where the keys are that this lane sees to, of a tile: of its box the page and slot, or of its rows.
  /// slot < 0: none of it may be read. Keys below key_low and from n_k on are none of the sequence's, or no
  /// longer.
  struct Places {
    int page[kRounds], slot[kRounds];
  };

  __device__ void find_places(const volatile WorkItem& item, int key0, Places& places) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int inside = kBoxes ? box_key() : warp_ * kWarpKeys + r * 32 + lane_;
      const int end = kBoxes ? P::kTileKeys : (warp_ + 1) * kWarpKeys, key = key0 + inside;
      places.slot[r] = -1;
      if (inside >= end || key + (kBoxes ? a_.loads.box_keys : 1) <= item.key_low || key >= item.n_k) continue;
      if (a_.p.kv.pages == nullptr) {
        places.page[r] = 0;
        places.slot[r] = static_cast<int>(item.pages) + key;
      } else {
        const int index = a_.p.kv.page_size.quotient(key);
        places.page[r] = __ldg(a_.p.kv.pages + item.pages + index);
        places.slot[r] = key - index * static_cast<int>(a_.p.kv.page_size.divisor);
      }
    }
  }

  __device__ void load_keys(const Places& places) {
    const uint32_t full = shared_.keys_full(tile_.slot), to = shared_.keys(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    if constexpr (kBoxes) {
      copy_boxes<P::kKPanels>(&a_.k, to, full, places.page[0], places.slot[0]);
    } else {
      const KvParams& kv = a_.p.kv;
      copy_rows<P::kKPanels>(kv.k, to, a_.p.head_dim / 8, places, kv.k_page_stride, kv.k_slot_stride,
                             kv.k_head_stride);
      cp_async_mbarrier_arrive(full);  // consumers have the fence
    }
  }
  __device__ void load_values(const Places& places, int low, int past) {
    const uint32_t full = shared_.values_full(tile_.slot), to = shared_.values(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    if constexpr (kBoxes) {
      values_by_boxes(full, to, places.page[0], places.slot[0], low, past);
    } else {
      const KvParams& kv = a_.p.kv;
      copy_rows<P::kVPanels>(kv.v, to, a_.p.v_head_dim / 8, places, kv.v_page_stride, kv.v_slot_stride,
                             kv.v_head_stride);
      cp_async_mbarrier_arrive(full);  // consumers have the fence
    }
    tile_.next();
  }

  template <int kCount>
  __device__ void copy_boxes(const CUtensorMap* map, uint32_t to, uint32_t full, int page, int slot) {
    const int panel = box() % kPanels;
    const bool mine = slot >= 0 && panel < kCount;
    const uint32_t boxes = static_cast<uint32_t>(__popc(__ballot_sync(~0u, mine)));
    if (lane_ == 0)
      mbarrier_arrive_expect_tx(full, boxes * 128 * static_cast<uint32_t>(a_.loads.box_keys));
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

  // ---- keys and values row by row: a warp has kWarpKeys rows of a tile

  /// Pages of a ragged cache are its rows, slots of one.
  template <int kCount>
  __device__ void copy_rows(const char* from, uint32_t to, int chunks, const Places& places,
                            int64_t page_stride, int64_t slot_stride, int64_t head_stride) {
    // Lanes of a row: a power of two, each 16 bytes.
    constexpr int kLanes = kCount == 1 ? 8 : kCount == 2 ? 16 : 32;
    constexpr int kRowsAtOnce = 32 / kLanes;
    const int chunk = lane_ % kLanes, first = lane_ / kLanes;
    const bool inside = chunk < chunks;
    if (chunk < kCount * 8) to += chunk / 8 * P::kTilePanelBytes;
    from += chunk * 16 + units_[unit_slot()].head * head_stride;
    if (a_.p.kv.pages == nullptr) slot_stride = page_stride;
    int row = warp_ * kWarpKeys + first;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int64_t mine = places.slot[r] < 0 ? -1 : places.page[r] * page_stride + places.slot[r] * slot_stride;
#pragma unroll 4
      for (int i = 0; i < min(32, kWarpKeys - r * 32); i += kRowsAtOnce, row += kRowsAtOnce) {
        const int64_t offset = __shfl_sync(~0u, mine, i + first);
        const bool valid = offset >= 0 && inside;
        if (chunk < kCount * 8 && r * 32 + i + first < kWarpKeys)
          cp_async_16(to + row * 128 + ((chunk ^ row) % 8) * 16, valid ? from + offset : from, valid);
      }
    }
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  PrefillUnit* const units_;
  volatile PrefillCounts* const counts_;
  const int warp_, lane_;
  uint32_t units_before_ = 0;  ///< of this block
  RingPosition<P::kStages> tile_;
  struct {
    int claimed = 0, unit = 0, head = 0;
    int32_t word = 0;  ///< of the item, lanes 0 to 15
  } next_;
  uint32_t raw_phase_ = 0;
};

}  // namespace fovea::cuda::sm90
