#pragma once
// What blocks do that wait for the kernels in front of theirs: they ask for the keys that they will read to
// come into L2, where those kernels write them too.
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm90 {

/// Asks for the first P::kPrefetchKeys keys of a range, until `stop` (shared) is not 0. By whole warps, `Threads`
/// in all, of which this is `thread`.
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
        const int of = params.kv.page_size.quotient(n);
        slot = n - of * static_cast<int>(params.kv.page_size.divisor);
        page = __ldg(params.kv.pages + pages + of);
      }
      const char* const k = k_head + page * params.kv.k_page_stride + slot * params.kv.k_slot_stride;
      const char* const v = v_head + page * params.kv.v_page_stride + slot * params.kv.v_slot_stride;
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
