#pragma once
// Shared memory of a prefill CTA: addresses and barriers.
#include "kernels/cuda/sm90/prefill_params.h"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/tiles/common.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm90 {

/// Each stage has a pair of barriers: "full", then "empty".
template <class P>
struct PrefillShared {
  uint32_t base;  ///< a multiple of 1024

  FOVEA_DEVICE uint32_t query(uint32_t slot) const { return base + slot * P::kQBytes; }
  FOVEA_DEVICE uint32_t keys(uint32_t slot) const { return base + P::kKOffset + slot * P::kKBytes; }
  FOVEA_DEVICE uint32_t values(uint32_t slot) const { return base + P::kVOffset + slot * P::kVBytes; }
  FOVEA_DEVICE uint32_t row_target(int row) const {
    return base + P::kRowsOffset + static_cast<uint32_t>(row) * 8;
  }
  /// Of policies with kTokenScales: floats [K or V][key].
  FOVEA_DEVICE uint32_t scales(const RingPosition<P::kStages>& tile) const {
    return base + P::kScalesOffset + (tile.phase * P::kStages + tile.slot) * P::kScaleBytes;
  }
  FOVEA_DEVICE uint32_t barriers() const { return base + P::kBarriersOffset; }
  /// `part`: of PrefillLoads::query_parts.
  FOVEA_DEVICE uint32_t query_full(uint32_t slot, int part) const {
    return barriers() + (slot * P::kQueryParts + static_cast<uint32_t>(part)) * 16;
  }
  FOVEA_DEVICE uint32_t keys_full(uint32_t slot) const {
    return barriers() + (P::kQueryStages * P::kQueryParts + slot) * 16;
  }
  FOVEA_DEVICE uint32_t values_full(uint32_t slot) const { return keys_full(P::kStages + slot); }
  FOVEA_DEVICE uint32_t work_tile_full(uint32_t slot) const { return values_full(P::kStages + slot); }
  /// The producer's own barrier, for a tile that it modifies before consumers may read it.
  FOVEA_DEVICE uint32_t raw_full() const { return work_tile_full(P::kWorkTileStages); }
  static FOVEA_DEVICE uint32_t empty_of(uint32_t full) { return full + 8; }

  /// Called by one thread.
  FOVEA_DEVICE void init(const PrefillLoads& loads) const {
    const uint32_t warps = static_cast<uint32_t>(loads.warps);
    // TMA: one lane of each warp announces the bytes. cp.async: each thread arrives when its copies are done.
    const uint32_t loaders = loads.kv_by_tma ? warps : 128;
    const int parts = P::kOwnPace ? loads.query_parts : 1;
    const uint32_t readers = parts > 1 ? 1 : P::kConsumers;
    for (uint32_t i = 0; i < P::kQueryStages; ++i)
      for (int part = 0; part < parts; ++part) {
        mbarrier_init(query_full(i, part), loads.query_by_tma ? 1 : warps);
        mbarrier_init(empty_of(query_full(i, part)), readers * (P::kQueryInRegisters ? 4 : 1));
      }
    for (uint32_t i = 0; i < P::kStages; ++i) {
      mbarrier_init(keys_full(i), loaders);
      mbarrier_init(empty_of(keys_full(i)), P::kConsumers);
      mbarrier_init(values_full(i), loaders);
      mbarrier_init(empty_of(values_full(i)), P::kConsumers);
    }
    for (uint32_t i = 0; i < P::kWorkTileStages; ++i) {
      mbarrier_init(work_tile_full(i), 1);
      mbarrier_init(empty_of(work_tile_full(i)),
                    4 * P::kConsumers + warps - 1 + (P::kOwnPace && loads.query_warp > 0 ? 1 : 0));
    }
    mbarrier_init(raw_full(), warps);
    mbarrier_init_fence();
  }
};

}  // namespace fovea::cuda::sm90
