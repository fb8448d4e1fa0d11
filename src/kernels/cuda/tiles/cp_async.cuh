#pragma once
// Asynchronous copies from global to shared memory without registers (sm_80). A copy with `valid` false reads
// nothing and writes zeros.
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// 16 bytes bypassing L1, with a hint to fetch 128 bytes into L2; both addresses 16-byte aligned.
FOVEA_DEVICE void cp_async_16(uint32_t to, const void* from, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// An L2 policy for data that is read once: it is evicted first, so that data that is read again stays.
FOVEA_DEVICE uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// The same with an L2 policy.
FOVEA_DEVICE void cp_async_16(uint32_t to, const void* from, bool valid, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}

/// 8 bytes; both addresses 8-byte aligned.
FOVEA_DEVICE void cp_async_8(uint32_t to, const void* from, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(valid ? 8 : 0)
               : "memory");
}

/// 4 bytes; both addresses 4-byte aligned.
FOVEA_DEVICE void cp_async_4(uint32_t to, const void* from, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}

/// Prefetches a line into L1 (and L2).
FOVEA_DEVICE void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

/// Prefetches 128 bytes into L2, which is coherent with writes of other CTAs and kernels.
FOVEA_DEVICE void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// Ends a group of this thread's copies.
FOVEA_DEVICE void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most the newest kPending groups of this thread are in flight; other threads' copies need a
/// barrier afterwards.
template <int kPending>
FOVEA_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// The same if `pending` is kPending or less, otherwise nothing.
template <int kPending>
FOVEA_DEVICE void cp_async_wait_fewer(int pending) {
  asm volatile(
      "{\n"
      ".reg .pred fewer;\n"
      "setp.le.s32 fewer, %0, %1;\n"
      "@fewer cp.async.wait_group %1;\n"
      "}" ::"r"(pending),
      "n"(kPending)
      : "memory");
  if constexpr (kPending > 0) cp_async_wait_fewer<kPending - 1>(pending);
}
/// The same for a number known at run time, at most kMost. Predicates rather than branches: a loop stays one
/// basic block.
template <int kMost>
FOVEA_DEVICE void cp_async_wait(int pending) {
  cp_async_wait<kMost>();
  if constexpr (kMost > 0) cp_async_wait_fewer<kMost - 1>(pending);
}

/// Waits for all copies of this thread, in groups or not.
FOVEA_DEVICE void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace fovea::cuda
