#pragma once
// A consumer warpgroup of a prefill block: 64 packed rows of every unit.
#include "kernels/cuda/sm90/prefill_epilogue.cuh"
#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda::sm90 {

/// The products of one tile with all before it: units follow each other without a seam, so that the products
/// of a unit's last values run under the softmax of the next one's first keys.
template <class P, PrefillWay kWay>
class PrefillConsumer {
 public:
  __device__ PrefillConsumer(const PrefillParams& a, PrefillShared<P> shared, char* generic, int index)
      : a_(a),
        shared_(shared),
        units_(reinterpret_cast<PrefillUnit*>(generic + P::kUnitsOffset)),
        index_(index) {}

  __device__ void run() {
    if (!next_unit()) return;
    Scores s;
    Output o;
    Packed p;
    Query q;
    clear(o);
    rows_.reset(is_capped(kWay) ? 0 : kReached);
    if (kTakesTurns && index_ > 0) named_barrier_sync(1 + index_, 256);
    wait_for_query();
    hold_query(q);
    mbarrier_wait(shared_.keys_full(k_.slot), k_.phase);
    see_rows();
    wgmma_fence();
    score(s, q);
    wgmma_commit();
    if (kTakesTurns) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    begin_unit();
    wgmma_wait<0>();
    wgmma_pin(s);
    keys_done<false>();
    k_.next();
    float factor[2];
    probabilities<true>(s, factor);
    pack_tile(p, s);
    do {
      while (is_amid_unit())
        step<true>(s, o, q, p);
    } while (step<false>(s, o, q, p));
    if (kTakesTurns && index_ == 0) named_barrier_sync(1, 256);  // takes the last arrival
  }

 private:
  /// Turns make D = 128 some 0.7 % faster with a soft cap, slower without.
  static constexpr bool kTakesTurns = P::kPingPong || (P::kD == 128 && is_capped(kWay));
  using Scores = float[P::kTileKeys / 2];
  using Output = float[P::kDv / 2];
  using Packed = uint32_t[P::kTileKeys / 16][4];
  static constexpr bool kFewRegisters =
      P::kConsumers == 3 && (P::kD > 128 || (P::kD == 128 && kWay == PrefillWay::capped_rows));
  using Query = uint32_t[P::kQueryHeld ? P::kD / 16 : 1][4];

  /// Whether neither this step nor the next one has to do with another unit, and no row's keys are hidden
  /// from it.
  FOVEA_DEVICE bool is_amid_unit() const {
    return key0_ + 2 * P::kTileKeys < key_last_ && sees_all(key0_ + P::kTileKeys) &&
           (!P::kLateEnd || written_ == units_before_);
  }
  FOVEA_DEVICE bool sees_all(int key0) const {
    return key0 >= safe_.first && key0 + P::kTileKeys <= safe_.last;
  }

  /// A tile's scores and probabilities, and the product of those of the tile before (`p`) with its values.
  /// False: that was the last. kAmid: is_amid_unit().
  template <bool kAmid>
  FOVEA_DEVICE bool step(Scores& s, Output& o, Query& q, Packed& p) {
    const bool ends = !kAmid && is_last();
    bool more = true;
    if (ends) {
      ++units_before_;
      more = next_unit();
      if (more) {
        wait_for_query();
        hold_query(q);
      }
    }
    const RingPosition<P::kStages> v = values_position();
    if (!by_boxes(kWay)) mbarrier_wait(shared_.values_full(v.slot), v.phase);
    if (more) mbarrier_wait(shared_.keys_full(k_.slot), k_.phase);
    see_rows();
    if (kTakesTurns) named_barrier_sync(1 + index_, 256);
    wgmma_pin(o);
    wgmma_fence();
    score(s, q);  // after the last unit: of what is there, for nobody
    wgmma_commit();
    if (by_boxes(kWay)) mbarrier_wait(shared_.values_full(v.slot), v.phase);
    if (!kAmid && P::kLateEnd && written_ != units_before_ - (ends ? 1 : 0)) {
      end_unit(written_++, o);
      clear(o);
      wgmma_pin(o);
    }
    wgmma_fence();
    add_values(o, p, v.slot);
    wgmma_commit();
    if (kTakesTurns) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    if (ends) {
      end_rows(units_before_ - 1);
      if (more) begin_unit();
    } else {
      key0_ += P::kTileKeys;
    }
    wgmma_wait<1>();
    wgmma_pin(s);
    bool moved = false;
    float factor[2];
    if (more) {
      keys_done<kAmid>();
      moved = probabilities<!kAmid>(s, factor);
    }
    wgmma_wait<0>();
    wgmma_pin(o);
    values_done(v.slot);
    k_.next();
    if (!kAmid && (P::kLateEnd ? !more : ends)) {
      end_unit(written_++, o);
      if (!more) return false;
      clear(o);
    } else if (moved && !ends) [[unlikely]] {
#pragma unroll
      for (int i = 0; i < P::kDv / 2; ++i)
        o[i] *= factor[i / 2 % 2];
    }
    pack_tile(p, s);
    return true;
  }

  /// cp.async writes as ordinary stores do, and the barrier has let this thread see it: then what wgmma reads
  /// comes after.
  FOVEA_DEVICE void see_rows() const {
    if (!by_boxes(kWay)) fence_proxy_async();
  }
  FOVEA_DEVICE bool next_unit() const {
    mbarrier_wait(shared_.unit_full(units_before_ % P::kUnits), units_before_ / P::kUnits & 1);
    return units_[units_before_ % P::kUnits].valid != 0;
  }
  /// While the first products are under way.
  FOVEA_DEVICE void begin_unit() {
    const WorkItem& item = units_[units_before_ % P::kUnits].item;
    key0_ = item.key_first;
    key_last_ = item.key_last;
    safe_ = keys_of_all(a_.p, item, item.row_first + index_ * 64);
  }
  /// This thread's first row of the tile; the other is 8 further on.
  FOVEA_DEVICE int row() const {
    return index_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  FOVEA_DEVICE bool leader() const { return threadIdx.x % 128 == 0; }

  /// Ends the rows of unit `number` but for O, and begins anew. In a quad, lanes 0 and 2 see to row g, 1 and
  /// 3 to g + 8; what O takes waits in shared memory, for this quad alone.
  FOVEA_DEVICE void end_rows(uint32_t number) {
    const PrefillUnit& unit = units_[number % P::kUnits];
    const float sums[2] = {quad_sum(rows_.sum[0]), quad_sum(rows_.sum[1])};
    const bool second = threadIdx.x % 2 == 1;
    const float sum = second ? sums[1] : sums[0];
    float base = second ? rows_.base[1] : rows_.base[0];
    if (sum == 0.0f) base = -INFINITY;  // no key
    const int of_tile = row() + (second ? 8 : 0);
    const RowTarget target = end_row<P>(a_.p, unit.item, unit.head, unit.item.row_first + of_tile, base, sum);
    if (threadIdx.x % 4 < 2) store_target(shared_.row_target(of_tile), target);
    __syncwarp();
    rows_.reset(is_capped(kWay) ? 0 : kReached);
  }
  FOVEA_DEVICE void end_unit(uint32_t number, const float (&o)[P::kDv / 2]) {
    const uint32_t slot = number % P::kUnits;
    write_output<P>(a_.p, units_[slot].item.num_splits > 1, shared_.row_target(row()), o);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.unit_full(slot)));
  }
  static FOVEA_DEVICE void clear(float (&o)[P::kDv / 2]) {
#pragma unroll
    for (int i = 0; i < P::kDv / 2; ++i)
      o[i] = 0.0f;
  }

  FOVEA_DEVICE bool is_last() const { return key0_ + P::kTileKeys >= key_last_; }
  FOVEA_DEVICE uint32_t query_slot() const { return units_before_ % P::kQueryBuffers; }
  FOVEA_DEVICE void wait_for_query() const {
    mbarrier_wait(shared_.query_full(query_slot()), units_before_ / P::kQueryBuffers & 1);
  }
  /// Values come one tile after their keys.
  FOVEA_DEVICE RingPosition<P::kStages> values_position() const {
    return k_.slot == 0 ? RingPosition<P::kStages>{P::kStages - 1, k_.phase ^ 1}
                        : RingPosition<P::kStages>{k_.slot - 1, k_.phase};
  }
  /// Lets the keys go, and after the unit's last the queries.
  template <bool kAmid>
  FOVEA_DEVICE void keys_done() const {
    if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.keys_full(k_.slot)));
    if (!kAmid && !P::kQueryHeld && is_last() && leader())
      mbarrier_arrive(PrefillShared<P>::empty_of(shared_.query_full(query_slot())));
  }
  FOVEA_DEVICE void values_done(uint32_t slot) const {
    if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.values_full(slot)));
  }

  /// The unit's queries as the A of products (tiles/wgmma.cuh), which leaves their place to the next unit's.
  FOVEA_DEVICE void hold_query(uint32_t (&q)[P::kQueryHeld ? P::kD / 16 : 1][4]) const {
    if constexpr (P::kQueryHeld) {
      const uint32_t lane = threadIdx.x % 32, row = lane % 16, chunk = lane / 16;
      const uint32_t from = shared_.query(query_slot()) +
                            (static_cast<uint32_t>(index_) * 64 + threadIdx.x % 128 / 32 * 16 + row) * 128;
#pragma unroll
      for (uint32_t i = 0; i < P::kD / 16; ++i)
        ldmatrix_x4(q[i], from + i / 4 * P::kQPanelBytes + (((i % 4 * 2 + chunk) ^ (row % 8)) * 16));
      __syncwarp();
      if (lane == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.query_full(query_slot())));
    }
  }

  /// S = Q K^T.
  FOVEA_DEVICE void score(float (&s)[P::kTileKeys / 2],
                          const uint32_t (&held)[P::kQueryHeld ? P::kD / 16 : 1][4]) const {
    // Plus 0, as the compiler can't know: else it keeps a descriptor for each slice in registers that are
    // few.
    const uint32_t rows = shared_.query(query_slot()) + static_cast<uint32_t>(index_) * 64 * 128 +
                          (kFewRegisters ? k_.slot >> 16 : 0);
    const uint64_t q = wgmma_descriptor(rows, 16, 1024, TileSwizzle::span_128);
    const uint64_t k = wgmma_descriptor(shared_.keys(k_.slot), 16, 1024, TileSwizzle::span_128);
    using Product = Wgmma<typename P::Q, P::kTileKeys>;
#pragma unroll
    for (int i = 0; i < P::kD / 16; ++i) {
      const uint64_t b = wgmma_advance(k, static_cast<uint32_t>(i / 4 * P::kTilePanelBytes + i % 4 * 32));
      if constexpr (P::kQueryHeld)
        Product::template rs<false>(s, held[i], b, i > 0);
      else
        Product::template ss<false, false>(
            s, wgmma_advance(q, static_cast<uint32_t>(i / 4 * P::kQPanelBytes + i % 4 * 32)), b, i > 0);
    }
  }
  /// O += P V.
  FOVEA_DEVICE void add_values(float (&o)[P::kDv / 2], const uint32_t (&p)[P::kTileKeys / 16][4],
                               uint32_t slot) const {
    const uint64_t v =
        wgmma_descriptor(shared_.values(slot), P::kTilePanelBytes, 1024, TileSwizzle::span_128);
#pragma unroll
    for (int i = 0; i < P::kTileKeys / 16; ++i)
      Wgmma<typename P::Q, P::kDv>::template rs<true>(
          o, p[i], wgmma_advance(v, static_cast<uint32_t>(i * 2048)), true);
  }

  /// Gives whether O is to be multiplied by `factor`.
  template <bool kHides>
  FOVEA_DEVICE bool probabilities(float (&s)[P::kTileKeys / 2], float (&factor)[2]) {
    if (kHides && !sees_all(key0_)) {
      const WorkItem& item = units_[units_before_ % P::kUnits].item;
      hide_keys(s, a_.p, item, item.row_first + row(), key0_);
    }
    if constexpr (is_capped(kWay))
      return soften_capped(s, rows_, a_.cap, key0_ + P::kTileKeys, factor);
    else
      return soften(s, rows_, a_.scale, factor);
  }
  static FOVEA_DEVICE void pack_tile(uint32_t (&p)[P::kTileKeys / 16][4],
                                     const float (&s)[P::kTileKeys / 2]) {
#pragma unroll
    for (int i = 0; i < P::kTileKeys / 4; ++i)
      p[i / 4][i % 4] = pack<typename P::Q>(s[2 * i], s[2 * i + 1]);
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  const PrefillUnit* const units_;
  const int index_;
  int key0_ = 0, key_last_ = 0;
  KeyInterval safe_{0, 0};
  PrefillRows rows_;
  uint32_t units_before_ = 0;  ///< of this block
  uint32_t written_ = 0;       ///< units of this block whose O is
  RingPosition<P::kStages> k_;
};

}  // namespace fovea::cuda::sm90
