#include "kernels/cuda/mla/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/result.h"
#include "kernels/cuda/mla/policy.h"

namespace fovea::cuda::mla {
namespace {

using ::testing::HasSubstr;

Problem deepseek(int heads) {
  Problem p;
  p.head_dim = kD, p.v_head_dim = kDv, p.group = heads;
  return p;
}

TEST(MlaSelect, DevicesBeforeHopperHaveRoomForTheirKernel) {
  constexpr int kSm86 = 99 * 1024;
  for (const int heads : {1, 16, 17, 128})
    for (const KvType kv : {KvType::same, KvType::e4m3}) {
      Problem p = deepseek(heads);
      p.kv = kv;
      const auto kernel = select(p, Hardware::sm80, KernelKind::decode);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      EXPECT_LE(kernel->shared_bytes, kSm86);
      EXPECT_EQ(kernel->rows, heads > 16 ? 32 : 16);
      EXPECT_EQ(kernel->split_keys % kernel->tile_keys, 0);
    }
}

TEST(MlaSelect, FewRowTilesAreSplitMore) {
  for (const Hardware hardware : {Hardware::sm80, Hardware::sm90}) {
    int last = 0;
    for (const int64_t tiles : {1, 4, 5, 31, 32, 95, 96, 100000}) {
      Problem p = deepseek(64);
      p.row_tiles = tiles, p.mean_keys = 5000;
      const auto kernel = select(p, hardware, KernelKind::decode);
      ASSERT_TRUE(kernel.ok());
      EXPECT_GE(kernel->split_keys, last);
      last = kernel->split_keys;
    }
    EXPECT_EQ(last, hardware == Hardware::sm80 ? 1024 : 8192);
  }
}

TEST(MlaSelect, ListsAreSplitWhereThereAreFewRowTiles) {
  for (const Hardware hardware : {Hardware::sm80, Hardware::sm90}) {
    int last = 0;
    for (const int64_t tiles : {1, 4, 5, 16, 17, 64, 65, 100000}) {
      Problem p = deepseek(128);
      p.row_tiles = tiles, p.topk = 2000;
      p.kv = KvType::e4m3, p.ds_mla = true;
      const auto kernel = select(p, hardware, KernelKind::decode);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      EXPECT_GE(kernel->split_keys, last);
      EXPECT_EQ(kernel->split_keys % kernel->tile_keys, 0);
      EXPECT_LE(kernel->shared_bytes, hardware == Hardware::sm80 ? 99 * 1024 : kMaxSharedBytes);
      last = kernel->split_keys;
    }
    EXPECT_EQ(last, 2048);
  }
}

TEST(MlaSelect, SaysWhatTheKernelsLack) {
  const auto error = [](auto change, Hardware hardware = Hardware::sm90) {
    Problem p = deepseek(16);
    change(p);
    const auto kernel = select(p, hardware, KernelKind::decode);
    return kernel.ok() ? std::string() : kernel.error().message;
  };
  EXPECT_EQ(error([](Problem&) {}), "");
  EXPECT_THAT(error([](Problem& p) { p.q = QueryType::f32; }), HasSubstr("queries are fp32"));
  const auto small = [](Problem& p) { p.head_dim = kSmallD, p.v_head_dim = kSmallDv; };
  EXPECT_THAT(error(small), HasSubstr("head sizes are 288 and 256; the sm90 MLA kernels take 576 and 512"));
  EXPECT_EQ(error(small, Hardware::sm80), "");
  EXPECT_THAT(error([](Problem& p) { p.v_head_dim = 256; }, Hardware::sm80), HasSubstr("288 and 256"));
  EXPECT_THAT(error([](Problem& p) { p.kv_heads = 2; }), HasSubstr("there are 2 KV heads"));
  EXPECT_THAT(error([](Problem& p) { p.kv = KvType::e4m3; }), HasSubstr("take theirs"));
  EXPECT_EQ(error([](Problem& p) { p.kv = KvType::e4m3; }, Hardware::sm80), "");
  EXPECT_THAT(error([](Problem& p) { p.kv = KvType::e5m2; }, Hardware::sm80),
              HasSubstr("theirs or fp8_e4m3"));
  EXPECT_THAT(error([](Problem& p) { p.negative_scale = true; }), HasSubstr("negative softmax scales"));
  EXPECT_EQ(error([](Problem& p) { p.negative_scale = true; }, Hardware::sm80), "");
  const auto bytes = [](Problem& p) { p.kv = KvType::e4m3, p.ds_mla = true; };
  for (const Hardware hardware : {Hardware::sm80, Hardware::sm90})
    EXPECT_THAT(error(bytes, hardware), HasSubstr("fp8_ds_mla")) << "without lists";
  const auto lists = [](Problem& p) { p.topk = 16, p.q = QueryType::f16; };
  EXPECT_THAT(error(lists), HasSubstr("queries in bfloat16"));
  EXPECT_EQ(error(lists, Hardware::sm80), "");
  const auto codes = [](Problem& p) { p.topk = 16, p.kv = KvType::e4m3; };
  EXPECT_THAT(error(codes, Hardware::sm80), HasSubstr("cache of fp8_e4m3 and rows that list their keys"));
  EXPECT_THAT(error([](Problem& p) { p.other_scores = true; }), HasSubstr("soft caps"));
  EXPECT_THAT(error([](Problem& p) { p.mask.window_left = 5; }), HasSubstr("windows"));
  EXPECT_THAT(error([](Problem& p) { p.mask.tree = true; }), HasSubstr("tree masks"));
}

}  // namespace
}  // namespace fovea::cuda::mla
