#pragma once
// mbarrier objects in shared memory (64 bits, 8-byte aligned). A phase completes when its arrivals reach the
// count and all expected bytes have arrived. A fresh barrier passes a wait for parity 1 (the phase before the
// first) and blocks one for parity 0. expect_tx needs sm_90, the others sm_80.
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// By one thread; then mbarrier_init_fence and a CTA barrier, before other threads use it.
FOVEA_DEVICE void mbarrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/// Makes initialised barriers visible to the asynchronous proxy and to the cluster (sm_90).
FOVEA_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

FOVEA_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

/// Arrives and expects `bytes` that TMA will write (sm_90).
FOVEA_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Arrives when this thread's earlier cp.async copies are complete; the count must include this arrival.
FOVEA_DEVICE void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Whether the phase with that parity has completed; on sm_90 after a bounded suspension.
FOVEA_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
#else
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
#endif
  return done != 0;
}

FOVEA_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

/// Position in a ring of kStages pairs of barriers. Consumers wait with `phase` on "full", producers with
/// `phase ^ 1` on "empty".
template <int kStages>
struct RingPosition {
  uint32_t slot = 0, phase = 0;
  FOVEA_DEVICE void next() {
    if (++slot == kStages) {
      slot = 0;
      phase ^= 1;
    }
  }
};

/// Waits for `threads` threads (a multiple of 32) that call this or named_barrier_arrive with the same id, 1
/// to 15.
FOVEA_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives without waiting.
FOVEA_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace fovea::cuda
