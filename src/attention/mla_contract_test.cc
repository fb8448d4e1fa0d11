// What specs, steps and views of MLA mean to every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "attention/batch_check.h"
#include "attention/kv_view.h"
#include "attention/mla_prefill.h"
#include "attention/row.h"
#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

constexpr int kPage = 16;

BackendInfo mla_row() {
  Capability c;
  c.dtypes = rows::kHalf;
  c.kv_dtypes = {KvCacheDType::auto_};
  c.page_sizes = {kPage};
  c.head_dims = IntSet::any();
  c.v_head_dims = IntSet::any();
  c.types = {AttentionType::decoder};
  c.features = {Feature::mla};
  c.phases = {Phase::prefill, Phase::decode};
  return {.name = "AN_MLA", .capability = c};
}

AttentionArgs args_of(const std::array<uint16_t, 8>& data) {
  AttentionArgs args;
  args.kv = latent_view(KvCacheDType::bfloat16, kPage, 576);
  args.kv.k = args.kv.v = data.data();
  return args;
}

TEST(MlaContract, HeadsShareOneRecordWhoseBeginningIsV) {
  AttentionSpec spec = mla_spec();
  EXPECT_TRUE(check_supported(mla_row(), spec));
  spec.num_kv_heads = 2;
  EXPECT_THAT(check_supported(mla_row(), spec).error().message, HasSubstr("MLA with 2 KV heads"));
  spec.num_kv_heads = 1;
  spec.v_head_dim = 577;
  EXPECT_THAT(check_supported(mla_row(), spec).error().message,
              HasSubstr("V of 577 elements in records of 576"));
  spec.v_head_dim = 576;
  EXPECT_TRUE(check_supported(mla_row(), spec));
}

TEST(MlaContract, AViewWithAnotherVIsRefused) {
  const std::array<uint16_t, 8> data = {}, other = {};
  const float scales[2] = {1, 1};
  const AttentionSpec spec = mla_spec();
  EXPECT_TRUE(check_args(args_of(data), spec, kPage));
  const auto refused = [&](auto change) {
    AttentionArgs args = args_of(data);
    change(args.kv);
    const Status status = check_args(args, spec, kPage);
    return !status && status.error().message.starts_with("MLA reads V from K's records");
  };
  EXPECT_TRUE(refused([&](KvView& kv) { kv.v = other.data(); }));
  EXPECT_TRUE(refused([](KvView& kv) { kv.v_slot_stride = 512; }));
  EXPECT_TRUE(refused([](KvView& kv) { kv.v_page_stride += 1; }));
  EXPECT_TRUE(refused([](KvView& kv) { kv.v_scale = 0.5f; }));
  EXPECT_TRUE(refused([](KvView& kv) { kv.form = KvForm::x_packed; }));
  EXPECT_TRUE(refused([&](KvView& kv) {
    kv.dtype = KvCacheDType::int8_per_token_head;
    kv.k_scales = scales;
    kv.v_scales = scales + 1;
  }));
}

TEST(MlaContract, WithoutAbsorptionItIsOrdinaryAttention) {
  AttentionSpec spec = mla_spec();
  spec.page_size = 64;
  spec.kv_dtype = KvCacheDType::fp8_e4m3;
  spec.use_sparse = true;
  spec.needs = {Feature::dcp, Feature::chunked_prefix, Feature::lse};
  const AttentionSpec plain = unabsorbed_spec(spec);
  EXPECT_FALSE(plain.use_mla);
  EXPECT_FALSE(plain.use_sparse);
  EXPECT_EQ(plain.head_dim, 192);
  EXPECT_EQ(plain.v_head_dim, 128);
  EXPECT_EQ(plain.num_kv_heads, spec.num_heads);
  EXPECT_EQ(plain.page_size, 1);
  EXPECT_EQ(plain.kv_dtype, KvCacheDType::auto_);
  EXPECT_EQ(plain.scale, spec.scale);
  EXPECT_EQ(plain.needs, FeatureSet{Feature::lse});
}

}  // namespace
}  // namespace fovea
