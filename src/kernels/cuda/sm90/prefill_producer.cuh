#pragma once
// The producer warpgroup of a prefill block: it decides on units and brings queries, keys and values.
#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda::sm90 {

/// Units are taken longest first as the schedule has them (a sequence's last rows first), by blocks as they
/// come for them. Heads of a section (`units_per_section` of them) go before those of the next, so that the
/// keys of what runs at once fit L2.
FOVEA_DEVICE void find_unit(const PrefillParams& a, int num_items, int unit, int& item, int& head) {
  const int heads = static_cast<int>(a.p.kv_heads.divisor), wide = min(a.units_per_section, heads);
  const int section = unit / (num_items * wide), first = section * wide;
  const int here = min(wide, heads - first), rest = unit - num_items * first;
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
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    if (kBoxes && warp_ > 0) return;
    const int num_items = *a_.p.num_items;
    const int num_units = num_items * static_cast<int>(a_.p.kv_heads.divisor);
    int next = static_cast<int>(blockIdx.x);
    for (;;) {
      const int unit = next;
      if (warp_ == 0) next = fetch(unit, num_units);
      const bool valid = publish(unit, num_items, num_units);
      if (!valid) break;
      load_unit();
      if (warp_ != 0) release_unit();
      ++units_before_;
    }
    flush();
  }

 private:
  __device__ uint32_t unit_slot() const { return units_before_ % P::kUnits; }
  __device__ uint32_t unit_phase() const { return units_before_ / P::kUnits & 1; }

  /// The unit after `unit`. The counter is asked once for each unit that exists, so who is told that it was
  /// asked for the last time leaves it at 0.
  __device__ int fetch(int unit, int num_units) const {
    const int blocks = static_cast<int>(gridDim.x);
    if (a_.p.queue == nullptr || unit >= num_units) return unit + blocks;
    int taken = 0;
    if (lane_ == 0) {
      taken = atomicAdd(a_.p.queue, 1);
      if (taken == num_units - 1) *a_.p.queue = 0;
    }
    return blocks + __shfl_sync(~0u, taken, 0);
  }

  /// Warp 0 tells everyone what the unit is; all loaders then have it. False: there is none.
  __device__ bool publish(int unit, int num_items, int num_units) {
    const uint32_t full = shared_.unit_full(unit_slot());
    PrefillUnit& to = units_[unit_slot()];
    if (warp_ == 0) {
      const bool valid = unit < num_units;
      int item = 0, head = 0;
      if (valid) find_unit(a_, num_items, unit, item, head);
      int32_t word = 0;
      if (valid && lane_ < 16) word = reinterpret_cast<const int32_t*>(a_.p.items + item)[lane_];
      wait_for(PrefillShared<P>::empty_of(full), unit_phase() ^ 1);
      if (lane_ < 16) reinterpret_cast<int32_t*>(&to.item)[lane_] = word;
      if (lane_ == 16) to.head = head, to.valid = valid ? 1 : 0;
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(full);
      __syncwarp();
      return valid;
    }
    wait_for(full, unit_phase());
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
    bool first = true;
    if constexpr (kBoxes) {
      int page = 0, slot = 0;
      place(item, key0, page, slot);
      do {
        keys_by_boxes(page, slot);
        if (first) load_query();
        int next_page = 0, next_slot = 0;
        place(item, key0 + P::kTileKeys, next_page, next_slot);
        values_by_boxes(page, slot, item.key_low - key0, item.n_k - key0);
        page = next_page, slot = next_slot, first = false;
        key0 += P::kTileKeys;
      } while (key0 < item.key_last);
    } else {
      do {
        int64_t k[kRounds], v[kRounds];
#pragma unroll
        for (int r = 0; r < kRounds; ++r)
          row_offsets(item, key0 + warp_ * kWarpKeys + r * 32 + lane_, r * 32 + lane_ < kWarpKeys, k[r], v[r]);
        keys_by_rows(k);
        if (first) load_query();
        values_by_rows(v);
        first = false;
        key0 += P::kTileKeys;
      } while (key0 < item.key_last);
    }
  }

  // ---- queries

  __device__ void load_query() {
    const PrefillUnit& unit = units_[unit_slot()];
    const uint32_t query_slot = units_before_ % P::kQueryBuffers;
    const uint32_t full = shared_.query_full(query_slot), to = shared_.query(query_slot);
    const int group = static_cast<int>(a_.p.group.divisor), row_first = unit.item.row_first;
    wait_for(PrefillShared<P>::empty_of(full), (units_before_ / P::kQueryBuffers & 1) ^ 1);
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
    const int loaders = kBoxes || a_.loads.query_boxes ? 1 : 4;
    if (warp_ >= loaders) return;
    constexpr int kChunks = P::kKPanels * 8;
    for (int i = warp_ * 32 + lane_; i < rows * kChunks; i += loaders * 32) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int token = a_.p.group.quotient(row_first + row);
      const int64_t offset = (unit.item.q_first + token) * a_.p.q_row_stride +
                             static_cast<int64_t>(unit.head * group + row_first + row - token * group) *
                                 a_.p.head_dim +
                             chunk * 8;
      cp_async_16(to + chunk / 8 * P::kQPanelBytes + row * 128 + ((chunk ^ row) % 8) * 16,
                  static_cast<const typename P::Q*>(a_.p.q) + offset, chunk < a_.p.head_dim / 8);
    }
    flush();
    cp_async_wait_all();
    announce(full);
  }

  // ---- keys and values by boxes: lane l has box l, panel l % kPanels of keys from l / kPanels * box_keys on

  static constexpr int kPanels = P::kKPanels > P::kVPanels ? P::kKPanels : P::kVPanels;
  __device__ int box_key() const { return lane_ / kPanels * a_.loads.box_keys; }

  /// Where the lane's box of the tile at key0 is; slot < 0: none of it may be read. Keys below key_low and
  /// from n_k on are none of the sequence's, or no longer.
  __device__ void place(const volatile WorkItem& item, int key0, int& page, int& slot) const {
    const int key = key0 + box_key();
    slot = -1;
    if (box_key() >= P::kTileKeys || key + a_.loads.box_keys <= item.key_low || key >= item.n_k) return;
    if (a_.p.kv.pages == nullptr) {
      slot = static_cast<int>(item.pages) + key;
      return;
    }
    const int index = a_.p.kv.page_size.quotient(key);
    page = __ldg(a_.p.kv.pages + item.pages + index);
    slot = key - index * static_cast<int>(a_.p.kv.page_size.divisor);
  }

  template <int kCount>
  __device__ void copy_boxes(const CUtensorMap* map, uint32_t to, uint32_t full, int page, int slot) {
    const int panel = lane_ % kPanels;
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

  __device__ void keys_by_boxes(int page, int slot) {
    const uint32_t full = shared_.keys_full(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_boxes<P::kKPanels>(&a_.k, shared_.keys(tile_.slot), full, page, slot);
    
  }

  /// Rows [low, past) of the tile are of keys that may be read; a probability of 0 does not hide what the
  /// others hold, so they become zeros.
  __device__ void values_by_boxes(int page, int slot, int low, int past) {
    const uint32_t full = shared_.values_full(tile_.slot), to = shared_.values(tile_.slot);
    mbarrier_wait(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    if (low <= 0 && past >= P::kTileKeys) {
      copy_boxes<P::kVPanels>(&a_.v, to, full, page, slot);
    } else {
      copy_boxes<P::kVPanels>(&a_.v, to, shared_.raw_full(), page, slot);
      mbarrier_wait(shared_.raw_full(), raw_phase_);
      raw_phase_ ^= 1;
      for (int i = lane_; i < P::kTileKeys * 8; i += 32)
        if (i / 8 < low || i / 8 >= past) {
#pragma unroll
          for (int panel = 0; panel < P::kVPanels; ++panel)
            store_zeros(to + panel * P::kTilePanelBytes + i * 16);
        }
      fence_proxy_async();
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(full);
      __syncwarp();
    }
    tile_.next();
  }
  static __device__ void store_zeros(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }

  // ---- keys and values row by row: a warp has kWarpKeys rows of a tile, a lane knows where some of them are

  static constexpr int kWarpKeys = P::kTileKeys / 4;
  static_assert(P::kTileKeys % 4 == 0);
  static constexpr int kRounds = (kWarpKeys + 31) / 32;

  __device__ void row_offsets(const volatile WorkItem& item, int key, bool exists, int64_t& k,
                              int64_t& v) const {
    k = v = -1;
    if (!exists || key < item.key_low || key >= item.n_k) return;
    const KvParams& kv = a_.p.kv;
    const int head = units_[unit_slot()].head;
    const int64_t pages = item.pages;
    int64_t page = pages + key, slot = 0;
    if (kv.pages != nullptr) {
      const int index = kv.page_size.quotient(key);
      page = __ldg(kv.pages + pages + index);
      slot = key - index * static_cast<int>(kv.page_size.divisor);
    }
    k = page * kv.k_page_stride + slot * kv.k_slot_stride + head * kv.k_head_stride;
    v = page * kv.v_page_stride + slot * kv.v_slot_stride + head * kv.v_head_stride;
  }

  template <int kCount>
  __device__ void copy_rows(const char* from, uint32_t to, int chunks, const int64_t (&offsets)[kRounds]) {
    // Lanes of a row: a power of two, each 16 bytes.
    constexpr int kLanes = kCount == 1 ? 8 : kCount == 2 ? 16 : 32;
    constexpr int kRowsAtOnce = 32 / kLanes;
    const int chunk = lane_ % kLanes, first = lane_ / kLanes;
    const bool inside = chunk < chunks;
    if (chunk < kCount * 8) to += chunk / 8 * P::kTilePanelBytes;
    from += chunk * 16;
    int row = warp_ * kWarpKeys + first;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
#pragma unroll 2
      for (int i = 0; i < min(32, kWarpKeys - r * 32); i += kRowsAtOnce, row += kRowsAtOnce) {
        const int64_t offset = __shfl_sync(~0u, offsets[r], i + first);
        const bool valid = offset >= 0 && inside;
        if (chunk < kCount * 8 && r * 32 + i + first < kWarpKeys)
          cp_async_16(to + row * 128 + ((chunk ^ row) % 8) * 16, valid ? from + offset : from, valid);
      }
    }
  }

  __device__ void keys_by_rows(const int64_t (&offsets)[kRounds]) {
    const uint32_t full = shared_.keys_full(tile_.slot);
    wait_for(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kKPanels>(a_.p.kv.k, shared_.keys(tile_.slot), a_.p.head_dim / 8, offsets);
    copied(full);
    
  }
  __device__ void values_by_rows(const int64_t (&offsets)[kRounds]) {
    const uint32_t full = shared_.values_full(tile_.slot);
    wait_for(PrefillShared<P>::empty_of(full), tile_.phase ^ 1);
    copy_rows<P::kVPanels>(a_.p.kv.v, shared_.values(tile_.slot), a_.p.v_head_dim / 8, offsets);
    copied(full);
    tile_.next();
  }

  // ---- announcing what cp.async has brought: this thread's writes go through a fence before wgmma may read
  // them, so a tile is announced when a later one is under way, or before this warp waits for anything

  __device__ void copied(uint32_t full) {
    cp_async_commit();
    if (num_pending_ == 2) {
      cp_async_wait<2>();
      announce(pending_[0]);
      pending_[0] = pending_[1];
      pending_[1] = full;
    } else {
      (num_pending_ == 0 ? pending_[0] : pending_[1]) = full;
      ++num_pending_;
    }
  }
  __device__ void announce(uint32_t full) const {
    fence_proxy_async();
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(full);
  }
  __device__ void flush() {
    if (kBoxes || num_pending_ == 0) return;
    if (num_pending_ == 2) {
      cp_async_wait<1>();
      announce(pending_[0]);
      pending_[0] = pending_[1];
    }
    cp_async_wait<0>();
    announce(pending_[0]);
    num_pending_ = 0;
  }
  __device__ void wait_for(uint32_t barrier, uint32_t parity) {
    if (!kBoxes && num_pending_ > 0 && !__all_sync(~0u, mbarrier_test(barrier, parity))) flush();
    mbarrier_wait(barrier, parity);
  }
  static __device__ bool mbarrier_test(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  PrefillUnit* const units_;
  const int warp_, lane_;
  uint32_t units_before_ = 0;  ///< of this block
  RingPosition<P::kStages> tile_;
  uint32_t raw_phase_ = 0;
  uint32_t pending_[2] = {0, 0};
  int num_pending_ = 0;
};

}  // namespace fovea::cuda::sm90
