// Every instruction set writes the bits of the plain conversions.
#include "kernels/cpu/kv_append_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/cpu_features.h"
#include "base/float8.h"

namespace fovea::kv_append {
namespace {

class KvAppend : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = current_isa();
    if (!set_isa(GetParam())) GTEST_SKIP() << "this CPU lacks " << to_string(GetParam());
  }
  void TearDown() override { set_isa(before_); }

 private:
  Isa before_ = Isa::generic;
};

/// Random bit patterns of every kind, and the neighbourhood of every rounding boundary of the 8-bit formats.
std::vector<float> hard_values() {
  std::vector<float> values = {0.0f,   -0.0f,    INFINITY, -INFINITY, 464.0f,
                               448.0f, 61440.0f, 65519.0f, 65520.0f};
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (int i = 0; i < 255; ++i)
    for (float (*read)(uint8_t) : {e4m3_to_float, e5m2_to_float}) {
      const float middle = (read(static_cast<uint8_t>(i)) + read(static_cast<uint8_t>(i + 1))) / 2;
      for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)})
        values.push_back(x);
    }
  return values;
}

template <class T, class Convert>
void expect_plain(const std::vector<float>& x, KvCacheDType dtype, float scale, Convert convert) {
  std::vector<T> out(x.size() + 1, T{0x5a});
  current_kernels().store(x.data(), static_cast<int64_t>(x.size()), scale, dtype, out.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(out[i], convert(x[i])) << to_string(dtype) << " of " << x[i] << " ("
                                     << std::bit_cast<uint32_t>(x[i]) << ")";
  EXPECT_EQ(out.back(), T{0x5a}) << "wrote past the end";
}

TEST_P(KvAppend, RoundsAsThePlainConversionsDo) {
  const std::vector<float> x = hard_values();
  expect_plain<uint16_t>(x, KvCacheDType::float16, 1, float_to_fp16);
  expect_plain<uint16_t>(x, KvCacheDType::bfloat16, 1, float_to_bf16);
  expect_plain<uint32_t>(x, KvCacheDType::float32, 1, [](float v) { return std::bit_cast<uint32_t>(v); });
  for (const float scale : {1.0f, 0.37f, 1e-30f, 3e30f}) {
    expect_plain<uint8_t>(x, KvCacheDType::fp8_e4m3, scale,
                          [=](float v) { return float_to_e4m3(v / scale); });
    expect_plain<uint8_t>(x, KvCacheDType::fp8_e5m2, scale,
                          [=](float v) { return float_to_e5m2(v / scale); });
  }
}

TEST_P(KvAppend, Int8RoundsToNearestEvenAndNeverWritesMinus128) {
  std::vector<float> x;
  for (float v = -140; v <= 140; v += 0.125f)
    x.push_back(v * 0.3f);
  expect_plain<uint8_t>(x, KvCacheDType::int8_per_token_head, 0.3f, [](float v) {
    const float code = std::nearbyint(std::min(std::max(v / 0.3f, -127.0f), 127.0f));
    return static_cast<uint8_t>(static_cast<int8_t>(code));
  });
}

TEST_P(KvAppend, EveryLengthIsWrittenWholeAndNoMore) {
  std::vector<float> x(40);
  std::mt19937 random(2);
  for (float& v : x)
    v = static_cast<float>(random() % 1000) / 100 - 5;
  for (size_t n = 0; n <= x.size(); ++n) {
    const std::vector<float> part(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n));
    expect_plain<uint16_t>(part, KvCacheDType::float16, 1, float_to_fp16);
    expect_plain<uint8_t>(part, KvCacheDType::fp8_e4m3, 1, float_to_e4m3);
    expect_plain<uint8_t>(part, KvCacheDType::int8_per_token_head, 1, [](float v) {
      return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(v)));
    });
  }
}

TEST_P(KvAppend, MaxMagnitude) {
  const auto of = [](std::vector<float> x) {
    return current_kernels().max_magnitude(x.data(), static_cast<int64_t>(x.size()));
  };
  EXPECT_EQ(of({}), 0.0f);
  for (size_t n = 1; n < 40; ++n)
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> x(n, 0.5f);
      x[at] = -3.0f;
      EXPECT_EQ(of(x), 3.0f) << n << ' ' << at;
      for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
        x[at] = bad;
        EXPECT_TRUE(std::isnan(of(x))) << n << ' ' << at << ' ' << bad;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Isa, KvAppend, ::testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace fovea::kv_append
