#include "model/kv_groups.h"
#include "fovea/result.h"

#include <gmock/gmock.h>

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ModelConfig decoder() {
  ModelConfig config;
  config.num_layers = 3;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 24;
  config.layers.resize(3);
  return config;
}

TEST(KvGroupsTest, ADecoderHasOneFullGroup) {
  ModelConfig config = decoder();
  for (const int windows : {0, 1, 3}) {  // layers with a window
    for (int layer = 0; layer < windows; ++layer)
      config.layers[static_cast<size_t>(layer)].window = 16;
    const auto groups = kv_groups(config, KvCacheDType::bfloat16, KvLayout::nhd, 32);
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_TRUE(check_groups(groups).ok());
    const KvGroup& g = groups[0];
    EXPECT_EQ(g.kind, KvKind::full);
    EXPECT_THAT(g.layers, ElementsAre(0, 1, 2));
    EXPECT_EQ(g.num_kv_heads, 2);
    EXPECT_EQ(g.head_dim, 24);
    EXPECT_EQ(g.v_head_dim, 24);
    EXPECT_EQ(g.page_size, 32);
    EXPECT_EQ(g.dtype, KvCacheDType::bfloat16);
    EXPECT_EQ(g.layout, KvLayout::nhd);
    EXPECT_EQ(bytes_per_token(groups), 3 * 2 * (24 + 24) * 2);
  }
}

TEST(KvGroupsTest, OnlyFp8HasTheCheckpointsScales) {
  const KvScales scales = {{1, 2, 3}, {4, 5, 6}};
  const auto fp8 = kv_groups(decoder(), KvCacheDType::fp8_e4m3, KvLayout::hnd, 16, scales);
  EXPECT_THAT(fp8[0].k_scales, ElementsAre(1, 2, 3));
  EXPECT_THAT(fp8[0].v_scales, ElementsAre(4, 5, 6));
  EXPECT_TRUE(check_groups(fp8).ok());
  const auto bf16 = kv_groups(decoder(), KvCacheDType::bfloat16, KvLayout::hnd, 16, scales);
  EXPECT_THAT(bf16[0].k_scales, IsEmpty());
  EXPECT_TRUE(check_groups(bf16).ok());
}

TEST(KvGroupsTest, EncodersHaveNoneAndCrossKeysAreInTheirLayersGroup) {
  ModelConfig config = decoder();
  config.kind = ModelKind::encoder;
  EXPECT_THAT(kv_groups(config, KvCacheDType::float32, KvLayout::hnd, 16), IsEmpty());
  config.kind = ModelKind::encoder_decoder;
  config.encoder = EncoderConfig{};
  config.encoder->num_layers = 6;
  const auto groups = kv_groups(config, KvCacheDType::float32, KvLayout::hnd, 16);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace fovea
