#pragma once
// A consumer warpgroup of a prefill CTA. It computes 64 packed rows of every work tile.
#include "kernels/cuda/sm90/prefill_epilogue.cuh"
#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda::sm90 {

/// The mainloop overlaps the softmax of a key tile with the PV product of the key tile before. Consecutive
/// work tiles are pipelined: the last PV product of a work tile is in flight during the first softmax of the
/// next.
template <class P, LoadMode kLoadMode, bool kSoftcap>
class PrefillConsumer {
 public:
  __device__ PrefillConsumer(const PrefillParams& a, PrefillShared<P> shared, char* generic, int index)
      : a_(a),
        shared_(shared),
        work_tiles_(reinterpret_cast<PrefillWorkTile*>(generic + P::kWorkTilesOffset)),
        index_(index) {}

  __device__ void run() {
    if (!next_work_tile()) return;
    Scores s;
    Output o;
    Packed p;
    Query q;
    clear(o);
    softmax_.reset(kSoftcap ? 0 : kAlwaysCheck);
    if (kPingPongBarriers && index_ > 0) named_barrier_sync(1 + index_, 256);
    wait_for_query();
    load_query_registers(q);
    mbarrier_wait(shared_.keys_full(k_.slot), k_.phase);
    fence_cp_async_writes();
    wgmma_fence();
    score(s, q);
    wgmma_commit();
    if (kPingPongBarriers) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    begin_work_tile();
    wgmma_wait<0>();
    wgmma_pin(s);
    release_keys<false>();
    float factor[2];
    softmax<true>(s, factor);
    k_.next();
    pack_tile(p, s);
    do {
      while (is_interior())
        step<true>(s, o, q, p);
    } while (step<false>(s, o, q, p));
    if (kPingPongBarriers && index_ == 0) named_barrier_sync(1, 256);  // consumes the final barrier arrival
  }

 private:
  /// With a soft cap, ping-pong scheduling is 0.7 % faster at D = 128; without one it is slower.
  static constexpr bool kPingPongBarriers = P::kPingPong || (P::kD == 128 && kSoftcap);
  /// Whether wgmma may read a tile as soon as its barrier completes.
  static constexpr bool kOrdered = kLoadMode == LoadMode::tma;
  /// Whether K may have a scale for each head: where 8-bit caches are widened.
  static constexpr bool kHeadScales = kLoadMode == LoadMode::tma && !kSoftcap && !P::kTokenScales;
  /// fp16 probabilities are multiplied by a value's scale and KvParams::v_gain, together up to 8/7 of the
  /// token's largest value: they must not be as large as elsewhere.
  static constexpr int kThreshold =
      P::kTokenScales && std::is_same_v<typename P::Q, __half> ? 2 : kRescaleThresholdLog2;
  using Scores = float[P::kTileKeys / 2];
  using Output = float[P::kDv / 2];
  using Packed = uint32_t[P::kTileKeys / 16][4];
  static constexpr bool kFewRegisters =
      P::kConsumers == 3 && (P::kD > 128 || (P::kD == 128 && kLoadMode != LoadMode::tma && kSoftcap));
  using Query = uint32_t[P::kQueryInRegisters ? P::kD / 16 : 1][4];

  /// Whether neither this step nor the next involves another work tile, no row is masked in the next key
  /// tile, and no O of an earlier work tile is left to store.
  FOVEA_DEVICE bool is_interior() const {
    return key0_ + 2 * P::kTileKeys < key_last_ && sees_all(key0_ + P::kTileKeys) &&
           (!P::kDelayedStore || stored_count_ == work_tile_count_);
  }
  FOVEA_DEVICE bool sees_all(int key0) const {
    return key0 >= unmasked_.first && key0 + P::kTileKeys <= unmasked_.last;
  }

  /// Issues the scores of the next key tile and the PV product of the current one (`p` holds its
  /// probabilities), then computes the softmax of the next. False: there is no next one. kInterior:
  /// is_interior().
  template <bool kInterior>
  FOVEA_DEVICE bool step(Scores& s, Output& o, Query& q, Packed& p) {
    const bool ends = !kInterior && is_last();
    RingPosition<P::kStages> v;
    if (P::kOwnPace) v = values_position();
    bool more = true;
    if (ends) {
      skip_hidden_tiles();
      ++work_tile_count_;
      more = next_work_tile();
      if (more) {
        wait_for_query();
        load_query_registers(q);
      }
    }
    if (!P::kOwnPace) v = values_position();
    if (!kOrdered) mbarrier_wait(shared_.values_full(v.slot), v.phase);
    if (more) mbarrier_wait(shared_.keys_full(k_.slot), k_.phase);
    fence_cp_async_writes();
    if (kPingPongBarriers) named_barrier_sync(1 + index_, 256);
    wgmma_pin(o);
    wgmma_fence();
    score(s, q);  // after the last work tile: result unused; keeps the pipeline uniform
    wgmma_commit();
    if (kOrdered) mbarrier_wait(shared_.values_full(v.slot), v.phase);
    if (!kInterior && P::kDelayedStore && stored_count_ != work_tile_count_ - (ends ? 1 : 0)) {
      store_work_tile(stored_count_++, o);
      clear(o);
      wgmma_pin(o);
    }
    wgmma_fence();
    add_values(o, p, v.slot);
    wgmma_commit();
    if (kPingPongBarriers) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    if (ends) {
      finish_rows(work_tile_count_ - 1);
      if (more) begin_work_tile();
    } else {
      key0_ += P::kTileKeys;
    }
    wgmma_wait<1>();
    wgmma_pin(s);
    bool rescale = false;
    float factor[2];
    if (more) {
      release_keys<kInterior>();
      rescale = softmax<!kInterior>(s, factor);
    }
    wgmma_wait<0>();
    wgmma_pin(o);
    release_values(v.slot);
    k_.next();
    if (!kInterior && (P::kDelayedStore ? !more : ends)) {
      store_work_tile(stored_count_++, o);
      if (!more) return false;
      clear(o);
    } else if (rescale && !ends) [[unlikely]] {
#pragma unroll
      for (int i = 0; i < P::kDv / 2; ++i)
        o[i] *= factor[i / 2 % 2];
    }
    pack_tile(p, s);
    return true;
  }

  /// cp.async writes through the generic proxy, and the full barrier has made its writes visible to this
  /// thread. This fence orders them before the reads of wgmma.
  FOVEA_DEVICE void fence_cp_async_writes() const {
    if (!kOrdered) fence_proxy_async();
  }
  FOVEA_DEVICE bool next_work_tile() const {
    mbarrier_wait(shared_.work_tile_full(work_tile_count_ % P::kWorkTileStages),
                  work_tile_count_ / P::kWorkTileStages & 1);
    return work_tiles_[work_tile_count_ % P::kWorkTileStages].valid != 0;
  }
  /// Called while the first scores of the work tile are in flight.
  FOVEA_DEVICE void begin_work_tile() {
    const WorkItem& item = work_tiles_[work_tile_count_ % P::kWorkTileStages].item;
    key0_ = item.key_first;
    key_last_ = item.key_last;
    unmasked_ = keys_of_all_rows(a_.p, item, item.row_first + index_ * 64);
    if constexpr (P::kOwnPace) {
      // No more than the ring holds beside the values of the tile before, which are released after them.
      const int last = keys_of_row(a_.p, item, item.row_first + index_ * 64 + 63).last;
      hidden_ = min(max(key_last_ - max(last, key0_ + 1), 0) / P::kTileKeys, P::kStages - 1);
      key_last_ -= hidden_ * P::kTileKeys;
    }
    if constexpr (kHeadScales)
      scale_ = a_.scale *
               head_scale(a_.p.kv, a_.p.kv.k_scales, work_tiles_[work_tile_count_ % P::kWorkTileStages].head);
  }
  /// Releases the key tiles of the work tile that no row of this consumer sees.
  FOVEA_DEVICE void skip_hidden_tiles() {
    if constexpr (P::kOwnPace) {
      for (int i = 0; i < hidden_; ++i) {
        const uint32_t keys = shared_.keys_full(k_.slot), values = shared_.values_full(k_.slot);
        mbarrier_wait(keys, k_.phase);  // an earlier arrival would count for the tile before in this slot
        if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(keys));
        mbarrier_wait(values, k_.phase);
        if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(values));
        k_.next();
      }
    }
  }
  /// This thread's first row of the work tile; its second row is 8 further.
  FOVEA_DEVICE int row() const {
    return index_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  FOVEA_DEVICE bool leader() const { return threadIdx.x % 128 == 0; }

  /// Finishes the rows of work tile `number`, except for O, and resets the softmax state. In a quad, lanes 0
  /// and 2 handle row g, lanes 1 and 3 row g + 8. The RowTargets stay in shared memory until O is stored;
  /// only this quad accesses them.
  FOVEA_DEVICE void finish_rows(uint32_t number) {
    const PrefillWorkTile& work_tile = work_tiles_[number % P::kWorkTileStages];
    const float row_sums[2] = {quad_sum(softmax_.row_sum[0]), quad_sum(softmax_.row_sum[1])};
    const bool second = threadIdx.x % 2 == 1;
    const float row_sum = second ? row_sums[1] : row_sums[0];
    float row_max = second ? softmax_.row_max[1] : softmax_.row_max[0];
    if (row_sum == 0.0f) row_max = -INFINITY;  // no visible key
    const int tile_row = row() + (second ? 8 : 0);
    const RowTarget target = end_row<P>(a_.p, work_tile.item, work_tile.head,
                                        work_tile.item.row_first + tile_row, row_max, row_sum);
    if (threadIdx.x % 4 < 2) store_target(shared_.row_target(tile_row), target);
    __syncwarp();
    softmax_.reset(kSoftcap ? 0 : kAlwaysCheck);
  }
  FOVEA_DEVICE void store_work_tile(uint32_t number, const float (&o)[P::kDv / 2]) {
    const uint32_t slot = number % P::kWorkTileStages;
    write_output<P>(a_.p, work_tiles_[slot].item.num_splits > 1, shared_.row_target(row()), o);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.work_tile_full(slot)));
  }
  static FOVEA_DEVICE void clear(float (&o)[P::kDv / 2]) {
#pragma unroll
    for (int i = 0; i < P::kDv / 2; ++i)
      o[i] = 0.0f;
  }

  FOVEA_DEVICE bool is_last() const { return key0_ + P::kTileKeys >= key_last_; }
  FOVEA_DEVICE uint32_t query_slot() const { return work_tile_count_ % P::kQueryStages; }
  FOVEA_DEVICE uint32_t query_full() const {
    return shared_.query_full(query_slot(), P::kOwnPace && a_.loads.query_parts > 1 ? index_ : 0);
  }
  FOVEA_DEVICE void wait_for_query() const {
    mbarrier_wait(query_full(), work_tile_count_ / P::kQueryStages & 1);
  }
  /// The values of a key tile are consumed one step after its keys.
  FOVEA_DEVICE RingPosition<P::kStages> values_position() const {
    return k_.slot == 0 ? RingPosition<P::kStages>{P::kStages - 1, k_.phase ^ 1}
                        : RingPosition<P::kStages>{k_.slot - 1, k_.phase};
  }
  /// Releases the keys and, after the last key tile of a work tile, the queries.
  template <bool kInterior>
  FOVEA_DEVICE void release_keys() const {
    if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.keys_full(k_.slot)));
    if (!kInterior && !P::kQueryInRegisters && is_last() && leader())
      mbarrier_arrive(PrefillShared<P>::empty_of(query_full()));
  }
  FOVEA_DEVICE void release_values(uint32_t slot) const {
    if (leader()) mbarrier_arrive(PrefillShared<P>::empty_of(shared_.values_full(slot)));
  }

  /// Loads the queries of the work tile into registers as operand A (tiles/wgmma.cuh) and releases their
  /// buffer for the next work tile.
  FOVEA_DEVICE void load_query_registers(uint32_t (&q)[P::kQueryInRegisters ? P::kD / 16 : 1][4]) const {
    if constexpr (P::kQueryInRegisters) {
      const uint32_t lane = threadIdx.x % 32, row = lane % 16, chunk = lane / 16;
      const uint32_t from = shared_.query(query_slot()) +
                            (static_cast<uint32_t>(index_) * 64 + threadIdx.x % 128 / 32 * 16 + row) * 128;
#pragma unroll
      for (uint32_t i = 0; i < P::kD / 16; ++i)
        ldmatrix_x4(q[i], from + i / 4 * P::kQPanelBytes + (((i % 4 * 2 + chunk) ^ (row % 8)) * 16));
      __syncwarp();
      if (lane == 0) mbarrier_arrive(PrefillShared<P>::empty_of(query_full()));
    }
  }

  /// S = Q K^T.
  FOVEA_DEVICE void score(float (&s)[P::kTileKeys / 2],
                          const uint32_t (&held)[P::kQueryInRegisters ? P::kD / 16 : 1][4]) const {
    // The added value is 0, which the compiler cannot know. Otherwise it keeps a descriptor for each k slice
    // in registers.
    const uint32_t rows = shared_.query(query_slot()) + static_cast<uint32_t>(index_) * 64 * 128 +
                          (kFewRegisters ? k_.slot >> 16 : 0);
    const uint64_t q = wgmma_descriptor(rows, 16, 1024, TileSwizzle::span_128);
    const uint64_t k = wgmma_descriptor(shared_.keys(k_.slot), 16, 1024, TileSwizzle::span_128);
    using Product = Wgmma<typename P::Q, P::kTileKeys>;
#pragma unroll
    for (int i = 0; i < P::kD / 16; ++i) {
      const uint64_t b = wgmma_advance(k, static_cast<uint32_t>(i / 4 * P::kTilePanelBytes + i % 4 * 32));
      if constexpr (P::kQueryInRegisters)
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

  /// Scores -> probabilities. Returns whether O must be rescaled by `factor`.
  template <bool kMasked>
  FOVEA_DEVICE bool softmax(float (&s)[P::kTileKeys / 2], float (&factor)[2]) {
    if constexpr (P::kTokenScales) multiply(s, 0, 1.0f);
    if (kMasked && !sees_all(key0_)) {
      const WorkItem& item = work_tiles_[work_tile_count_ % P::kWorkTileStages].item;
      apply_mask(s, a_.p, item, item.row_first + row(), key0_);
    }
    if constexpr (kSoftcap)
      return online_softmax_softcap(s, softmax_, a_.softcap, key0_ + P::kTileKeys, factor);
    else if constexpr (kHeadScales)
      return online_softmax<kThreshold>(s, softmax_, scale_, factor);
    else
      return online_softmax<kThreshold>(s, softmax_, a_.scale, factor);
  }
  /// Multiplies the scores (`array` 0) of tile k_, or the probabilities (1) of the one before, by the scales
  /// of its keys or values.
  FOVEA_DEVICE void multiply(float (&s)[P::kTileKeys / 2], int array, float gain) const {
    if constexpr (P::kTokenScales) {
      const uint32_t from = shared_.scales(array == 0 ? k_ : values_position()) +
                            static_cast<uint32_t>(array * P::kTileKeys * 4) + threadIdx.x % 4 * 8;
#pragma unroll
      for (int i = 0; i < P::kTileKeys / 8; ++i) {
        float low, high;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(from + i * 32u));
        if (array == 1) low *= gain, high *= gain;
#pragma unroll
        for (int h = 0; h < 2; ++h)
          s[4 * i + 2 * h] *= low, s[4 * i + 2 * h + 1] *= high;
      }
    }
  }
  /// After k_ has gone on to the next tile.
  FOVEA_DEVICE void pack_tile(uint32_t (&p)[P::kTileKeys / 16][4], float (&s)[P::kTileKeys / 2]) {
    if constexpr (P::kTokenScales) multiply(s, 1, a_.p.kv.v_gain);
#pragma unroll
    for (int i = 0; i < P::kTileKeys / 4; ++i)
      p[i / 4][i % 4] = pack<typename P::Q>(s[2 * i], s[2 * i + 1]);
  }

  const PrefillParams& a_;
  const PrefillShared<P> shared_;
  const PrefillWorkTile* const work_tiles_;
  const int index_;
  int key0_ = 0, key_last_ = 0;  ///< without hidden tiles
  int hidden_ = 0;
  KeyInterval unmasked_{0, 0};  ///< the keys that all rows of this warpgroup see
  SoftmaxState softmax_;
  float scale_ = 0;  ///< PrefillParams::scale for the work tile's head, where heads may have scales
  uint32_t work_tile_count_ = 0;  ///< work tiles of this CTA before the current one
  uint32_t stored_count_ = 0;     ///< work tiles of this CTA whose O is stored
  RingPosition<P::kStages> k_;
};

}  // namespace fovea::cuda::sm90
