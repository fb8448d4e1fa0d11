// The views of a latent group's layers are those that MLA backends accept.
#include <gtest/gtest.h>

#include "attention/batch_check.h"
#include "attention/select_test_support.h"
#include "kv/kv_cache.h"

namespace fovea {
namespace {

constexpr int kPage = 16;

TEST(LatentView, ALatentGroupsLayersAreSuchViews) {
  KvGroup group;
  group.kind = KvKind::latent;
  group.layers = {0, 1};
  group.num_kv_heads = 1;
  group.head_dim = 576;
  group.v_head_dim = 512;
  group.page_size = kPage;
  AttentionSpec spec = mla_spec();
  for (const KvCacheDType dtype : {KvCacheDType::bfloat16, KvCacheDType::float32, KvCacheDType::fp8_e4m3,
                                   KvCacheDType::int8_per_token_head})
    for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd}) {
      group.dtype = spec.kv_dtype = dtype;
      group.layout = layout;
      if (is_fp8(dtype))
        group.k_scales = {0.5f, 0.25f};
      else
        group.k_scales.clear();
      const auto cache = KvCache::create({group}, {3});
      ASSERT_TRUE(cache) << cache.error().message;
      AttentionArgs args;
      args.kv = cache->layer(1);
      EXPECT_TRUE(check_args(args, spec, kPage)) << to_string(dtype);
      EXPECT_EQ(args.kv.k_slot_stride, 576);
      EXPECT_EQ(args.kv.k_page_stride, 576 * kPage);
    }
}

}  // namespace
}  // namespace fovea
