#pragma once
// A consumer warpgroup of a prefill CTA over e4m3 queries, keys and values. It computes 64 packed rows.
// As in prefill_consumer.cuh, the softmax of a key tile overlaps the PV product of the tile before.
#include "kernels/cuda/sm90/prefill_e4m3_policy.h"
#include "kernels/cuda/sm90/prefill_epilogue.cuh"
#include "kernels/cuda/sm90/prefill_shared.cuh"
#include "kernels/cuda/tiles/wgmma_e4m3.cuh"

namespace fovea::cuda::sm90 {

/// Two scores of each of two column groups as four e4m3, lowest first.
FOVEA_DEVICE uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

/// Descales of a step: element (sequence, KV head) of an array, or 1 where there is none.
struct PrefillDescales {
  const float* values = nullptr;
  int64_t seq_stride = 0, head_stride = 0;
  FOVEA_DEVICE float of(int seq, int head) const {
    return values == nullptr ? 1.0f : __ldg(values + seq * seq_stride + head * head_stride);
  }
};
struct PrefillE4m3Params {
  PrefillParams a;
  PrefillDescales q, k, v;
};

template <class P>
class PrefillE4m3Consumer {
  using Words = typename P::Words;
  static constexpr int kN = P::kTileKeys;
  using Scores = float[kN / 2];
  using Output = float[P::kDv / 2];
  using Packed = uint32_t[kN / 32][4];

 public:
  __device__ PrefillE4m3Consumer(const PrefillE4m3Params& params, PrefillShared<Words> shared, char* generic,
                                 int index)
      : params_(params),
        a_(params.a),
        shared_(shared),
        work_tiles_(reinterpret_cast<PrefillWorkTile*>(generic + Words::kWorkTilesOffset)),
        index_(index) {}

  __device__ void run() {
    if (!has_work_tile(0)) return;
    Scores s;
    Output o;
    Packed p;
    clear(o);
    softmax_.reset(kAlwaysCheck);
    if (P::kPingPong && index_ > 0) named_barrier_sync(1 + index_, 256);
    wait_for_query(0);
    mbarrier_wait(shared_.keys_full(0), 0);
    wgmma_fence();
    score(s, 0);
    wgmma_commit();
    if (P::kPingPong) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    begin_work_tile();
    wgmma_wait<0>();
    wgmma_pin(s);
    release_keys<false>();
    float factor[2];
    softmax<false>(s, factor);
    k_.next();
    pack_tile(p, s);
    do {
      while (is_interior())
        step<true>(s, o, p);
    } while (step<false>(s, o, p));
    if (P::kPingPong && index_ == 0) named_barrier_sync(1, 256);  // consumes the final barrier arrival
  }

 private:
  /// P is at most 2^kTop; row_max is set 2^-kOffset below the largest score, so that P uses e4m3's range.
  static constexpr int kTop = 8, kOffset = 6;

  /// Whether neither this step nor the next involves another work tile, and no row is masked in the next
  /// tile.
  FOVEA_DEVICE bool is_interior() const { return key0_ + 2 * kN < key_last_ && sees_all(key0_ + kN); }
  FOVEA_DEVICE bool sees_all(int key0) const {
    return key0 >= unmasked_.first && key0 + kN <= unmasked_.last;
  }
  FOVEA_DEVICE bool is_last() const { return key0_ + kN >= key_last_; }

  /// Issues the scores of the next key tile and the PV product of the current one, whose probabilities `p`
  /// holds, then computes the softmax of the next. False: there is no next one.
  template <bool kInterior>
  FOVEA_DEVICE bool step(Scores& s, Output& o, Packed& p) {
    const bool ends = !kInterior && is_last();
    bool more = true;
    if (ends) {
      more = has_work_tile(work_tile_count_ + 1);
      if (more) wait_for_query(work_tile_count_ + 1);
    }
    const RingPosition<P::kStages> v = k_.slot == 0 ? RingPosition<P::kStages>{P::kStages - 1, k_.phase ^ 1}
                                                    : RingPosition<P::kStages>{k_.slot - 1, k_.phase};
    if (more) mbarrier_wait(shared_.keys_full(k_.slot), k_.phase);
    if (P::kPingPong) named_barrier_sync(1 + index_, 256);
    wgmma_pin(o);
    wgmma_fence();
    score(s, (work_tile_count_ + (ends ? 1 : 0)) % 2);  // after the last work tile: result unused
    wgmma_commit();
    mbarrier_wait(shared_.values_full(v.slot), v.phase);
    wgmma_fence();
    add_values(o, p, v.slot);
    wgmma_commit();
    if (P::kPingPong) named_barrier_arrive(1 + (index_ + 1) % P::kConsumers, 256);
    if (ends) {
      finish_rows();
      ++work_tile_count_;
      if (more) begin_work_tile();
    } else {
      key0_ += kN;
    }
    wgmma_wait<1>();
    wgmma_pin(s);
    bool rescale = false;
    float factor[2];
    if (more) {
      release_keys<kInterior>();
      rescale = softmax<kInterior>(s, factor);
    }
    wgmma_wait<0>();
    wgmma_pin(o);
    if (leader()) mbarrier_arrive(PrefillShared<Words>::empty_of(shared_.values_full(v.slot)));
    k_.next();
    if (ends) {
      store_work_tile(o);
      if (!more) return false;
      clear(o);
    } else {
      if (rescale) [[unlikely]] {
#pragma unroll
        for (int i = 0; i < P::kDv / 2; ++i)
          o[i] *= factor[i / 2 % 2];
      }
      if (key0_ % P::kPromoteKeys == 0) promote(o);
    }
    pack_tile(p, s);
    return true;
  }

  template <bool kInterior>
  FOVEA_DEVICE void release_keys() const {
    if (leader()) mbarrier_arrive(PrefillShared<Words>::empty_of(shared_.keys_full(k_.slot)));
    if (!kInterior && is_last() && leader())
      mbarrier_arrive(PrefillShared<Words>::empty_of(shared_.query_full(work_tile_count_ % 2, 0)));
  }
  /// Scores -> probabilities. Returns whether O must be rescaled by `factor`.
  template <bool kInterior>
  FOVEA_DEVICE bool softmax(Scores& s, float (&factor)[2]) {
    if (!kInterior && !sees_all(key0_)) {
      const WorkItem& item = work_tiles_[work_tile_count_ % Words::kWorkTileStages].item;
      apply_mask(s, a_.p, item, item.row_first + row(), key0_);
    }
    return online_softmax<kTop, kOffset>(s, softmax_, scale_, factor);
  }
  static FOVEA_DEVICE void pack_tile(Packed& p, const Scores& s) {
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      const float* x = s + 16 * (i / 4) + 8 * (i % 4 / 2) + 2 * (i % 2);
      p[i / 4][i % 4] = pack_e4m3(x[0], x[1], x[4], x[5]);
    }
  }

  FOVEA_DEVICE bool has_work_tile(uint32_t number) const {
    mbarrier_wait(shared_.work_tile_full(number % Words::kWorkTileStages),
                  number / Words::kWorkTileStages & 1);
    return work_tiles_[number % Words::kWorkTileStages].valid != 0;
  }
  FOVEA_DEVICE void begin_work_tile() {
    const PrefillWorkTile& tile = work_tiles_[work_tile_count_ % Words::kWorkTileStages];
    key0_ = tile.item.key_first;
    key_last_ = tile.item.key_last;
    unmasked_ = keys_of_all_rows(a_.p, tile.item, tile.item.row_first + index_ * 64);
    scale_ = a_.scale * params_.q.of(tile.item.seq, tile.head) * params_.k.of(tile.item.seq, tile.head);
  }
  FOVEA_DEVICE int row() const {
    return index_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  FOVEA_DEVICE bool leader() const { return threadIdx.x % 128 == 0; }
  FOVEA_DEVICE void wait_for_query(uint32_t number) const {
    mbarrier_wait(shared_.query_full(number % 2, 0), number / 2 & 1);
  }
  static FOVEA_DEVICE void clear(Output& o) {
#pragma unroll
    for (int i = 0; i < P::kDv / 2; ++i)
      o[i] = 0.0f;
  }

  FOVEA_DEVICE void score(Scores& s, uint32_t query_slot) const {
    const uint64_t q = wgmma_descriptor(shared_.query(query_slot) + static_cast<uint32_t>(index_) * 64 * 128,
                                        16, 1024, TileSwizzle::span_128);
    const uint64_t k = wgmma_descriptor(shared_.keys(k_.slot), 16, 1024, TileSwizzle::span_128);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      Wgmma<E4m3, kN>::ss(s, wgmma_advance(q, i * 32), wgmma_advance(k, i * 32), i > 0);
  }
  /// Values are slices of 32 keys, [16 groups of dims][2 halves of keys][8 dims][16 keys].
  FOVEA_DEVICE void add_values(Output& o, const Packed& p, uint32_t slot) const {
    const uint64_t v = wgmma_descriptor(shared_.values(slot), 128, 256, TileSwizzle::none);
#pragma unroll
    for (uint32_t i = 0; i < kN / 32; ++i)
      Wgmma<E4m3, P::kDv>::rs(o, p[i], wgmma_advance(v, i * 4096), true);
  }

  // ---- fp32 totals, for each thread its 64 elements of O, with the row_max that they refer to

  FOVEA_DEVICE uint32_t total_address(int i) const {
    return shared_.base + Words::kTotalsOffset +
           static_cast<uint32_t>(index_ * Words::kTotalBytes + i * 2048) + threadIdx.x % 128 * 16;
  }
  /// Adds the total, if there is one, by `factors`.
  FOVEA_DEVICE void add_total(Output& o, float f0, float f1) const {
#pragma unroll
    for (int i = 0; i < P::kDv / 8; ++i) {
      float x[4];
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                   : "r"(total_address(i))
                   : "memory");
#pragma unroll
      for (int k = 0; k < 4; ++k)
        o[4 * i + k] = fmaf(x[k], k < 2 ? f0 : f1, o[4 * i + k]);
    }
  }
  FOVEA_DEVICE void promote(Output& o) {
    if (has_total_)
      add_total(o, exp2_approx(total_max_[0] - softmax_.row_max[0]),
                exp2_approx(total_max_[1] - softmax_.row_max[1]));
#pragma unroll
    for (int i = 0; i < P::kDv / 8; ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(total_address(i)), "f"(o[4 * i]),
                   "f"(o[4 * i + 1]), "f"(o[4 * i + 2]), "f"(o[4 * i + 3])
                   : "memory");
    clear(o);
    has_total_ = true;
    total_max_[0] = softmax_.row_max[0], total_max_[1] = softmax_.row_max[1];
  }

  FOVEA_DEVICE void finish_rows() {
    const PrefillWorkTile& tile = work_tiles_[work_tile_count_ % Words::kWorkTileStages];
    const float sums[2] = {quad_sum(softmax_.row_sum[0]), quad_sum(softmax_.row_sum[1])};
    const bool second = threadIdx.x % 2 == 1;
    const float row_sum = second ? sums[1] : sums[0];
    float row_max = second ? softmax_.row_max[1] : softmax_.row_max[0];
    if (row_sum == 0.0f) row_max = -INFINITY;  // no visible key
    const int tile_row = row() + (second ? 8 : 0);
    RowTarget target =
        end_row<P>(a_.p, tile.item, tile.head, tile.item.row_first + tile_row, row_max, row_sum);
    target.factor *= params_.v.of(tile.item.seq, tile.head);
    if (threadIdx.x % 4 < 2) store_target(shared_.row_target(tile_row), target);
    __syncwarp();
    if (has_total_) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        total_max_[h] = exp2_approx(total_max_[h] - softmax_.row_max[h]);
    }
    softmax_.reset(kAlwaysCheck);
  }
  FOVEA_DEVICE void store_work_tile(Output& o) {
    if (has_total_) add_total(o, total_max_[0], total_max_[1]);
    has_total_ = false;
    const uint32_t slot = stored_count_ % Words::kWorkTileStages;
    write_output<P>(a_.p, work_tiles_[slot].item.num_splits > 1, shared_.row_target(row()), o);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(PrefillShared<Words>::empty_of(shared_.work_tile_full(slot)));
    ++stored_count_;
  }

  const PrefillE4m3Params& params_;
  const PrefillParams& a_;
  const PrefillShared<Words> shared_;
  const PrefillWorkTile* const work_tiles_;
  const int index_;
  int key0_ = 0, key_last_ = 0;
  KeyInterval unmasked_{0, 0};
  SoftmaxState softmax_;
  float scale_ = 0;
  bool has_total_ = false;
  float total_max_[2] = {0.0f, 0.0f};  ///< after finish_rows: the total's factors
  uint32_t work_tile_count_ = 0, stored_count_ = 0;
  RingPosition<P::kStages> k_;
};

}  // namespace fovea::cuda::sm90
