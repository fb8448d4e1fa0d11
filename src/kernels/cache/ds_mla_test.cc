// fp8_ds_mla: where each byte of a record lies, how it is rounded, and what other writers' scales mean.
#include "kernels/cache/ds_mla.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"
#include "base/float8.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

constexpr int kRank = 512, kRope = 64, kBytes = 656;

std::vector<float> random_row(float gain, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRank + kRope);
  for (float& v : x)
    v = gain * normal(random);
  return x;
}

float scale_of(const std::vector<std::byte>& record, int group) {
  float scale = 0;
  std::memcpy(&scale, record.data() + 512 + 4 * group, 4);
  return scale;
}

TEST(DsMla, BytesOfARecord) {
  static_assert(ds_mla_bytes(kRank, kRope) == kBytes && ds_mla_scales(kRank) == 512 &&
                ds_mla_rope(kRank) == 528);
  static_assert(record_bytes(KvCacheDType::fp8_ds_mla, 576, 512) == 656);
  static_assert(record_bytes(KvCacheDType::bfloat16, 576, 512) == 1152);
  static_assert(!is_ds_mla(192, 64) && is_ds_mla(256, 32));
  std::vector<float> x(kRank + kRope);
  for (int i = 0; i < kRank; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(1 << i / 128) * (i % 2 == 0 ? 448.0f : -1.0f);
  for (int i = 0; i < kRope; ++i)
    x[static_cast<size_t>(kRank + i)] = static_cast<float>(i) + 0.5f;
  std::vector<std::byte> record(kBytes + 1, std::byte{0xaa});
  store_ds_mla(x.data(), kRank, kRope, record.data());
  for (int i = 0; i < kRank; ++i)
    ASSERT_EQ(static_cast<uint8_t>(record[static_cast<size_t>(i)]),
              float_to_e4m3(i % 2 == 0 ? 448.0f : -1.0f))
        << i;
  for (int g = 0; g < 4; ++g)
    EXPECT_EQ(scale_of(record, g), static_cast<float>(1 << g));
  for (int i = 0; i < kRope; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, record.data() + 528 + 2 * i, 2);
    EXPECT_EQ(bits, float_to_bf16(static_cast<float>(i) + 0.5f));
  }
  EXPECT_EQ(record[kBytes], std::byte{0xaa});
}

TEST(DsMla, ScalesArePowersOfTwoThatCoverTheLargest) {
  for (const float gain : {0.0f, 1e-30f, 1e-3f, 1.0f, 300.0f, 1e30f}) {
    const std::vector<float> x = random_row(gain, 3);
    std::vector<std::byte> record(kBytes);
    store_ds_mla(x.data(), kRank, kRope, record.data());
    std::vector<float> y(x.size(), NAN);
    load_ds_mla(record.data(), kRank, kRope, y.data());
    for (int g = 0; g < 4; ++g) {
      float most = 0;
      for (int c = 128 * g; c < 128 * (g + 1); ++c)
        most = std::max(most, std::abs(x[static_cast<size_t>(c)]));
      const float scale = scale_of(record, g);
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << gain;
      EXPECT_GE(scale * kE4m3Max, most);
      EXPECT_TRUE(scale == 0x1p-13f || scale / 2 * kE4m3Max < most) << gain;
      for (int c = 128 * g; c < 128 * (g + 1); ++c)
        ASSERT_NEAR(y[static_cast<size_t>(c)], x[static_cast<size_t>(c)],
                    std::max(std::abs(x[static_cast<size_t>(c)]) / 16, scale * 0x1p-10f))
            << gain;
    }
    // Once rounded, a record stays as it is.
    std::vector<std::byte> again(kBytes);
    store_ds_mla(y.data(), kRank, kRope, again.data());
    std::vector<float> z(x.size());
    load_ds_mla(again.data(), kRank, kRope, z.data());
    EXPECT_EQ(z, y) << gain;
  }
}

TEST(DsMla, ReadsAnyScale) {
  std::vector<std::byte> record(kBytes);
  for (int i = 0; i < kRank; ++i)
    record[static_cast<size_t>(i)] = std::byte{float_to_e4m3(1.5f)};
  const float scales[] = {1e-30f, 0.3f, 1e30f, std::nanf("")};
  std::memcpy(record.data() + 512, scales, sizeof scales);
  std::vector<float> y(kRank + kRope);
  load_ds_mla(record.data(), kRank, kRope, y.data());
  for (int g = 0; g < 3; ++g)
    EXPECT_EQ(y[static_cast<size_t>(128 * g + 5)], 1.5f * scales[g]);
  EXPECT_TRUE(std::isnan(y[500]));
}

TEST(DsMla, NanStaysAndInfinityIsCut) {
  std::vector<float> x = random_row(1, 4);
  x[3] = std::nanf("");
  x[200] = std::numeric_limits<float>::infinity();
  x[300] = -std::numeric_limits<float>::infinity();
  x[kRank + 1] = std::nanf("");
  std::vector<std::byte> record(kBytes);
  store_ds_mla(x.data(), kRank, kRope, record.data());
  std::vector<float> y(x.size());
  load_ds_mla(record.data(), kRank, kRope, y.data());
  EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[kRank + 1]));
  EXPECT_EQ(y[200], kE4m3Max * scale_of(record, 1));
  EXPECT_EQ(y[300], -kE4m3Max * scale_of(record, 2));
  EXPECT_NEAR(y[4], x[4], std::abs(x[4]) / 16 + 1e-4f);
}

TEST(DsMla, WritesRowsAtTheirSlotsAndNothingElse) {
  constexpr int kPage = 3, kPages = 4, kStride = kRank + kRope + 5;
  std::vector<std::byte> cache(kPage * kPages * kBytes, std::byte{0xaa});
  const std::vector<int64_t> slots = {7, -1, 2, 11};
  std::vector<float> rows;
  for (uint32_t r = 0; r < 4; ++r) {
    const std::vector<float> row = random_row(2, r);
    rows.insert(rows.end(), row.begin(), row.end());
    rows.insert(rows.end(), 5, std::nanf(""));
  }
  KvView view;
  view.k = cache.data();
  view.dtype = KvCacheDType::fp8_ds_mla;
  view.page_size = kPage;
  view.num_pages = kPages;
  view.k_slot_stride = kBytes;
  view.k_page_stride = kPage * kBytes;
  ThreadPool pool(2);
  write_ds_mla(view, kRank, kRope, slots, rows.data(), kStride, pool);
  for (int64_t slot = 0; slot < kPage * kPages; ++slot) {
    std::vector<std::byte> want(kBytes, std::byte{0xaa});
    for (size_t r = 0; r < slots.size(); ++r)
      if (slots[r] == slot) store_ds_mla(rows.data() + r * kStride, kRank, kRope, want.data());
    EXPECT_EQ(std::memcmp(cache.data() + slot * kBytes, want.data(), kBytes), 0) << slot;
  }
}

}  // namespace
}  // namespace fovea
