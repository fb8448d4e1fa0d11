#include "kernels/cuda/portable/select.h"

#include <gtest/gtest.h>

#include "fovea/result.h"
#include "kernels/cuda/portable/access.h"

namespace fovea::cuda::portable {
namespace {

constexpr QueryType kQueries[] = {QueryType::f16, QueryType::bf16, QueryType::f32};
constexpr KvType kStored[] = {KvType::same, KvType::e4m3, KvType::e5m2, KvType::int8,
                              KvType::f16,  KvType::bf16, KvType::f32};

TEST(PortableSelect, ServesEveryTypeAndSizeWithinAnyDevicesLimits) {
  for (const QueryType q : kQueries)
    for (const KvType kv : kStored)
      for (const KernelKind kind : {KernelKind::decode, KernelKind::extend, KernelKind::extend_small})
        for (const int d : {1, 3, 64, 65, 128, 192, 256, 257, 512}) {
          const auto info = portable::select({q, kv, d, 513 - d}, kind);
          ASSERT_TRUE(info.ok()) << d;
          EXPECT_GE(info->head_dim, std::max(d, 513 - d));
          EXPECT_EQ(info->v_head_dim % 4, 0);
          EXPECT_EQ(info->kind == KernelKind::decode, kind == KernelKind::decode);
          EXPECT_EQ(info->split_keys % info->tile_keys, 0);
          EXPECT_LE(info->shared_bytes, 99 * 1024);
          EXPECT_TRUE(info->general);
        }
}

// Decode and extend compute the same bits for a row; that needs the same keys in a tile and in a split.
TEST(PortableSelect, DecodeTakesKeysAsExtendDoes) {
  for (const QueryType q : kQueries)
    for (const KvType kv : kStored)
      for (int d = 1; d <= 512; ++d) {
        const auto decode = portable::select({q, kv, d, d}, KernelKind::decode);
        const auto extend = portable::select({q, kv, d, d}, KernelKind::extend);
        ASSERT_TRUE(decode.ok() && extend.ok());
        EXPECT_EQ(decode->tile_keys, extend->tile_keys) << d;
        EXPECT_EQ(decode->split_keys, extend->split_keys) << d;
        EXPECT_EQ(decode->head_dim, extend->head_dim) << d;
      }
}

TEST(PortableSelect, MixedTypesAreTakenInFloat) {
  EXPECT_FALSE(computes_in_float(QueryType::bf16, KvType::same));
  EXPECT_FALSE(computes_in_float(QueryType::bf16, KvType::bf16));
  EXPECT_FALSE(computes_in_float(QueryType::f16, KvType::e5m2));
  EXPECT_TRUE(computes_in_float(QueryType::bf16, KvType::f16));
  EXPECT_TRUE(computes_in_float(QueryType::f16, KvType::f32));
  EXPECT_TRUE(computes_in_float(QueryType::f32, KvType::same));
  EXPECT_TRUE(computes_in_float(QueryType::f32, KvType::int8));
  EXPECT_EQ(*portable::select({QueryType::f16, KvType::same, 64, 64}, KernelKind::extend),
            *portable::select({QueryType::f16, KvType::f16, 64, 64}, KernelKind::extend));
}

TEST(PortableSelect, RefusesWithTheNumbers) {
  EXPECT_EQ(portable::select({QueryType::bf16, KvType::same, 513, 64}, KernelKind::decode).error().message,
            "head size is 513; the portable kernels take 1 to 512");
  EXPECT_FALSE(portable::select({QueryType::bf16, KvType::same, 64, 0}, KernelKind::extend).ok());
}

class PortableAccess : public testing::Test {
 protected:
  Access access(QueryType q, KvType kv) const {
    return access_of(*portable::select({q, kv, d_, d_}, KernelKind::extend), p_);
  }
  void SetUp() override { resize(64, 2); }
  void resize(int d, int bytes) {
    d_ = p_.head_dim = p_.v_head_dim = d;
    p_.q = p_.out = memory_;
    p_.kv.k = p_.kv.v = memory_;
    p_.q_rows.row_stride = p_.out_rows.row_stride = 4 * d;
    p_.q_rows.head_stride = p_.out_rows.head_stride = d;
    p_.kv.k_head_stride = p_.kv.v_head_stride = d * bytes;
    p_.kv.k_slot_stride = p_.kv.v_slot_stride = 2 * d * bytes;
    p_.kv.k_page_stride = p_.kv.v_page_stride = 32 * d * bytes;
  }

  alignas(16) char memory_[32] = {};
  int d_ = 0;
  AttentionParams p_;
};

TEST_F(PortableAccess, CopiesWhatIsAlignedAndOfTheProductsType) {
  const Access a = access(QueryType::bf16, KvType::same);
  EXPECT_EQ(a.load_q, Load::copy);
  EXPECT_EQ(a.load_k, Load::copy);
  EXPECT_EQ(a.load_v, Load::copy);
  EXPECT_TRUE(a.wide_out);
  EXPECT_EQ(a.kv, KvType::bf16);
}

TEST_F(PortableAccess, ConvertsOtherTypesByChunks) {
  const Access mixed = access(QueryType::f32, KvType::bf16);
  EXPECT_EQ(mixed.load_q, Load::copy);
  EXPECT_EQ(mixed.load_k, Load::wide);
  resize(64, 1);
  EXPECT_EQ(access(QueryType::f16, KvType::int8).load_v, Load::wide);
}

TEST_F(PortableAccess, ReadsElementsWhereAnythingIsNotAligned) {
  p_.kv.k += 2;
  EXPECT_EQ(access(QueryType::bf16, KvType::same).load_k, Load::scalar);
  EXPECT_EQ(access(QueryType::bf16, KvType::same).load_v, Load::copy);
  p_.kv.v_slot_stride += 2;
  EXPECT_EQ(access(QueryType::bf16, KvType::same).load_v, Load::scalar);
  p_.q_rows.row_stride += 1;
  EXPECT_EQ(access(QueryType::bf16, KvType::same).load_q, Load::scalar);
  p_.out = memory_ + 2;
  EXPECT_FALSE(access(QueryType::bf16, KvType::same).wide_out);
  SetUp();
  resize(63, 2);
  EXPECT_EQ(access(QueryType::bf16, KvType::same).load_k, Load::scalar);
  EXPECT_FALSE(access(QueryType::bf16, KvType::same).wide_out);
}

TEST_F(PortableAccess, XPackedKeysAreCopiedAndValuesAreNot) {
  p_.kv.k_slot_stride = 16, p_.kv.k_chunk_stride = 256;
  p_.kv.v_slot_stride = 2, p_.kv.v_dim_stride = 32;
  const Access a = access(QueryType::bf16, KvType::same);
  EXPECT_TRUE(a.x_packed);
  EXPECT_EQ(a.load_k, Load::copy);
  EXPECT_EQ(a.load_v, Load::scalar);
}

}  // namespace
}  // namespace fovea::cuda::portable
