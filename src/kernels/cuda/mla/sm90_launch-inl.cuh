#pragma once
#include <numeric>

#include "fovea/result.h"
#include "kernels/cuda/mla/launch-inl.cuh"
#include "kernels/cuda/mla/sm90_kernel.cuh"
#include "kernels/cuda/tiles/map_stride.h"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda::mla {

template <class Query>
Status fill_params(const AttentionParams& p, Sm90Params& a) {
  const KvParams& kv = p.kv;
  const bool paged = kv.pages != nullptr;
  const uint64_t slots = paged ? kv.page_size.divisor : static_cast<uint64_t>(kv.rows);
  if (slots == 0) return unsupported("the number of rows of a ragged cache is needed for a tensor map");
  a.p = p;
  a.scale = p.scale * kLog2e;
  a.box_keys =
      paged ? std::gcd(static_cast<int>(kv.page_size.divisor), Sm90Policy::kTileKeys) : Sm90Policy::kTileKeys;
  const uint64_t pages = paged ? uint64_t{1} << 31 : 1;  // page ids are trusted
  return encode_tensor_map(
      {std::is_same_v<Query, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
       kv.k,
       {kD, slots, pages},
       {map_stride(paged ? kv.k_slot_stride : kv.k_page_stride, slots), map_stride(kv.k_page_stride, pages)},
       {64, static_cast<uint32_t>(a.box_keys), 1}},
      a.keys);
}

/// Items of launch_lists(), whose keys are pages of one slot, for sources other than boxes.
template <class Query, KeySource kSource = KeySource::boxes>
bool launch_sm90_kernel(Launch& l) {
  if (l.kernel.q != query_type<Query>()) return false;
  static std::atomic<bool> prepared[64];
  const auto kernel = sm90_kernel<Query, kSource>;
  prepare(kernel, Sm90Policy::kSharedBytes, prepared, l);
  if (!l.ok()) return true;
  Sm90Params a;
  if constexpr (kSource != KeySource::boxes) {
    a.p = l.params;
    a.scale = l.params.scale * kLog2e;
  } else if (const Status status = fill_params<Query>(l.params, a); !status.ok()) {
    l.error = status.error().message;
    return true;
  }
  constexpr unsigned kCluster = is_pairs(kSource) ? 2 : 1;
  queue(kernel, a, std::min<int64_t>(l.max_items, l.multiprocessors) / kCluster * kCluster,
        Sm90Policy::kThreads, Sm90Policy::kSharedBytes, l, "launch of an MLA kernel", kCluster);
  return true;
}

}  // namespace fovea::cuda::mla
