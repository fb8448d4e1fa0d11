#include "kernels/cuda/sm90/widen_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fovea::cuda::sm90 {
namespace {

KernelInfo kernel(KvType kv = KvType::e4m3) {
  KernelInfo k;
  k.kind = KernelKind::extend;
  k.kv = kv;
  k.head_dim = k.v_head_dim = 128;
  k.tile_keys = 80;
  return k;
}

AttentionLimits limits(int seqs, int64_t keys, int longest) {
  AttentionLimits l;
  l.max_seqs = seqs, l.max_kv_tokens = keys, l.max_kv_len = longest;
  return l;
}

/// The largest number of blocks that sequences of these keys have, and that one of them has.
int64_t blocks_of(const AttentionLimits& l, int64_t tile) {
  return std::min(l.max_kv_tokens / tile + l.max_seqs, (l.max_kv_len + tile - 1) / tile * l.max_seqs);
}

TEST(WidenLayout, HasRoomForEverySequenceThatBeginsInAWindow) {
  for (const int seqs : {1, 3, 100, 1000})
    for (const int64_t keys :
         {int64_t{1}, int64_t{4096}, int64_t{300000}, int64_t{2000000}, int64_t{9000000}})
      for (const int longest : {1, 80, 5000, 131072, 1000000}) {
        const AttentionLimits l = limits(seqs, keys, longest);
        const WidenLayout w = widen_layout(kernel(), 8, l, 500);
        ASSERT_GE(w.windows, 1);
        ASSERT_LE(w.windows, kMostWindows);
        ASSERT_GE(w.windows * w.window_blocks, blocks_of(l, 80));
        const int64_t last = w.windows == 1 ? 0 : (longest + 79) / 80;
        ASSERT_GE(w.rows, (std::min(w.window_blocks, blocks_of(l, 80)) + last) * 80);
        ASSERT_GE(w.bytes, w.v + static_cast<size_t>(w.rows) * 8 * 256);
      }
}

TEST(WidenLayout, TakesAtMostAQuarterOfAPoolAndALongestSequenceBeyondItsSpace) {
  const WidenLayout small = widen_layout(kernel(), 8, limits(8, 100000, 40000), 500);
  EXPECT_EQ(small.windows, 1);
  const WidenLayout large = widen_layout(kernel(), 8, limits(64, 2000000, 40000), 500);
  EXPECT_EQ(large.windows, 4);
  EXPECT_LE(large.rows, 2000000 / 4 + 40000 + 80 * 20);
}

// A plan's own limits are lower than those that the workspace is made for.
TEST(WidenLayout, LowerLimitsTakeNoMoreBytes) {
  for (const KvType kv : {KvType::e4m3, KvType::int8})
    for (const int seqs : {1, 7, 300})
      for (const int64_t keys : {int64_t{5000}, int64_t{200000}, int64_t{3000000}})
        for (const int longest : {100, 8192, 200000}) {
          const size_t bytes = widen_layout(kernel(kv), 4, limits(seqs, keys, longest), 900).bytes;
          for (const AttentionLimits& less :
               {limits((seqs + 1) / 2, keys, longest), limits(seqs, keys / 3, longest),
                limits(seqs, keys, longest / 5), limits(1, keys / 2, longest / 2)})
            EXPECT_LE(widen_layout(kernel(kv), 4, less, 800).bytes, bytes);
        }
}

TEST(WidenLayout, ScalesAreOfInt8Only) {
  EXPECT_EQ(widen_layout(kernel(), 8, limits(8, 10000, 4000), 5).k_scales,
            widen_layout(kernel(), 8, limits(8, 10000, 4000), 5).k);
  const WidenLayout w = widen_layout(kernel(KvType::int8), 8, limits(8, 10000, 4000), 5);
  EXPECT_GE(w.v_scales - w.k_scales, static_cast<size_t>(w.rows) * 8 * 4);
}

}  // namespace
}  // namespace fovea::cuda::sm90
