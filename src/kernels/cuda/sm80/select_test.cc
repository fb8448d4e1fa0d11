#include "kernels/cuda/sm80/select.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::cuda::sm80 {
namespace {

Problem problem(int d, int dv, KvType kv = KvType::same, bool general = false) {
  return {QueryType::bf16, kv, d, dv, general};
}

TEST(Sm80Select, TakesTheNarrowestKernelThatIsWideEnough) {
  struct Case {
    int d, dv, kernel_d, kernel_dv;
  };
  for (const Case& c :
       {Case{64, 64, 64, 64}, Case{8, 8, 64, 64}, Case{72, 72, 80, 80}, Case{112, 112, 128, 128},
        Case{192, 128, 192, 128}, Case{192, 192, 256, 256}, Case{264, 264, 512, 512}}) {
    const auto info = select(problem(c.d, c.dv), KernelKind::extend);
    ASSERT_TRUE(info.ok()) << c.d;
    EXPECT_EQ(info->head_dim, c.kernel_d) << c.d;
    EXPECT_EQ(info->v_head_dim, c.kernel_dv) << c.d;
  }
}

TEST(Sm80Select, KernelsFitTheDeviceAndThePlanner) {
  for (const QueryType q : {QueryType::f16, QueryType::bf16})
    for (const KvType kv : {KvType::same, KvType::e4m3, KvType::e5m2, KvType::int8})
      for (const bool general : {false, true})
        for (const KernelKind kind : {KernelKind::decode, KernelKind::extend, KernelKind::extend_small})
          for (int d = 16; d <= (kv == KvType::same ? 512 : 256); d += 16) {
            const auto info = select({q, kv, d, d, general}, kind);
            ASSERT_TRUE(info.ok()) << d;
            EXPECT_GE(info->head_dim, d);
            EXPECT_EQ(info->general, general);
            EXPECT_LE(info->shared_bytes * info->blocks_per_sm + 1024 * info->blocks_per_sm, 228 * 1024);
            EXPECT_EQ(info->split_keys % info->tile_keys, 0);
            EXPECT_LE(info->threads * info->blocks_per_sm, 512);
          }
}

/// Shared memory that a CTA may have on compute capability 8.0, on 8.6, 8.9 and 12.x, and on 9.0 and 10.x.
constexpr int kDevices[] = {163 * 1024, 99 * 1024, 227 * 1024};

// A CTA fits the device, blocks_per_sm CTAs fit an SM, and the keys of a tile and of a split, which decide
// the order of sums, are those of Hopper's kernel.
TEST(Sm80Select, EveryKernelFitsEveryDeviceAndSumsAlike) {
  for (const int shared_bytes : kDevices)
    for (const QueryType q : {QueryType::f16, QueryType::bf16})
      for (const KvType kv : {KvType::same, KvType::e4m3, KvType::e5m2, KvType::int8})
        for (const bool general : {false, true})
          for (const bool few : {false, true})
            for (const KernelKind kind : {KernelKind::decode, KernelKind::extend, KernelKind::extend_small})
              for (const int dv : {0, 128})
                for (int d = 16; d <= (kv == KvType::same ? 512 : 256); d += 16) {
                  Problem p{q, kv, d, dv == 0 ? d : dv, general, few};
                  const auto sized = select(p, kind);
                  p.shared_bytes = shared_bytes;
                  const auto info = select(p, kind);
                  ASSERT_TRUE(sized.ok() && info.ok()) << d;
                  EXPECT_LE(info->shared_bytes, shared_bytes) << d;
                  EXPECT_GE(info->blocks_per_sm, 1);
                  EXPECT_LE((info->shared_bytes + 1024) * info->blocks_per_sm, shared_bytes + 1024) << d;
                  EXPECT_EQ(info->tile_keys, sized->tile_keys) << d;
                  EXPECT_EQ(info->split_keys, sized->split_keys) << d;
                  EXPECT_EQ(info->fused_combine, sized->fused_combine) << d;
                  EXPECT_EQ(info->general, general);
                  EXPECT_TRUE(kind != KernelKind::decode || info->rows == sized->rows) << d;
                  EXPECT_TRUE(shared_bytes != 227 * 1024 || *info == *sized) << d;
                }
}

TEST(Sm80Select, WhereNothingFitsTheLeastIsReturned) {
  Problem p = problem(128, 128);
  p.shared_bytes = 40 * 1024;
  for (const KernelKind kind : {KernelKind::decode, KernelKind::extend, KernelKind::extend_small}) {
    const auto info = select(p, kind);
    ASSERT_TRUE(info.ok());
    EXPECT_GT(info->shared_bytes, p.shared_bytes);
    EXPECT_LT(info->shared_bytes, 99 * 1024) << "the least that there is";
  }
}

TEST(Sm80Select, FewSequencesTakeTheirKernelWhereThereIsOne) {
  Problem p = problem(128, 128);
  const auto many = select(p, KernelKind::decode);
  p.few_sequences = true;
  const auto few = select(p, KernelKind::decode);
  ASSERT_TRUE(many.ok() && few.ok());
  EXPECT_FALSE(many->fused_combine);
  EXPECT_TRUE(few->fused_combine);
  EXPECT_LT(few->split_keys, many->split_keys);
  p.head_dim = p.v_head_dim = 256;
  const auto wide = select(p, KernelKind::decode);
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(wide->head_dim, 256);
  EXPECT_FALSE(wide->fused_combine);
  EXPECT_EQ(select(p, KernelKind::extend).value(), select(problem(256, 256), KernelKind::extend).value());
}

// A row must have the same bits with either; that needs the same keys in a tile.
TEST(Sm80Select, SmallTilesTakeTheSameKeysAsLargeOnes) {
  for (int d = 8; d <= 512; d += 8) {
    const auto large = select(problem(d, d), KernelKind::extend);
    const auto small = select(problem(d, d), KernelKind::extend_small);
    ASSERT_TRUE(large.ok() && small.ok());
    EXPECT_EQ(large->tile_keys, small->tile_keys) << d;
    EXPECT_EQ(large->split_keys, small->split_keys) << d;
  }
}

TEST(Sm80Select, RefusesWithTheNumbers) {
  EXPECT_EQ(select(problem(100, 100), KernelKind::decode).error().message,
            "head size is 100; the sm80 kernels take multiples of 8");
  EXPECT_EQ(select(problem(72, 72, KvType::e4m3), KernelKind::decode).error().message,
            "head size is 72; the sm80 kernels take multiples of 16 with 8-bit keys");
  EXPECT_EQ(select(problem(520, 512), KernelKind::extend).error().message,
            "head sizes are 520 and 512; the sm80 kernels take up to 512");
  EXPECT_FALSE(select(problem(0, 64), KernelKind::extend).ok());
  for (const KvType kv : {KvType::f16, KvType::bf16, KvType::f32})
    EXPECT_FALSE(select(problem(64, 64, kv), KernelKind::decode).ok());
  EXPECT_FALSE(select({QueryType::f32, KvType::same, 64, 64, false}, KernelKind::extend).ok());
}

TEST(Sm80Params, FastDivisorIsExact) {
  for (const uint32_t d : {1u, 2u, 3u, 5u, 7u, 8u, 12u, 16u, 544u, 1000003u, 0x7fffffffu}) {
    const FastDivisor f(d);
    for (const uint32_t n : {0u, 1u, d - 1, d, d + 1, 12345678u, 0x7ffffffeu, 0x7fffffffu}) {
      if (n > 0x7fffffffu) continue;
      const uint64_t high = (static_cast<uint64_t>(n) * f.multiplier) >> 32;
      EXPECT_EQ((high + n) >> f.shift, n / d) << n << " / " << d;
    }
  }
}

}  // namespace
}  // namespace fovea::cuda::sm80
