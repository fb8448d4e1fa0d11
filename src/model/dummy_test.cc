#include "model/dummy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

TEST(DummyWeights, AreNormal) {
  const DummyWeights dummy(3, DType::f32);
  ThreadPool pool(2);
  constexpr int kCount = 1 << 20;
  std::vector<float> values(kCount);
  dummy.fill("w", 0, kCount, values.data(), pool);
  double sum = 0, squares = 0, within = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
    within += std::fabs(values[i]) < DummyWeights::kStd;
    if (i > 0) neighbours += static_cast<double>(values[i]) * values[i - 1];
  }
  const double variance = squares / kCount, std = DummyWeights::kStd;
  EXPECT_NEAR(sum / kCount, 0, 5 * std / std::sqrt(kCount));
  EXPECT_NEAR(std::sqrt(variance), std, 0.01 * std);
  EXPECT_NEAR(within / kCount, 0.6827, 0.003);
  EXPECT_NEAR(neighbours / kCount / variance, 0, 5 / std::sqrt(kCount));
}

TEST(DummyWeights, DependOnNameSeedAndIndexOnly) {
  const DummyWeights a(3, DType::bf16), b(4, DType::bf16);
  ThreadPool one(1), three(3);
  std::vector<uint16_t> whole(1001), part(501), other(1001), seeded(1001);
  a.fill("w", 0, 1001, whole.data(), three);
  a.fill("w", 500, 501, part.data(), one);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 500));
  a.fill("v", 0, 1001, other.data(), one);
  b.fill("w", 0, 1001, seeded.data(), one);
  EXPECT_NE(whole, other);
  EXPECT_NE(whole, seeded);
}

TEST(DummyWeights, VectorsLieAroundTheirMean) {
  const DummyWeights dummy(3, DType::f16);
  float values[256];
  dummy.fill_vector("norm", 1.0f, 256, values);
  for (const float x : values)
    EXPECT_NEAR(x, 1.0f, 0.1f);
}

}  // namespace
}  // namespace fovea
