#include "kernels/cuda/sm90/widen_layout.h"

#include <algorithm>

namespace fovea::cuda::sm90 {

WidenLayout widen_layout(const KernelInfo& kernel, int kv_heads, const AttentionLimits& limits,
                         int64_t max_items) {
  constexpr size_t kAlignment = 256;
  const int64_t tile = kernel.tile_keys;
  const auto blocks_of = [=](int64_t keys) { return (keys + tile - 1) / tile; };
  const int64_t longest = std::max<int64_t>(blocks_of(limits.max_kv_len), 1);
  // A sequence without keys has a block, too.
  const int64_t all = std::min(limits.max_kv_tokens / tile + limits.max_seqs, longest * limits.max_seqs);
  const int64_t row_bytes = int64_t{2} * kv_heads * (kernel.head_dim + kernel.v_head_dim);
  const int64_t room = std::max({kMostWidenedBytes / (row_bytes * tile), 2 * longest,
                                 (all + kMostWindows - 1) / kMostWindows + longest});
  WidenLayout out;
  out.max_seqs = limits.max_seqs;
  out.max_items = max_items;
  out.windows = 1;
  int64_t blocks = all;
  out.window_blocks = std::max<int64_t>(all, 1);
  if (all > room) {
    blocks = room;
    out.window_blocks = room - longest;
    out.windows = static_cast<int>((all + out.window_blocks - 1) / out.window_blocks);
  }
  out.rows = std::max<int64_t>(blocks, 1) * tile;
  const auto put = [&](size_t& offset, int64_t count, size_t each) {
    offset = out.bytes;
    out.bytes += (static_cast<size_t>(count) * each + kAlignment - 1) / kAlignment * kAlignment;
  };
  const int64_t rows = out.rows * kv_heads;
  put(out.sequences, limits.max_seqs, sizeof(WidenSequence));
  put(out.window_ends, kMostWindows + 1, sizeof(int32_t));
  put(out.window_items, kMostWindows, sizeof(int32_t));
  put(out.blocks, all, sizeof(int32_t));
  put(out.items, kMostWindows * max_items, sizeof(WorkItem));
  put(out.k_scales, kernel.kv == KvType::int8 ? rows : 0, sizeof(float));
  put(out.v_scales, kernel.kv == KvType::int8 ? rows : 0, sizeof(float));
  put(out.k, rows, size_t{2} * static_cast<size_t>(kernel.head_dim));
  put(out.v, rows, size_t{2} * static_cast<size_t>(kernel.v_head_dim));
  return out;
}

}  // namespace fovea::cuda::sm90
