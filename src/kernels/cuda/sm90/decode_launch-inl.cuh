#pragma once
// Launching one decode policy.
#include <algorithm>
#include <atomic>
#include <string>

#include "kernels/cuda/sm90/decode_kernel.cuh"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda::sm90 {

/// Keys of a box: as many as divide a page; 0 where pages hold too few for boxes to be worth while, or keys
/// lie in no pages, where a box at the end would reach past them.
template <class P>
int decode_box(const KvParams& kv) {
  if (kv.pages == nullptr) return 0;
  int box = P::kTileKeys;
  while (kv.page_size.divisor % static_cast<uint32_t>(box) != 0)
    box /= 2;
  return box >= 8 ? box : 0;
}

template <class P, class Tile>
Status decode_map(const void* base, int64_t slot, int64_t head, int64_t page, const AttentionParams& p, int box,
                  CUtensorMap& map) {
  constexpr uint64_t kMostPages = INT32_MAX;  // ids are right
  constexpr uint32_t kPanel = Tile::kPanel / kv_bytes(P::kKv);
  const uint64_t heads = p.kv_heads.divisor, slots = p.kv.page_size.divisor, panels = Tile::kPanels;
  const auto keys = static_cast<uint32_t>(box);
  const auto stride = [](int64_t bytes) { return static_cast<uint64_t>(bytes); };
  const CUtensorMapDataType type =
      kv_bytes(P::kKv) == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUtensorMapSwizzle swizzle = Tile::kPanel == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : Tile::kPanel == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                          : CU_TENSOR_MAP_SWIZZLE_32B;
  if constexpr (Tile::kRowMajor)
    return encode_tensor_map({type,
                              base,
                              {kPanel, panels, slots, heads, kMostPages},
                              {Tile::kPanel, stride(slot), stride(head), stride(page)},
                              {kPanel, static_cast<uint32_t>(panels), keys, 1, 1},
                              swizzle},
                             map);
  return encode_tensor_map({type,
                            base,
                            {kPanel, slots, panels, heads, kMostPages},
                            {stride(slot), Tile::kPanel, stride(head), stride(page)},
                            {kPanel, keys, static_cast<uint32_t>(panels), 1, 1},
                            swizzle},
                           map);
}

}  // namespace fovea::cuda::sm90
