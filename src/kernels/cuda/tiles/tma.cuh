#pragma once
// Bulk copies by the tensor memory accelerator (sm_90). One thread issues a copy; its bytes complete on an
// mbarrier. Parts of a box outside the tensor are filled with zeros, which count as bytes too. Tensor maps
// (tensor_map.h) are passed as `const __grid_constant__ CUtensorMap`. Destinations: 128-byte aligned.
#include <cuda.h>

#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// Hints of how long lines stay in L2, as createpolicy.fractional encodes them for fraction 1.
enum class CacheHint : uint64_t {
  normal = 0x1000000000000000u,
  evict_first = 0x12F0000000000000u,
  evict_last = 0x14F0000000000000u,
};

FOVEA_DEVICE void tma_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads the box at coordinates c, innermost first, into `to`.
FOVEA_DEVICE void tma_load_2d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int c0, int c1,
                              CacheHint hint = CacheHint::normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

FOVEA_DEVICE void tma_load_3d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int c0, int c1, int c2,
                              CacheHint hint = CacheHint::normal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

FOVEA_DEVICE void tma_load_4d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int c0, int c1, int c2,
                              int c3, CacheHint hint = CacheHint::normal) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

FOVEA_DEVICE void tma_load_5d(uint32_t to, const CUtensorMap* map, uint32_t barrier, int c0, int c1, int c2,
                              int c3, int c4, CacheHint hint = CacheHint::normal) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

/// Stores the box from shared memory; elements outside the tensor are not written. Writers of `from` call
/// fence_proxy_async first.
FOVEA_DEVICE void tma_store_2d(const CUtensorMap* map, uint32_t from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1)
               : "memory");
}

FOVEA_DEVICE void tma_store_3d(const CUtensorMap* map, uint32_t from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

/// Ends a group of this thread's stores.
FOVEA_DEVICE void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until all but the newest kPending groups have read their shared memory, which may then be written
/// again.
template <int kPending>
FOVEA_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Waits until all but the newest kPending groups are in global memory.
template <int kPending>
FOVEA_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Loads `bytes` contiguous bytes; a multiple of 16, as are both addresses.
FOVEA_DEVICE void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                            CacheHint hint = CacheHint::normal) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(static_cast<uint64_t>(hint))
      : "memory");
}

/// Orders this thread's ordinary writes of shared memory before reads by TMA and wgmma; then a barrier.
FOVEA_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace fovea::cuda
