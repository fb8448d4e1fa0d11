#pragma once
// Clusters of two CTAs (sm_90): multicast loads and arrivals on the peer's barriers.
#include <cuda.h>

#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda {

/// 0 or 1; 0 without a cluster.
FOVEA_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of the cluster; memory operations before it are visible after it.
FOVEA_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Arrives on the barrier at the same address in CTA `rank` of the cluster. Without .release.cluster, whose
/// fence costs a microsecond: what it orders are reads of shared memory that have completed.
FOVEA_DEVICE void mbarrier_arrive_cluster(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// tma_load_3d into the same place of both CTAs; the bytes complete on the barrier of each.
FOVEA_DEVICE void tma_load_3d_both(uint32_t to, const CUtensorMap* map, uint32_t barrier, int c0, int c1,
                                   int c2, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(static_cast<uint16_t>(3)),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

}  // namespace fovea::cuda
