#pragma once
// The producer warpgroups of a cluster of two CTAs that have two row tiles of one token, and so the same list
// of records of fp8_ds_mla: each widens half of the keys of a tile, and writes them to the shared memory of
// both.
#include "kernels/cuda/linear/cluster.cuh"
#include "kernels/cuda/mla/sm90_gather.cuh"

namespace fovea::cuda::mla {

/// What a thread has of a part of its two keys of a tile: 8 codes of each of their panels, the scales of the
/// panels' two groups, and of the right part 16 bytes of rope. Loaded while the tile in front is multiplied.
template <Part kPart>
struct PairKeys {
  static constexpr int kKeys = 2, kGroups = 2, kCoded = 2 * kGroups;
  static constexpr int kFirst = kPart == Part::left ? 0 : 4, kPanels = kPart == Part::left ? 4 : 5;
  uint2 codes[kKeys][kCoded];
  float scales[kKeys][kGroups];
  uint4 rope[kPart == Part::right ? kKeys : 1];

  FOVEA_DEVICE void load(const KvParams& kv, const int (&at)[kKeys], int chunk) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const char* const record = kv.k + at[i] * kv.k_page_stride;
#pragma unroll
      for (int panel = 0; panel < kCoded; ++panel)
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                     : "=r"(codes[i][panel].x), "=r"(codes[i][panel].y)
                     : "l"(record + chunk * 8 + (kFirst + panel) * 64)
                     : "memory");
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        asm volatile("ld.global.cg.f32 %0, [%1];"
                     : "=f"(scales[i][group])
                     : "l"(record + kDv + (kFirst / 2 + group) * 4)
                     : "memory");
      if constexpr (kPart == Part::right)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(rope[i].x), "=r"(rope[i].y), "=r"(rope[i].z), "=r"(rope[i].w)
                     : "l"(record + kDsMlaRope + chunk * 16)
                     : "memory");
    }
  }
  /// 16 bytes of a panel's row.
  template <class Query>
  FOVEA_DEVICE uint4 chunk(int i, int panel) const {
    if constexpr (kPart == Part::right)
      if (panel == kCoded) return rope[i];
    return widened_codes<Query>(codes[i][panel].x, codes[i][panel].y, scales[i][panel / 2]);
  }
};

template <class Query>
class Sm90Pair : Sm90Gather<Query> {
  using Base = Sm90Gather<Query>;
  using Base::a_, Base::shared_, Base::keys_, Base::chunk, Base::row, Base::kTile;

 public:
  __device__ Sm90Pair(const Sm90Params& a, Sm90Shared shared)
      : Base(a, shared), rank_(cluster_rank()), to_peer_(peer_address(shared.base) - shared.base) {}

  __device__ void run() {
    const int num_items = *a_.p.num_items;
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const WorkItem& item = a_.p.items[index];
      if (item.key_first >= item.key_last) continue;
      const int32_t* const slots = a_.p.kv.pages + item.pages;
      const int last = item.key_last;
      int next[kKeys];
      PairKeys<Part::right> right;
      PairKeys<Part::left> left;
      find(slots, item.key_first, last, next);
      right.load(a_.p.kv, next, chunk());
      left.load(a_.p.kv, next, chunk());
      find(slots, item.key_first + kTile, last, next);
      for (int key0 = item.key_first; key0 < last; key0 += kTile, keys_.next()) {
        put(right);
        right.load(a_.p.kv, next, chunk());
        put(left);
        left.load(a_.p.kv, next, chunk());
        find(slots, key0 + 2 * kTile, last, next);
        if (key0 == item.key_first) this->load_query(item);
      }
    }
    cp_async_wait_all();
  }

 private:
  static constexpr int kKeys = 2, kOwn = kTile / 2;  ///< keys of a thread, of a CTA

  static FOVEA_DEVICE uint32_t peer_address(uint32_t own) {
    uint32_t peer;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(own), "r"(cluster_rank() ^ 1));
    return peer;
  }
  /// This thread's keys of the tile that begins at key0; some slot where there is none: the scorer clears its
  /// values and masks its scores.
  FOVEA_DEVICE void find(const int32_t* slots, int key0, int last, int (&at)[kKeys]) const {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = key0 + static_cast<int>(rank_) * kOwn + row() + 16 * i;
      at[i] = key < last ? __ldg(slots + key) : 0;
    }
  }
  /// Writes a part of this thread's keys to both CTAs, once the consumers of both have released it.
  template <Part kPart>
  FOVEA_DEVICE void put(const PairKeys<kPart>& keys) const {
    using Keys = PairKeys<kPart>;
    this->wait_empty(kPart);
    const uint32_t full = shared_.full(keys_.slot, kPart);
    const uint32_t to = shared_.keys(keys_.slot) + rank_ * (kOwn * 128) + this->place();
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
#pragma unroll
      for (int panel = 0; panel < Keys::kPanels; ++panel)
        store_both(to + static_cast<uint32_t>((Keys::kFirst + panel) * Base::kPanelBytes + i * 2048),
                   keys.template chunk<Query>(i, panel), full);
    if (this->thread_ == 0)
      mbarrier_arrive_expect_tx(full, Keys::kPanels * kOwn * 128);  // what the peer writes here
    else
      mbarrier_arrive(full);
  }
  /// The peer's copy completes on its barrier.
  FOVEA_DEVICE void store_both(uint32_t to, const uint4& x, uint32_t full) const {
    asm volatile(
        "st.shared.v4.b32 [%0], {%3, %4, %5, %6};\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%1], {%3, %4, %5, %6}, [%2];" ::
            "r"(to),
        "r"(to + to_peer_), "r"(full + to_peer_), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
        : "memory");
  }

  const uint32_t rank_, to_peer_;  ///< in the cluster; from an address of this CTA to the peer's
};

}  // namespace fovea::cuda::mla
