#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) list.push_back(isa);
  return list;
}

class LinearTest : public testing::TestWithParam<Isa> {
 protected:
  LinearTest() { set_isa(GetParam()); }
  ~LinearTest() override { set_isa(detect_isa()); }
};
INSTANTIATE_TEST_SUITE_P(Isas, LinearTest, testing::ValuesIn(isas()),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = normal(random);
  return values;
}

float rounded(float v, DType dtype) {
  switch (dtype) {
    case DType::f32: break;
    case DType::f16: return fp16_to_float(float_to_fp16(v));
    case DType::bf16: return bf16_to_float(float_to_bf16(v));
  }
  return v;
}

std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = dtype == DType::f16 ? float_to_fp16(values[i]) : float_to_bf16(values[i]);
    const void* p = dtype == DType::f32 ? static_cast<const void*>(&values[i]) : &half;
    std::memcpy(bytes.data() + i * size_of(dtype), p, size_of(dtype));
  }
  return bytes;
}

PackedMatrix pack(const std::vector<float>& w, int64_t n, int64_t k, DType storage, ThreadPool& pool) {
  PackedMatrix matrix(n, k, storage);
  matrix.pack_rows(0, n, w.data(), DType::f32, pool);
  return matrix;
}

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr float kPoison = -12345.0f;

// |fp32 - exact| <= gamma sum |x w|, gamma = c u / (1 - c u), u = 2^-24: the first product passes the most
// roundings, one an FMA, so c = k (k + 1 where product and sum are rounded apart); the bias adds one more.
double bound(int64_t k, double magnitude) {
  const double c = static_cast<double>(k + 2) * 0x1p-24;
  return c / (1 - c) * magnitude;
}

void expect_near_oracle(int64_t m, int64_t n, int64_t k, DType storage, bool with_bias, ThreadPool& pool) {
  const auto w = random_floats(n * k, 1), x = random_floats(m * (k + 3), 2), bias = random_floats(n, 3);
  const PackedMatrix matrix = pack(w, n, k, storage, pool);
  std::vector<float> y(static_cast<size_t>(m * (n + 5)), kPoison);
  linear(matrix, x.data(), k + 3, m, y.data(), n + 5, with_bias ? bias.data() : nullptr, pool);
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double exact = 0, magnitude = 0;
      if (with_bias) exact = bias[static_cast<size_t>(c)], magnitude = std::fabs(exact);
      for (int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(x[static_cast<size_t>(r * (k + 3) + i)]) *
                            rounded(w[static_cast<size_t>(c * k + i)], storage);
        exact += term;
        magnitude += std::fabs(term);
      }
      ASSERT_NEAR(y[static_cast<size_t>(r * (n + 5) + c)], exact, bound(k, magnitude))
          << m << "x" << n << "x" << k << " " << to_string(storage) << " at " << r << ", " << c;
    }
    for (int64_t c = n; c < n + 5; ++c)
      ASSERT_EQ(y[static_cast<size_t>(r * (n + 5) + c)], kPoison) << "wrote past the row's end";
  }
}

TEST_P(LinearTest, IsNearTheFp64Oracle) {
  ThreadPool pool(2);
  for (DType storage : kDTypes)
    for (int64_t n : {1, 3, 17, 31, 33, 257})
      for (int64_t k : {1, 3, 17, 31, 33, 1000})
        for (int64_t m : {1, 2, 5, 16})
          ASSERT_NO_FATAL_FAILURE(expect_near_oracle(m, n, k, storage, (n + k + m) % 2 == 0, pool));
}

TEST_P(LinearTest, ManyRowsAndDepthBlocks) {
  ThreadPool pool(3);
  for (DType storage : kDTypes)
    ASSERT_NO_FATAL_FAILURE(expect_near_oracle(530, 70, 600, storage, true, pool));
}

TEST_P(LinearTest, DepthZeroIsTheBias) {
  ThreadPool pool(2);
  const PackedMatrix matrix(3, 0, DType::bf16);
  const std::vector<float> bias = {1, 2, 3};
  for (int64_t m : {1, 2, 40}) {
    std::vector<float> y(static_cast<size_t>(3 * m), kPoison);
    linear(matrix, nullptr, 0, m, y.data(), 3, bias.data(), pool);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], bias[i % 3]);
    linear(matrix, nullptr, 0, m, y.data(), 3, nullptr, pool);
    ASSERT_EQ(y, std::vector<float>(y.size(), 0.0f));
  }
}

TEST_P(LinearTest, NoRowsOrNoOutputsDoesNothing) {
  ThreadPool pool(2);
  const std::vector<float> x(8, 1.0f);
  float y = kPoison;
  linear(pack(x, 2, 4, DType::f32, pool), x.data(), 4, 0, &y, 2, nullptr, pool);
  linear(PackedMatrix(0, 4, DType::f32), x.data(), 4, 2, &y, 0, nullptr, pool);
  EXPECT_EQ(y, kPoison);
}

// The chain itself, by scalars: what every width of tile must give, bit for bit. The generic path has no FMA.
TEST_P(LinearTest, IsOneChainOfProductsInOrder) {
  const bool fused = GetParam() != Isa::generic;
  ThreadPool pool(2);
  constexpr int64_t kM = 21, kN = 40, kK = 700;
  const auto w = random_floats(kN * kK, 1), x = random_floats(kM * kK, 2), bias = random_floats(kN, 3);
  for (DType storage : kDTypes) {
    const PackedMatrix matrix = pack(w, kN, kK, storage, pool);
    std::vector<float> y(kM * kN);
    linear(matrix, x.data(), kK, kM, y.data(), kN, bias.data(), pool);
    for (size_t r = 0; r < kM; ++r)
      for (size_t c = 0; c < kN; ++c) {
        float sum = 0;
        for (size_t i = 0; i < kK; ++i) {
          const float a = x[r * kK + i], b = rounded(w[c * kK + i], storage);
          sum = fused ? std::fma(a, b, sum) : a * b + sum;
        }
        ASSERT_EQ(y[r * kN + c], sum + bias[c]) << r << ", " << c;
      }
  }
}

// linear_add() continues the chain from what is there.
TEST_P(LinearTest, AddsToWhatIsThere) {
  ThreadPool pool(3);
  constexpr int64_t kM = 31, kN = 40, kFirst = 100, kK = 700;
  const auto w = random_floats(kN * kK, 1), x = random_floats(kM * kK, 2);
  std::vector<float> head, tail;
  for (int64_t n = 0; n < kN; ++n) {
    const float* row = w.data() + n * kK;
    head.insert(head.end(), row, row + kFirst);
    tail.insert(tail.end(), row + kFirst, row + kK);
  }
  for (const int64_t m : {int64_t{1}, kM}) {
    std::vector<float> want(static_cast<size_t>(m * kN)), got(want.size());
    linear(pack(w, kN, kK, DType::f32, pool), x.data(), kK, m, want.data(), kN, nullptr, pool);
    linear(pack(head, kN, kFirst, DType::f32, pool), x.data(), kK, m, got.data(), kN, nullptr, pool);
    linear_add(pack(tail, kN, kK - kFirst, DType::f32, pool), x.data() + kFirst, kK, m, got.data(), kN, pool);
    EXPECT_EQ(got, want);
  }
}

// A row alone, and in every company and on every number of threads, is the same bits.
TEST_P(LinearTest, ARowDoesNotDependOnItsCompanyOrThreads) {
  constexpr int64_t kMostRows = 600, kN = 70, kK = 300;
  ThreadPool one(1);
  const auto w = random_floats(kN * kK, 1), x = random_floats(kMostRows * kK, 2), bias = random_floats(kN, 3);
  for (DType storage : kDTypes) {
    const PackedMatrix matrix = pack(w, kN, kK, storage, one);
    std::vector<float> alone(kMostRows * kN);
    for (int64_t r = 0; r < kMostRows; ++r)
      linear(matrix, x.data() + r * kK, kK, 1, alone.data() + r * kN, kN, bias.data(), one);
    for (int threads = 1; threads <= 4; ++threads) {
      ThreadPool pool(threads);
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 15, 16, 28, 29, 100, 511, 512, 513, 600}) {
        std::vector<float> y(static_cast<size_t>(m * kN), kPoison);
        linear(matrix, x.data(), kK, m, y.data(), kN, bias.data(), pool);
        ASSERT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
            << to_string(storage) << ", " << m << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_P(LinearTest, NanAndInfinityStayInTheirRows) {
  ThreadPool pool(2);
  constexpr int64_t kM = 45, kN = 50, kK = 280;
  const auto w = random_floats(kN * kK, 1);
  const auto clean = random_floats(kM * kK, 2);
  const PackedMatrix matrix = pack(w, kN, kK, DType::bf16, pool);
  std::vector<float> expected(kM * kN), y(kM * kN);
  linear(matrix, clean.data(), kK, kM, expected.data(), kN, nullptr, pool);
  for (float bad : {NAN, INFINITY, -INFINITY})
    for (size_t row : {size_t{0}, size_t{13}, size_t{44}})
      for (size_t at : {size_t{0}, size_t{279}}) {
        auto x = clean;
        x[row * kK + at] = bad;
        linear(matrix, x.data(), kK, kM, y.data(), kN, nullptr, pool);
        for (size_t r = 0; r < kM; ++r)
          for (size_t c = 0; c < kN; ++c)
            if (r == row)
              ASSERT_FALSE(std::isfinite(y[r * kN + c])) << r << ", " << c;
            else
              ASSERT_EQ(y[r * kN + c], expected[r * kN + c]) << r << ", " << c;
      }
}

TEST_P(LinearTest, ANanWeightReachesOnlyItsOutput) {
  ThreadPool pool(2);
  constexpr size_t kN = 37, kK = 20;
  auto w = random_floats(kN * kK, 1);
  const auto x = random_floats(3 * kK, 2);
  w[35 * kK + 7] = NAN;
  for (DType storage : kDTypes) {
    std::vector<float> y(3 * kN);
    linear(pack(w, kN, kK, storage, pool), x.data(), kK, 3, y.data(), kN, nullptr, pool);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(std::isnan(y[i]), i % kN == 35) << i;
  }
}

// Storing what the source has exactly, in whichever type, gives the same bits.
TEST_P(LinearTest, StorageDoesNotMatterWhereItIsExact) {
  ThreadPool pool(2);
  constexpr int64_t kM = 9, kN = 45, kK = 400;
  auto w = random_floats(kN * kK, 1);
  for (float& v : w)
    v = std::round(v * 32) / 32;  // |v| < 8 in steps of 2^-5: 8 significant bits, exact in all three types
  const auto x = random_floats(kM * kK, 2);
  std::vector<float> first;
  for (DType storage : kDTypes)
    for (DType source : kDTypes) {
      PackedMatrix matrix(kN, kK, storage);
      matrix.pack_rows(0, kN, encode(w, source).data(), source, pool);
      std::vector<float> y(kM * kN);
      linear(matrix, x.data(), kK, kM, y.data(), kN, nullptr, pool);
      if (first.empty()) first = y;
      ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
          << to_string(source) << " in " << to_string(storage);
    }
}

TEST(LinearIsas, Avx2AndAvx512AgreeBitForBit) {
  if (detect_isa() != Isa::avx512) GTEST_SKIP() << "no AVX-512 here";
  ThreadPool pool(2);
  constexpr int64_t kM = 33, kN = 77, kK = 513;
  const auto w = random_floats(kN * kK, 1), x = random_floats(kM * kK, 2);
  const PackedMatrix matrix = pack(w, kN, kK, DType::f16, pool);
  std::vector<float> a(kM * kN), b(kM * kN);
  linear(matrix, x.data(), kK, kM, a.data(), kN, nullptr, pool);
  set_isa(Isa::avx2);
  linear(matrix, x.data(), kK, kM, b.data(), kN, nullptr, pool);
  set_isa(detect_isa());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// Bit patterns of every kind, so that exactness and rounding of special values are seen too.
std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(random());
  return bytes;
}

float decode(const std::byte* p, DType dtype) {
  uint16_t half;
  float value;
  if (dtype == DType::f32) return std::memcpy(&value, p, 4), value;
  std::memcpy(&half, p, 2);
  return dtype == DType::f16 ? fp16_to_float(half) : bf16_to_float(half);
}

TEST_P(LinearTest, PackingRoundsEachWeightOnce) {
  ThreadPool pool(3);
  for (DType source : kDTypes)
    for (DType storage : kDTypes)
      for (int64_t n : {1, 31, 33, 100})
        for (int64_t k : {1, 3, 17, 64, 1000}) {
          const size_t size = size_of(source);
          const auto bytes = random_bytes(static_cast<size_t>(n * k) * size + 1);
          const std::byte* unaligned = bytes.data() + 1;
          PackedMatrix matrix(n, k, storage);
          matrix.pack_rows(0, n, unaligned, source, pool);
          std::vector<float> row(static_cast<size_t>(k));
          for (int64_t r = 0; r < n; ++r) {
            matrix.unpack_row(r, row.data());
            for (size_t i = 0; i < row.size(); ++i) {
              const float exact = decode(unaligned + (static_cast<size_t>(r * k) + i) * size, source);
              const float expected = rounded(exact, storage);
              if (std::isnan(exact))
                ASSERT_TRUE(std::isnan(row[i]));
              else
                ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), std::bit_cast<uint32_t>(expected))
                    << to_string(source) << " in " << to_string(storage) << " " << n << "x" << k << " at "
                    << r << ", " << i;
            }
          }
        }
}

// q, k and v one after the other, cut anywhere and in any order, are the bytes of one call.
TEST_P(LinearTest, SeveralCallsBuildAFusedMatrix) {
  ThreadPool pool(2);
  constexpr int64_t kN = 131, kK = 37;
  for (DType storage : kDTypes)
    for (DType source : kDTypes) {
      const auto bytes = encode(random_floats(kN * kK, 7), source);
      PackedMatrix whole(kN, kK, storage), parts(kN, kK, storage);
      whole.pack_rows(0, kN, bytes.data(), source, pool);
      constexpr std::pair<int64_t, int64_t> kParts[] = {{100, 31}, {0, 1},  {1, 32},
                                                        {33, 64},  {97, 3}, {131, 0}};
      for (auto [first, rows] : kParts)
        parts.pack_rows(first, rows, bytes.data() + static_cast<size_t>(first * kK) * size_of(source), source,
                        pool);
      ASSERT_EQ(whole.bytes(), parts.bytes());
      ASSERT_EQ(std::memcmp(whole.data(), parts.data(), static_cast<size_t>(whole.bytes())), 0);
    }
}

}  // namespace
}  // namespace fovea
