#pragma once
// Prefetching to L2 while a CTA waits for the kernels in front of this one. They may still write keys: L2 is
// coherent, so a prefetched line holds what they write.
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm90 {

/// Prefetches the first P::kPrefetchKeys keys of a range and their values, until `stop` (in shared memory) is
/// not 0. Called by `Threads` threads, whole warps; `thread` is this one's index.
template <class P, int Threads>
__device__ void prefetch_keys(const AttentionParams& params, const DecodeRange& range, int thread,
                              const volatile int* stop) {
  const char* const k_head = params.kv.k + range.head * params.kv.k_head_stride;
  const char* const v_head = params.kv.v + range.head * params.kv.v_head_stride;
  int left = P::kPrefetchKeys;
#pragma unroll 1
  for (int i = range.first; i < range.last && left > 0; ++i) {
    const WorkItem& item = params.items[i];
    const int first = DecodeRowTile<P>::first_key(item);
    const int low = max(first, item.key_low), last = min(low + left, item.key_last);
    const int64_t pages = item.pages;
    left -= max(0, last - low);
#pragma unroll 1
    for (int base = low; base < last; base += Threads) {
      if (__any_sync(~0u, *stop != 0)) return;
      const int n = base + thread;
      if (n >= last) continue;
      int slot = 0, page = static_cast<int>(pages) + n;
      if (params.kv.pages != nullptr) {
        const int page_index = params.kv.page_size.quotient(n);
        slot = n - page_index * static_cast<int>(params.kv.page_size.divisor);
        page = __ldg(params.kv.pages + pages + page_index);
      }
      // x-packed: a key's share of the page, in which all keys of a head lie together.
      const int64_t k_slot = P::kPacked ? P::kD * 2 : params.kv.k_slot_stride;
      const int64_t v_slot = P::kPacked ? P::kDv * 2 : params.kv.v_slot_stride;
      const char* const k = k_head + page * params.kv.k_page_stride + slot * k_slot;
      const char* const v = v_head + page * params.kv.v_page_stride + slot * v_slot;
#pragma unroll
      for (int at = 0; at < P::kD * kv_bytes(P::kKv); at += P::kPrefetchBytes)
        prefetch_l2(k + at);
#pragma unroll
      for (int at = 0; at < P::kDv * kv_bytes(P::kKv); at += P::kPrefetchBytes)
        prefetch_l2(v + at);
    }
  }
}

}  // namespace fovea::cuda::sm90
