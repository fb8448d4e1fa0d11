#include "kv/kv_group.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <utility>

#include <limits>
#include <string>

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();

KvGroup group(KvKind kind, std::vector<int> layers, int heads, int d, int dv, int page, KvCacheDType dtype) {
  KvGroup g;
  g.kind = kind;
  g.layers = std::move(layers);
  g.window = kind == KvKind::window ? 4096 : 0;
  g.num_kv_heads = heads;
  g.head_dim = d;
  g.v_head_dim = dv;
  g.page_size = page;
  g.dtype = dtype;
  return g;
}

KvGroup state(std::vector<int> layers, int64_t bytes) {
  KvGroup g;
  g.kind = KvKind::state;
  g.layers = std::move(layers);
  g.state_bytes = bytes;
  return g;
}

TEST(KvGroupTest, BytesOfEachKind) {
  const auto expect = [](const KvGroup& g, int64_t layer_token, int64_t token, int64_t page) {
    EXPECT_TRUE(g.paged());
    EXPECT_EQ(g.layer_bytes_per_token(), layer_token);
    EXPECT_EQ(g.bytes_per_token(), token);
    EXPECT_EQ(g.bytes_per_page(), page);
    EXPECT_EQ(g.bytes_per_sequence(), 0);
  };
  // Llama-3-8B's shape: 8 heads of 128 in 2 bytes, K and V, is 4 KiB.
  expect(group(KvKind::full, {0, 1, 2}, 8, 128, 128, 16, KvCacheDType::bfloat16), 4096, 12288, 196608);
  expect(group(KvKind::full, {0, 1, 2}, 8, 128, 128, 16, KvCacheDType::fp8_e4m3), 2048, 6144, 98304);
  // 128 codes and one scale of 4 bytes, for K and for V.
  expect(group(KvKind::full, {0, 1, 2}, 8, 128, 128, 16, KvCacheDType::int8_per_token_head), 2112, 6336,
         101376);
  expect(group(KvKind::full, {0, 1}, 3, 16, 5, 3, KvCacheDType::float32), 252, 504, 1512);  // D != Dv
  expect(group(KvKind::full, {0, 1}, 3, 16, 5, 3, KvCacheDType::int8_per_token_head), 87, 174, 522);
  expect(group(KvKind::window, {0, 1}, 4, 256, 256, 32, KvCacheDType::bfloat16), 4096, 8192, 262144);
  expect(group(KvKind::cross, {0}, 12, 64, 64, 16, KvCacheDType::float16), 3072, 3072, 49152);
  // DeepSeek-V3: 512 + 64 elements, once; MiniCPM3: 256 + 32.
  expect(group(KvKind::latent, {0, 1}, 1, 576, 512, 64, KvCacheDType::bfloat16), 1152, 2304, 147456);
  expect(group(KvKind::latent, {0, 1}, 1, 576, 512, 64, KvCacheDType::fp8_e4m3), 576, 1152, 73728);
  expect(group(KvKind::latent, {0}, 1, 288, 256, 1, KvCacheDType::int8_per_token_head), 292, 292, 292);
  expect(group(KvKind::latent, {0, 1}, 1, 576, 512, 64, KvCacheDType::fp8_ds_mla), 656, 1312, 83968);
  expect(group(KvKind::latent, {0}, 1, 288, 256, 1, KvCacheDType::fp8_ds_mla), 328, 328, 328);
  KvGroup indexed = group(KvKind::latent, {0, 1, 2}, 1, 576, 512, 64, KvCacheDType::fp8_ds_mla);
  indexed.index_layers = {0, 2};
  indexed.index_dim = 128;
  indexed.index_dtype = KvCacheDType::fp8_e4m3;
  EXPECT_EQ(indexed.index_bytes_per_token(), 132);
  expect(indexed, 656, 3 * 656 + 2 * 132, 64 * (3 * 656 + 2 * 132));
  indexed.index_dtype = KvCacheDType::bfloat16;
  expect(indexed, 656, 3 * 656 + 2 * 256, 64 * (3 * 656 + 2 * 256));
}

TEST(KvGroupTest, AStateHasBytesPerSequence) {
  const KvGroup g = state({0, 1, 2}, 1000);
  EXPECT_FALSE(g.paged());
  EXPECT_EQ(g.bytes_per_sequence(), 3000);
  EXPECT_EQ(g.layer_bytes_per_token(), 0);
  EXPECT_EQ(g.bytes_per_token(), 0);
  EXPECT_EQ(g.bytes_per_page(), 0);
  EXPECT_EQ(state({0, 1, 2}, kTooMany / 2).bytes_per_sequence(), kTooMany);
}

TEST(KvGroupTest, SumsOverGroups) {
  const std::vector<KvGroup> groups = {group(KvKind::full, {0, 1}, 8, 128, 128, 16, KvCacheDType::bfloat16),
                                       group(KvKind::window, {2}, 4, 64, 64, 32, KvCacheDType::fp8_e5m2),
                                       state({3}, 1000)};
  EXPECT_EQ(bytes_per_token(groups), 2 * 4096 + 512);
  EXPECT_EQ(bytes_per_page(groups), 2 * 4096 * 16 + 512 * 32);
  EXPECT_EQ(bytes_per_page({}), 0);
}

TEST(KvGroupTest, ByteCountsDoNotWrap) {
  constexpr int kMost = std::numeric_limits<int>::max();
  KvGroup g = group(KvKind::full, {0}, kMost, kMost, kMost, 1, KvCacheDType::float32);
  EXPECT_EQ(g.layer_bytes_per_token(), kTooMany);
  g.num_kv_heads = 1 << 20;  // 2^20 * 2^33.. * 4 fits; with pages it does not
  EXPECT_LT(g.bytes_per_token(), kTooMany);
  g.page_size = kMost;
  EXPECT_EQ(g.bytes_per_page(), kTooMany);
  EXPECT_EQ(bytes_per_page(std::vector{g, g}), kTooMany);
}

TEST(KvGroupTest, Names) {
  EXPECT_EQ(to_string(KvKind::full), "full");
  EXPECT_EQ(to_string(KvKind::window), "window");
  EXPECT_EQ(to_string(KvKind::latent), "latent");
  EXPECT_EQ(to_string(KvKind::cross), "cross");
  EXPECT_EQ(to_string(KvKind::state), "state");
}

std::string refusal(const std::vector<KvGroup>& groups) {
  const Status status = check_groups(groups);
  return status.ok() ? "accepted" : status.error().message;
}

/// The refusal of one fp8 group with layers 0 and 1 after `change`.
template <class Change>
std::string refusal(KvKind kind, Change change) {
  const bool latent = kind == KvKind::latent;
  KvGroup g =
      group(kind, {0, 1}, latent ? 1 : 2, latent ? 48 : 16, latent ? 32 : 16, 4, KvCacheDType::fp8_e4m3);
  change(g);
  return refusal({g});
}

TEST(KvGroupTest, AcceptsGroupsThatShareTheLayers) {
  EXPECT_EQ(refusal({group(KvKind::full, {1, 4}, 2, 16, 16, 4, KvCacheDType::bfloat16), state({0, 3}, 64),
                     group(KvKind::latent, {2}, 1, 48, 32, 8, KvCacheDType::fp8_e4m3)}),
            "accepted");
  for (const KvKind kind : {KvKind::full, KvKind::window, KvKind::latent, KvKind::cross})
    EXPECT_EQ(refusal(kind, [](KvGroup& g) { g.k_scales = {1.0f, 2.0f}; }), "accepted");
  EXPECT_EQ(refusal(KvKind::latent, [](KvGroup& g) { g.v_head_dim = g.head_dim; }), "accepted");
}

TEST(KvGroupTest, EachLayerIsInOneGroup) {
  const auto full = [](std::vector<int> layers) {
    return group(KvKind::full, std::move(layers), 2, 16, 16, 4, KvCacheDType::bfloat16);
  };
  EXPECT_THAT(refusal(std::vector<KvGroup>{}), HasSubstr("no groups"));
  EXPECT_THAT(refusal({full({0}), full({})}), HasSubstr("KV group 1 (full): no layers"));
  EXPECT_THAT(refusal({full({0, 1}), state({1, 2}, 8)}),
              HasSubstr("KV group 1 (state): layer 1 is in group 0 too"));
  EXPECT_THAT(refusal({full({0, 3}), full({1})}), HasSubstr("layer 2 is in no group, while layer 3"));
  EXPECT_THAT(refusal({full({1})}), HasSubstr("layer 0 is in no group"));
  EXPECT_THAT(refusal({full({0, 2, 1})}), HasSubstr("layer 1 at place 2; layers must be at least 0 and asc"));
  EXPECT_THAT(refusal({full({0, 0})}), HasSubstr("layer 0 at place 1"));
  EXPECT_THAT(refusal({full({-1, 0})}), HasSubstr("layer -1 at place 0"));
}

TEST(KvGroupTest, SizesFitTheKind) {
  for (const KvKind kind : {KvKind::full, KvKind::window, KvKind::latent, KvKind::cross}) {
    for (int KvGroup::* size :
         {&KvGroup::num_kv_heads, &KvGroup::head_dim, &KvGroup::v_head_dim, &KvGroup::page_size})
      EXPECT_THAT(refusal(kind, [size](KvGroup& g) { g.*size = 0; }), HasSubstr("must all be at least 1"));
    EXPECT_THAT(refusal(kind, [](KvGroup& g) { g.state_bytes = 8; }), HasSubstr("8 bytes of state"));
    EXPECT_THAT(refusal(kind, [](KvGroup& g) { g.window = g.window > 0 ? 0 : 7; }),
                HasSubstr(kind == KvKind::window ? "a window of 0 tokens" : "a window of 7 tokens"));
  }
  EXPECT_THAT(refusal({state({0}, 0)}),
              HasSubstr("KV group 0 (state): 0 bytes of state per sequence and layer"));
}

TEST(KvGroupTest, LatentRecordsAreWhole) {
  const auto latent = [](auto change) { return refusal(KvKind::latent, change); };
  EXPECT_THAT(latent([](KvGroup& g) { g.v_head_dim = 49; }),
              HasSubstr("KV group 0 (latent): V has 49 elements and the record 48"));
  EXPECT_THAT(latent([](KvGroup& g) { g.num_kv_heads = 2; }), HasSubstr("2 KV heads; all heads share one"));
  EXPECT_THAT(latent([](KvGroup& g) { g.layout = KvLayout::x_packed; }), HasSubstr("use hnd or nhd"));
  EXPECT_THAT(latent([](KvGroup& g) { g.layout = KvLayout::shuffle; }), HasSubstr("use hnd or nhd"));
  EXPECT_THAT(latent([](KvGroup& g) { g.v_scales = {1, 1}; }), HasSubstr("give K scales only"));
}

TEST(KvGroupTest, RefusesDtypesLayoutsAndScalesThatDoNotFit) {
  const auto full = [](auto change) { return refusal(KvKind::full, change); };
  EXPECT_THAT(full([](KvGroup& g) { g.dtype = KvCacheDType::nvfp4; }),
              AllOf(HasSubstr("nvfp4 can't be stored; allowed are auto"), Not(HasSubstr("auto resolved"))));
  EXPECT_THAT(full([](KvGroup& g) { g.dtype = KvCacheDType::auto_; }), HasSubstr("auto resolved"));
  EXPECT_THAT(full([](KvGroup& g) { g.layout = KvLayout::x_packed, g.head_dim = 24; }),
              HasSubstr("multiple of 16, not 24; use hnd or nhd"));
  EXPECT_THAT(full([](KvGroup& g) { g.layout = KvLayout::shuffle, g.page_size = 24; }),
              HasSubstr("page size that is a multiple of 16, not 24; use --page-size 32, or hnd"));
  EXPECT_THAT(full([](KvGroup& g) { g.k_scales = {1}; }), HasSubstr("1 K scales for 2 layers"));
  EXPECT_THAT(full([](KvGroup& g) { g.v_scales = {1, 1, 1}; }), HasSubstr("3 V scales for 2 layers"));
  EXPECT_THAT(full([](KvGroup& g) { g.k_scales = {1, 1}, g.dtype = KvCacheDType::bfloat16; }),
              HasSubstr("the others none"));
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_THAT(full([bad](KvGroup& g) { g.v_scales = {1, bad}; }), HasSubstr("a V scale is"));
}

}  // namespace
}  // namespace fovea
