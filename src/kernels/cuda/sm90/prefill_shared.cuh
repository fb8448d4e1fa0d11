#pragma once
// A prefill block's shared memory: places and barriers.
#include "kernels/cuda/sm90/prefill_params.h"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/tiles/common.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm90 {

/// Pairs of barriers: "full" of stage i, then "empty" of stage i.
template <class P>
struct PrefillShared {
  uint32_t base;  ///< a multiple of 1024

  FOVEA_DEVICE uint32_t query(uint32_t slot) const { return base + slot * P::kQBytes; }
  FOVEA_DEVICE uint32_t keys(uint32_t slot) const { return base + P::kKOffset + slot * P::kKBytes; }
  FOVEA_DEVICE uint32_t values(uint32_t slot) const { return base + P::kVOffset + slot * P::kVBytes; }
  FOVEA_DEVICE uint32_t row_target(int row) const {
    return base + P::kRowsOffset + static_cast<uint32_t>(row) * 8;
  }
  FOVEA_DEVICE uint32_t barriers() const { return base + P::kBarriersOffset; }
  FOVEA_DEVICE uint32_t query_full(uint32_t slot) const { return barriers() + slot * 16; }
  FOVEA_DEVICE uint32_t keys_full(uint32_t slot) const { return query_full(P::kQueryBuffers + slot); }
  FOVEA_DEVICE uint32_t values_full(uint32_t slot) const { return keys_full(P::kStages + slot); }
  FOVEA_DEVICE uint32_t unit_full(uint32_t slot) const { return values_full(P::kStages + slot); }
  /// Of the producer's own: a tile that it changes before consumers may see it.
  FOVEA_DEVICE uint32_t raw_full() const { return unit_full(P::kUnits); }
  static FOVEA_DEVICE uint32_t empty_of(uint32_t full) { return full + 8; }

  /// By one thread.
  FOVEA_DEVICE void init(const PrefillLoads& loads) const {
    const uint32_t warps = static_cast<uint32_t>(loads.warps);
    // Boxes: a warp's lane announces their bytes. Rows: each thread's copies arrive.
    const uint32_t loaders = loads.key_boxes ? warps : 128;
    for (uint32_t i = 0; i < P::kQueryBuffers; ++i) {
      mbarrier_init(query_full(i), loads.query_boxes ? 1 : warps);
      mbarrier_init(empty_of(query_full(i)), P::kConsumers * (P::kQueryHeld ? 4 : 1));
    }
    for (uint32_t i = 0; i < P::kStages; ++i) {
      mbarrier_init(keys_full(i), loaders);
      mbarrier_init(empty_of(keys_full(i)), P::kConsumers);
      mbarrier_init(values_full(i), loaders);
      mbarrier_init(empty_of(values_full(i)), P::kConsumers);
    }
    for (uint32_t i = 0; i < P::kUnits; ++i) {
      mbarrier_init(unit_full(i), 1);
      mbarrier_init(empty_of(unit_full(i)), 4 * P::kConsumers + warps - 1);
    }
    mbarrier_init(raw_full(), warps);
    mbarrier_init_fence();
  }
};

}  // namespace fovea::cuda::sm90
