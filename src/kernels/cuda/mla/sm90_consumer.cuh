#pragma once
// The two consumer warpgroups of the Hopper kernel. The scorer computes scores, softmax and the left half of
// O (its probabilities are wgmma's A from registers); the other one the right half, from the probabilities
// and rescaling factors that the scorer publishes in shared memory.
#include "kernels/cuda/linear/cluster.cuh"
#include "kernels/cuda/mla/sm90_shared.cuh"
#include "kernels/cuda/sm90/prefill_epilogue.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda::mla {

/// What end_row() needs of a policy.
struct Sm90Row {
  static constexpr int kDv = mla::kDv;
};

FOVEA_DEVICE void store_factor(uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
FOVEA_DEVICE float load_factor(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

/// Gatherers' threads write queries and keys, which wgmma then reads through another proxy.
template <class Query, KeySource kSource>
class Sm90Consumer {
 public:
  __device__ Sm90Consumer(const Sm90Params& a, Sm90Shared shared) : a_(a), shared_(shared) {}

 protected:
  static constexpr int kTile = Sm90Policy::kTileKeys;
  static constexpr uint32_t kPanelBytes = Sm90Policy::kPanelBytes;
  using Half = float[128];  ///< 64 rows of 256 columns of O

  static FOVEA_DEVICE void clear(Half& o) {
#pragma unroll
    for (int i = 0; i < 128; ++i)
      o[i] = 0.0f;
  }
  static FOVEA_DEVICE void scale(Half& o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 128; ++i)
      o[i] *= factor[i / 2 % 2];
  }
  /// This thread's first row of the work item; its second row is 8 further.
  static FOVEA_DEVICE int row() {
    return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  }
  static FOVEA_DEVICE void wait_full(uint32_t barrier, uint32_t phase) {
    mbarrier_wait(barrier, phase);
    if constexpr (gathers(kSource)) fence_proxy_async();
  }
  /// A part of a slot may be written, by the producers of both CTAs where they are a pair.
  FOVEA_DEVICE void release(uint32_t slot, Part part) const {
    if (!leader()) return;
    mbarrier_arrive(shared_.empty(slot, part));
    if constexpr (is_pairs(kSource)) mbarrier_arrive_cluster(shared_.empty(slot, part), cluster_rank() ^ 1);
  }
  static FOVEA_DEVICE bool leader() { return threadIdx.x % 128 == 0; }
  FOVEA_DEVICE uint64_t values(uint32_t slot, Part part) const {
    return wgmma_descriptor(shared_.keys(slot) + static_cast<uint32_t>(part) * 4 * kPanelBytes, kPanelBytes,
                            1024, TileSwizzle::span_128);
  }

  /// Stores the columns of `part` of rows g and g + 8 of this warp; `targets` are theirs.
  FOVEA_DEVICE void write_half(bool partial, Part part, const sm90::RowTarget (&targets)[2],
                               const Half& o) const {
    const int q = static_cast<int>(threadIdx.x) % 4, first = static_cast<int>(part) * 256;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const sm90::RowTarget& target = targets[h];
      const bool exists = target.at != sm90::RowTarget::kNotStored;
      if (partial) {
        // Lanes exchange pairs, so that each stores four columns: those of two products of 8 columns, in the
        // order of the lanes.
        const bool odd = (q & 1) != 0, upper = (q & 2) != 0;
        float* to = a_.p.partial_out + int64_t{target.at} * 4 + first + 4 * q;
#pragma unroll
        for (int j = 0; j < 32; j += 2) {
          float x[2][2] = {{o[4 * j + 2 * h], o[4 * j + 2 * h + 1]},
                           {o[4 * j + 4 + 2 * h], o[4 * j + 5 + 2 * h]}};
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float far = __shfl_xor_sync(~0u, upper ? x[0][e] : x[1][e], 2);
            (upper ? x[0][e] : x[1][e]) = far;
            // Lane 0 has pairs 0 and 2 of the first product now, lane 1 its pairs 1 and 3; lanes 2 and 3
            // likewise.
            const float near = __shfl_xor_sync(~0u, odd ? x[0][e] : x[1][e], 1);
            (odd ? x[0][e] : x[1][e]) = near;
          }
          if (exists)
            __stcg(reinterpret_cast<float4*>(to + 8 * j), make_float4(x[0][0], x[0][1], x[1][0], x[1][1]));
        }
      } else {
        Query* to = static_cast<Query*>(a_.p.out) + int64_t{target.at} * 8 + first + 8 * q;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          uint32_t u[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float* from = o + 16 * j + 4 * k + 2 * h;
            u[k] = pack<Query>(from[0] * target.factor, from[1] * target.factor);
          }
          sm90::transpose_quad(u);
          if (exists) *reinterpret_cast<uint4*>(to + 32 * j) = make_uint4(u[0], u[1], u[2], u[3]);
        }
      }
    }
  }
  FOVEA_DEVICE void load_targets(sm90::RowTarget (&targets)[2]) const {
    targets[0] = sm90::load_target(shared_.target(row()));
    targets[1] = sm90::load_target(shared_.target(row() + 8));
  }

  const Sm90Params& a_;
  const Sm90Shared shared_;
  RingPosition<Sm90Policy::kStages> keys_;
};

/// Scores, softmax, and columns 0 to 255 of O.
template <class Query, KeySource kSource>
class Sm90Scorer : public Sm90Consumer<Query, kSource> {
  using Base = Sm90Consumer<Query, kSource>;
  using Base::a_, Base::shared_, Base::keys_, Base::kTile, Base::kPanelBytes;
  using typename Base::Half;

 public:
  using Base::Base;

  __device__ void run() {
    Half o;
    Scores s;
    const int num_items = *a_.p.num_items, step = static_cast<int>(gridDim.x);
    int index = static_cast<int>(blockIdx.x);
    if (begin(index, num_items)) {
      score(s);
      wgmma_wait<0>();
      wgmma_pin(s);
    }
    for (; index < num_items; index += step) {
      const WorkItem& item = a_.p.items[index];
      Base::clear(o);
      if (key0_ < key_last_) {
        // Few rows wait for memory, and gathered keys arrive late: keys are then released before the next
        // ones are awaited. Many rows keep the tensor cores busy during the softmax. The bits are the same.
        if (!gathers(kSource) && item.n_q * static_cast<int>(a_.p.group.divisor) - item.row_first > kFewRows)
          add_tiles<true>(o, s, item);
        else
          add_tiles<false>(o, s, item);
      }
      publish_targets(item);
      sm90::RowTarget targets[2];
      Base::load_targets(targets);
      const bool partial = item.num_splits > 1;
      if (begin(index + step, num_items)) {
        // The first scores of the next item are computed while O is stored.
        score(s);
        Base::write_half(partial, Part::left, targets, o);
        wgmma_wait<0>();
        wgmma_pin(s);
      } else {
        Base::write_half(partial, Part::left, targets, o);
      }
    }
    named_barrier_sync(kRead, 256);  // consumes the last arrival
  }

 private:
  static constexpr int kFewRows = 32;
  using Scores = float[kTile / 2];
  using Packed = uint32_t[kTile / 16][4];

  /// Begins item `index`: whether there is one and it has keys; its queries are then there.
  FOVEA_DEVICE bool begin(int index, int num_items) {
    key0_ = key_last_ = 0;
    softmax_.reset(sm90::kAlwaysCheck);
    if (index >= num_items) return false;
    const WorkItem& item = a_.p.items[index];
    if (item.key_first >= item.key_last) return false;
    key0_ = item.key_first, key_last_ = item.key_last;
    unmasked_ = sm90::keys_of_all_rows(a_.p, item, item.row_first);
    Base::wait_full(shared_.query_full(), query_phase_);
    query_phase_ ^= 1;
    return true;
  }

  /// Adds all tiles of an item; the scores of the first are there.
  template <bool kOverlap>
  FOVEA_DEVICE void add_tiles(Half& o, Scores& s, const WorkItem& item) {
    Packed p;
    float factor[2];
    softmax(s, item, factor);
    factor[0] = factor[1] = 1.0f;  // O is 0
    publish(p, s, factor);
    for (key0_ += kTile; key0_ < key_last_; key0_ += kTile) {
      const uint32_t slot = keys_.slot;
      keys_.next();
      bool rescale;
      wgmma_pin(o);
      if constexpr (kOverlap) {
        score(s);
        add_values(o, p, slot);
        wgmma_wait<1>();
        wgmma_pin(s);
        rescale = softmax(s, item, factor);
        wgmma_wait<0>();
        wgmma_pin(o);
        Base::release(slot, Part::left);
      } else {
        add_values(o, p, slot);
        wgmma_wait<0>();
        wgmma_pin(o);
        Base::release(slot, Part::left);
        score(s);
        wgmma_wait<0>();
        wgmma_pin(s);
        rescale = softmax(s, item, factor);
      }
      if (rescale) [[unlikely]]
        Base::scale(o, factor);
      publish(p, s, factor);
    }
    if (Base::leader()) mbarrier_arrive(shared_.query_empty());
    wgmma_pin(o);
    add_values(o, p, keys_.slot);
    wgmma_wait<0>();
    wgmma_pin(o);
    Base::release(keys_.slot, Part::left);
    keys_.next();
  }

  /// S = Q K^T of the tile at keys_, whose first key is key0_: rope and the right half of the latent dims
  /// first, as they are loaded first.
  FOVEA_DEVICE void score(Scores& s) const {
    const int keys = key_last_ - key0_;
    Base::wait_full(shared_.full(keys_.slot, Part::right), keys_.phase);
    if (keys < kTile) [[unlikely]] {
      Base::wait_full(shared_.full(keys_.slot, Part::left), keys_.phase);
      clear_values(keys);
    }
    score_panels<4, 5, false>(s);
    Base::wait_full(shared_.full(keys_.slot, Part::left), keys_.phase);
    score_panels<0, 4, true>(s);
  }
  template <uint32_t kFirst, uint32_t kCount, bool kAccumulate>
  FOVEA_DEVICE void score_panels(Scores& s) const {
    const uint64_t q = wgmma_descriptor(shared_.query(), 16, 1024, TileSwizzle::span_128);
    const uint64_t k = wgmma_descriptor(shared_.keys(keys_.slot), 16, 1024, TileSwizzle::span_128);
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < 4 * kCount; ++i)
      multiply(s, q, k, kFirst + i / 4, i % 4, kAccumulate || i > 0);
    wgmma_commit();
  }
  static FOVEA_DEVICE void multiply(Scores& s, uint64_t q, uint64_t k, uint32_t panel, uint32_t step,
                                    bool accumulate) {
    const uint32_t at = panel * kPanelBytes + step * 32;
    Wgmma<Query, kTile>::template ss<false, false>(s, wgmma_advance(q, at), wgmma_advance(k, at), accumulate);
  }

  /// Makes the values from row `keys` of the tile on zeros: nothing there need be a number, and a probability
  /// of 0 does not mask a NaN.
  FOVEA_DEVICE void clear_values(int keys) const {
    const int words = (kTile - keys) * 8;  // of 16 bytes, in each panel
    for (int i = static_cast<int>(threadIdx.x) % 128; i < words * 8; i += 128) {
      const uint32_t to = shared_.keys(keys_.slot) + static_cast<uint32_t>(i / words) * kPanelBytes +
                          static_cast<uint32_t>(keys * 128 + i % words * 16);
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    fence_proxy_async();
    named_barrier_sync(kScorer, 128);
  }

  /// Scores -> probabilities. Returns whether O must be multiplied by `factor`.
  FOVEA_DEVICE bool softmax(Scores& s, const WorkItem& item, float (&factor)[2]) {
    if (key0_ < unmasked_.first || key0_ + kTile > unmasked_.last)
      sm90::apply_mask(s, a_.p, item, item.row_first + Base::row(), key0_);
    return sm90::online_softmax(s, softmax_, a_.scale, factor);
  }

  /// Packs the probabilities and hands them to the other warpgroup.
  FOVEA_DEVICE void publish(Packed& p, const Scores& s, const float (&factor)[2]) const {
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i)
      p[i / 4][i % 4] = pack<Query>(s[2 * i], s[2 * i + 1]);
    named_barrier_sync(kRead, 256);
    const uint32_t lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (uint32_t k = 0; k < kTile / 16; ++k)
      stmatrix_x4(shared_.probabilities() + r * 128 + ((2 * k + lane / 16) ^ (r % 8)) * 16, p[k]);
    if (threadIdx.x % 4 == 0) {
      store_factor(shared_.factor(Base::row()), factor[0]);
      store_factor(shared_.factor(Base::row() + 8), factor[1]);
    }
    fence_proxy_async();
    named_barrier_arrive(kPublished, 256);
  }

  FOVEA_DEVICE void add_values(Half& o, const Packed& p, uint32_t slot) const {
    const uint64_t v = Base::values(slot, Part::left);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kTile / 16; ++k)
      Wgmma<Query, 256>::template rs<true>(o, p[k], wgmma_advance(v, k * 2048), true);
    wgmma_commit();
  }

  /// Writes the rows' LSE or partial states, and hands the rows' targets to the other warpgroup. In a quad,
  /// lanes 0 and 2 handle row g, lanes 1 and 3 row g + 8.
  FOVEA_DEVICE void publish_targets(const WorkItem& item) {
    const float sums[2] = {quad_sum(softmax_.row_sum[0]), quad_sum(softmax_.row_sum[1])};
    const bool second = threadIdx.x % 2 == 1;
    const float sum = second ? sums[1] : sums[0];
    float top = second ? softmax_.row_max[1] : softmax_.row_max[0];
    if (sum == 0.0f) top = -INFINITY;  // no visible key
    const int tile_row = Base::row() + (second ? 8 : 0);
    const sm90::RowTarget target = sm90::end_row<Sm90Row>(a_.p, item, 0, item.row_first + tile_row, top, sum);
    named_barrier_sync(kRead, 256);
    if (threadIdx.x % 4 < 2) sm90::store_target(shared_.target(tile_row), target);
    __syncwarp();
    named_barrier_arrive(kPublished, 256);
  }

  int key0_ = 0, key_last_ = 0;       ///< of the tile that is scored next; of its item
  sm90::KeyInterval unmasked_{0, 0};  ///< the keys that all rows see
  sm90::SoftmaxState softmax_;
  uint32_t query_phase_ = 0;
};

/// Columns 256 to 511 of O.
template <class Query, KeySource kSource>
class Sm90Follower : public Sm90Consumer<Query, kSource> {
  using Base = Sm90Consumer<Query, kSource>;
  using Base::a_, Base::shared_, Base::keys_, Base::kTile;
  using typename Base::Half;

 public:
  using Base::Base;

  __device__ void run() {
    Half o;
    named_barrier_arrive(kRead, 256);
    const int num_items = *a_.p.num_items;
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const WorkItem& item = a_.p.items[index];
      const int key_last = item.key_last;
      Base::clear(o);
      for (int key0 = item.key_first; key0 < key_last; key0 += kTile, keys_.next())
        add_tile(o);
      named_barrier_sync(kPublished, 256);
      sm90::RowTarget targets[2];
      Base::load_targets(targets);
      named_barrier_arrive(kRead, 256);
      Base::write_half(item.num_splits > 1, Part::right, targets, o);
    }
  }

 private:
  FOVEA_DEVICE void add_tile(Half& o) const {
    named_barrier_sync(kPublished, 256);
    const float factor[2] = {load_factor(shared_.factor(Base::row())),
                             load_factor(shared_.factor(Base::row() + 8))};
    if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) [[unlikely]]
      Base::scale(o, factor);
    Base::wait_full(shared_.full(keys_.slot, Part::right), keys_.phase);
    const uint64_t p = wgmma_descriptor(shared_.probabilities(), 16, 1024, TileSwizzle::span_128);
    const uint64_t v = Base::values(keys_.slot, Part::right);
    wgmma_pin(o);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kTile / 16; ++k)
      Wgmma<Query, 256>::template ss<false, true>(o, wgmma_advance(p, k * 32), wgmma_advance(v, k * 2048),
                                                  true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(o);
    named_barrier_arrive(kRead, 256);
    Base::release(keys_.slot, Part::right);
  }
};

}  // namespace fovea::cuda::mla
