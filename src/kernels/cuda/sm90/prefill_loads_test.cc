// Views that a tensor map cannot express are loaded row by row: an expanded view's strides are 0.
#include "kernels/cuda/sm90/prefill_loads.h"

#include <gtest/gtest.h>

#include "kernels/cuda/tiles/map_stride.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr int kTile = 128, kHeads = 2;
const int32_t* const kSomePages = reinterpret_cast<const int32_t*>(0x1000);

/// Pages of 64 keys of 2 heads of 128 16-bit elements.
KvParams paged() {
  KvParams kv;
  kv.pages = kSomePages;
  kv.page_size = FastDivisor(64);
  kv.k_head_stride = kv.v_head_stride = 256;
  kv.k_slot_stride = kv.v_slot_stride = 512;
  kv.k_page_stride = kv.v_page_stride = 64 * 512;
  return kv;
}

KvParams ragged() {
  KvParams kv;
  kv.rows = 400;
  kv.k_head_stride = kv.v_head_stride = 256;
  kv.k_page_stride = kv.v_page_stride = 512;
  return kv;
}

TEST(PrefillLoads, TmaWhereATensorMapHasTheStrides) {
  EXPECT_EQ(tma_box_keys(paged(), kTile, kHeads), 64);
  EXPECT_EQ(tma_box_keys(ragged(), kTile, kHeads), kTile);
  KvParams kv = ragged();
  kv.rows = 0;  // the end is not known
  EXPECT_EQ(tma_box_keys(kv, kTile, kHeads), 0);
  kv = paged();
  kv.page_size = FastDivisor(8);
  EXPECT_EQ(tma_box_keys(kv, kTile, kHeads), 0);
}

TEST(PrefillLoads, CpAsyncWhereItHasNot) {
  constexpr int64_t kBad[] = {0, 8, 264, int64_t{1} << 40, -256};
  for (int64_t KvParams::* stride :
       {&KvParams::k_page_stride, &KvParams::k_slot_stride, &KvParams::k_head_stride,
        &KvParams::v_page_stride, &KvParams::v_slot_stride, &KvParams::v_head_stride})
    for (const int64_t bad : kBad) {
      KvParams kv = paged();
      kv.*stride = bad;
      EXPECT_EQ(tma_box_keys(kv, kTile, kHeads), 0) << bad;
      const bool of_slot = stride == &KvParams::k_slot_stride || stride == &KvParams::v_slot_stride;
      kv = ragged();
      kv.*stride = bad;  // a ragged tensor has no slots
      EXPECT_EQ(tma_box_keys(kv, kTile, kHeads), of_slot ? kTile : 0) << bad;
    }
}

TEST(PrefillLoads, StridesOfSingleElementsAreIgnored) {
  KvParams kv = paged();
  kv.k_head_stride = kv.v_head_stride = 0;
  EXPECT_EQ(tma_box_keys(kv, kTile, 1), 64);
  kv = ragged();
  kv.rows = 1;
  kv.k_page_stride = 0;
  EXPECT_EQ(tma_box_keys(kv, kTile, kHeads), kTile);
  EXPECT_EQ(map_stride(0, 1), 16u);
  EXPECT_EQ(map_stride(48, 2), 48u);
}

TEST(PrefillLoads, QueryByTma) {
  AttentionParams p;
  p.group = FastDivisor(4);
  p.q_rows.row_stride = 1024;
  p.q_rows.head_stride = 128;
  EXPECT_TRUE(can_load_query_by_tma(p, 128));
  p.q_rows.head_stride = 1 << 20;  // [H, S, D]
  EXPECT_TRUE(can_load_query_by_tma(p, 128));
  p.q_rows.block_gap = 8;
  EXPECT_FALSE(can_load_query_by_tma(p, 128));
  p.q_rows.block_gap = 0;
  p.q_rows.row_stride = 0;
  EXPECT_FALSE(can_load_query_by_tma(p, 128));
  p.q_rows.row_stride = 1024;
  p.q_rows.head_stride = 0;
  EXPECT_FALSE(can_load_query_by_tma(p, 128));
  p.q_rows.head_stride = 128;
  p.group = FastDivisor(5);
  EXPECT_FALSE(can_load_query_by_tma(p, 128));
}

}  // namespace
}  // namespace fovea::cuda::sm90
