#include "kernels/cpu/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) list.push_back(isa);
  return list;
}

class OpsTest : public testing::TestWithParam<Isa> {
 protected:
  OpsTest() { set_isa(GetParam()); }
  ~OpsTest() override { set_isa(detect_isa()); }
  ThreadPool pool_{3};
};
INSTANTIATE_TEST_SUITE_P(Isas, OpsTest, testing::ValuesIn(isas()),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

using Floats = std::vector<float>;

Floats random_floats(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Floats values(static_cast<size_t>(count));
  for (float& v : values)
    v = normal(random);
  return values;
}

constexpr double kUlp = 0x1p-23;  // of a value in [1, 2)
constexpr int64_t kDims[] = {1, 3, 7, 8, 15, 16, 17, 33, 64, 100, 1000, 4097};
constexpr int64_t kRows[] = {1, 2, 5, 100};  // 100 rows of the long ones are shared between threads
constexpr size_t kGap = 5;                   // row stride - dim
constexpr float kPoison = -77.0f;

TEST_P(OpsTest, RmsNorm) {
  for (int64_t dim : kDims)
    for (int64_t rows : kRows) {
      const auto d = static_cast<size_t>(dim), stride = d + kGap;
      const Floats x = random_floats(rows * static_cast<int64_t>(stride), 1, 3.0f),
                   weight = random_floats(dim, 2);
      Floats y(x.size(), kPoison), in_place = x;
      constexpr float kEps = 1e-5f;
      const auto s = static_cast<int64_t>(stride);
      rms_norm(x.data(), s, weight.data(), kEps, y.data(), s, rows, dim, pool_);
      rms_norm(in_place.data(), s, weight.data(), kEps, in_place.data(), s, rows, dim, pool_);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        double squares = 0;
        for (size_t i = 0; i < d; ++i)
          squares += static_cast<double>(x[r * stride + i]) * x[r * stride + i];
        const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + static_cast<double>(kEps));
        // Half of the sum's error (dim roundings at most, all terms positive) and 4 roundings after it.
        const double relative = (0.5 * static_cast<double>(dim) + 4) * kUlp / 2;
        for (size_t i = 0; i < d; ++i) {
          const double exact = x[r * stride + i] * scale * weight[i];
          ASSERT_NEAR(y[r * stride + i], exact, std::fabs(exact) * relative) << dim << " " << rows;
          ASSERT_EQ(in_place[r * stride + i], y[r * stride + i]);
        }
        for (size_t i = d; i < stride; ++i)
          ASSERT_EQ(y[r * stride + i], kPoison);
      }
    }
}

TEST_P(OpsTest, RmsNormOfHeadsIsThatOfEachHead) {
  constexpr int kDim = 19;
  for (const int heads : {1, 3, 40})
    for (const int64_t rows : kRows) {
      const int64_t stride = heads * kDim + static_cast<int64_t>(kGap);
      const Floats x = random_floats(rows * stride, 1, 3.0f), weight = random_floats(kDim, 2);
      Floats expected = x, y = x;
      for (int64_t r = 0; r < rows; ++r) {
        float* row = expected.data() + r * stride;
        rms_norm(row, kDim, weight.data(), 1e-5f, row, kDim, heads, kDim, pool_);
      }
      rms_norm_heads(y.data(), stride, heads, kDim, weight.data(), 1e-5f, rows, pool_);
      ASSERT_EQ(y, expected) << heads << " " << rows;
    }
}

TEST_P(OpsTest, LayerNorm) {
  for (int64_t dim : kDims)
    for (int64_t rows : kRows) {
      const auto d = static_cast<size_t>(dim), stride = d + kGap;
      const auto s = static_cast<int64_t>(stride);
      Floats x = random_floats(rows * s, 1, 3.0f);
      for (float& v : x)
        v += 20.0f;  // a mean far from 0, which a variance of squares minus mean^2 would not survive
      const Floats weight = random_floats(dim, 2), bias = random_floats(dim, 3);
      Floats y(x.size(), kPoison), in_place = x;
      constexpr float kEps = 1e-5f;
      layer_norm(x.data(), s, weight.data(), bias.data(), kEps, y.data(), s, rows, dim, pool_);
      layer_norm(in_place.data(), s, weight.data(), bias.data(), kEps, in_place.data(), s, rows, dim, pool_);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        double mean = 0, variance = 0, largest = 0;
        for (size_t i = 0; i < d; ++i) {
          mean += x[r * stride + i] / static_cast<double>(dim);
          largest = std::max(largest, std::fabs(static_cast<double>(x[r * stride + i])));
        }
        for (size_t i = 0; i < d; ++i)
          variance += std::pow(x[r * stride + i] - mean, 2) / static_cast<double>(dim);
        const double scale = 1 / std::sqrt(variance + static_cast<double>(kEps));
        // The mean's error (a lane adds dim / 16 terms at least; at most dim roundings of what may be as
        // large as dim x, divided by dim) moves every element; the scale's is relative.
        const double moved = static_cast<double>(dim) / 8 * kUlp * largest + 2 * kUlp * largest;
        const double relative = (static_cast<double>(dim) + 8) * kUlp / 2;
        for (size_t i = 0; i < d; ++i) {
          const double unit = (x[r * stride + i] - mean) * scale, exact = unit * weight[i] + bias[i];
          const double error = (moved * scale + std::fabs(unit) * relative) * std::fabs(weight[i]) +
                               std::fabs(exact) * kUlp + std::fabs(unit * weight[i]) * kUlp;
          ASSERT_NEAR(y[r * stride + i], exact, error) << dim << " " << rows;
          ASSERT_EQ(in_place[r * stride + i], y[r * stride + i]);
        }
        for (size_t i = d; i < stride; ++i)
          ASSERT_EQ(y[r * stride + i], kPoison);
      }
    }
}

TEST_P(OpsTest, AddRows) {
  for (int64_t dim : kDims)
    for (int64_t rows : kRows)
      for (float scale : {1.0f, 0.22f}) {
        const auto d = static_cast<size_t>(dim), stride = d + kGap;
        Floats x = random_floats(rows * static_cast<int64_t>(stride), 1);
        const Floats before = x, y = random_floats(rows * dim, 2);
        add_rows(x.data(), static_cast<int64_t>(stride), y.data(), dim, scale, rows, dim, pool_);
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t r = i / stride, c = i % stride;
          if (c >= d) {
            ASSERT_EQ(x[i], before[i]);
          } else if (scale == 1.0f) {
            ASSERT_EQ(x[i], before[i] + y[r * d + c]);
          } else {
            const double added = static_cast<double>(scale) * y[r * d + c], exact = before[i] + added;
            ASSERT_NEAR(x[i], exact, (std::fabs(added) + std::fabs(exact)) * kUlp / 2 * 1.01);
          }
        }
      }
}

TEST_P(OpsTest, ScaleAndSoftcapRows) {
  constexpr float kCap = 30.0f;
  for (int64_t dim : kDims)
    for (int64_t rows : kRows) {
      const auto d = static_cast<size_t>(dim), stride = d + kGap;
      const auto s = static_cast<int64_t>(stride);
      Floats scaled = random_floats(rows * s, 1, 40.0f);
      scaled[0] = 1e30f;  // e^2x would overflow
      Floats capped = scaled;
      const Floats before = scaled;
      scale_rows(scaled.data(), s, 0.37f, rows, dim, pool_);
      softcap_rows(capped.data(), s, kCap, rows, dim, pool_);
      for (size_t i = 0; i < scaled.size(); ++i) {
        const bool inside = i % stride < d;
        ASSERT_EQ(scaled[i], inside ? before[i] * 0.37f : before[i]);
        const double exact =
            inside ? kCap * std::tanh(static_cast<double>(before[i]) / kCap) : static_cast<double>(before[i]);
        ASSERT_NEAR(capped[i], exact, std::fabs(exact) * 5 * kUlp) << before[i];
      }
    }
}

double exact_activation(Activation f, double z) {
  switch (f) {
    case Activation::silu: return z / (1 + std::exp(-z));
    case Activation::gelu: return z / 2 * std::erfc(-z / std::sqrt(2.0));
    case Activation::gelu_tanh:
      // (1 + tanh u) / 2 = 1 / (1 + e^-2u), which keeps its digits for u << 0.
      return z / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    case Activation::relu: return std::max(z, 0.0);
  }
  return NAN;
}

constexpr Activation kAllActivations[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                          Activation::relu};

/// What the result may be off by, relative: exp within 2 ulp and up to 8 roundings, and the rounding of exp's
/// argument, which is relative to the argument (z^2 / 2 for gelu, 0.08 z^3 for gelu_tanh, where e^-u stays
/// above the subnormals).
double activation_error(Activation f, double z) {
  const double argument = f == Activation::gelu        ? z * z / 2
                          : f == Activation::gelu_tanh ? std::fabs(2 * z + 0.08 * z * z * z)
                                                       : 0;
  return (10 + 2 * std::min(argument, 90.0)) * kUlp;
}

TEST_P(OpsTest, Activations) {
  for (const Activation f : kAllActivations)
    for (int64_t dim : kDims)
      for (int64_t rows : kRows) {
        const auto d = static_cast<size_t>(dim),
                   stride = 2 * d;  // gate and up side by side, as they are fused
        Floats in = random_floats(rows * 2 * dim, 1, dim % 2 ? 30.0f : 2.0f);
        Floats product(static_cast<size_t>(rows) * d + 1, kPoison), alone = product;
        in[0] = -0.0f;
        activate_mul(f, in.data(), in.data() + d, 2 * dim, product.data(), dim, rows, dim, pool_);
        activate(f, in.data(), 2 * dim, alone.data(), dim, rows, dim, pool_);
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
          for (size_t i = 0; i < d; ++i) {
            const double z = in[r * stride + i], up = in[r * stride + d + i];
            const double exact = exact_activation(f, z), relative = activation_error(f, z);
            // Results near the subnormals keep only absolute accuracy.
            ASSERT_NEAR(alone[r * d + i], exact, std::fabs(exact) * relative + 1e-36) << z;
            ASSERT_NEAR(product[r * d + i], exact * up, std::fabs(exact * up) * (relative + kUlp) + 1e-35)
                << z << " " << up;
          }
        EXPECT_EQ(product.back(), kPoison);
        EXPECT_EQ(alone.back(), kPoison);
      }
}

TEST_P(OpsTest, GeluOverItsWholeRange) {
  Floats z;
  for (int i = -20000; i <= 20000; ++i)
    z.push_back(static_cast<float>(i) / 1000);
  const auto count = static_cast<int64_t>(z.size());
  for (const Activation f : {Activation::gelu, Activation::gelu_tanh}) {
    Floats y(z.size(), kPoison);
    activate(f, z.data(), count, y.data(), count, 1, count, pool_);
    for (size_t i = 0; i < z.size(); ++i) {
      const double exact = exact_activation(f, z[i]);
      ASSERT_NEAR(y[i], exact, std::fabs(exact) * activation_error(f, z[i]) + 1e-36) << z[i];
    }
  }
}

TEST_P(OpsTest, ActivationsOfExtremeValues) {
  const Floats gate = {1e30f, -1e30f, 200.0f, -200.0f, INFINITY, NAN, 0.0f};
  const Floats up(gate.size(), 2.0f);
  for (const Activation f : kAllActivations) {
    Floats out(gate.size());
    activate_mul(f, gate.data(), up.data(), 7, out.data(), 7, 1, 7, pool_);
    EXPECT_EQ(out[0], 2e30f);
    EXPECT_EQ(out[1], 0.0f);
    EXPECT_EQ(out[2], 400.0f);
    EXPECT_EQ(out[3], 0.0f);
    EXPECT_EQ(out[4], INFINITY);
    EXPECT_TRUE(std::isnan(out[5]));
    EXPECT_EQ(out[6], 0.0f);
  }
}

TEST_P(OpsTest, Rope) {
  constexpr int kMaxPosition = 50;
  for (bool interleaved : {false, true})
    for (int heads : {1, 3})
      for (int rotary_dim : {2, 6, 32, 64, 100})
        for (int extra : {0, 4})  // head elements that are not rotated
          for (size_t rows : {1, 4, 300}) {
            const int head_dim = rotary_dim + extra, half = rotary_dim / 2;
            const auto h = static_cast<size_t>(half), stride = static_cast<size_t>(heads * head_dim) + kGap;
            Floats x = random_floats(static_cast<int64_t>(rows * stride), 1);
            const Floats before = x, cos = random_floats(kMaxPosition * half, 2),
                         sin = random_floats(kMaxPosition * half, 3);
            std::vector<int32_t> positions(rows);
            for (size_t r = 0; r < rows; ++r)
              positions[r] = static_cast<int32_t>((r * 7 + 3) % kMaxPosition);
            (interleaved ? rope_interleaved : rope_neox)(x.data(), static_cast<int64_t>(stride), heads,
                                                         head_dim, rotary_dim, positions, cos.data(),
                                                         sin.data(), pool_);
            for (size_t i = 0; i < x.size(); ++i) {
              const size_t r = i / stride, c = i % stride, t = c % static_cast<size_t>(head_dim);
              if (c >= stride - kGap || t >= 2 * h) {
                ASSERT_EQ(x[i], before[i]) << "not to be rotated";
                continue;
              }
              const bool low = interleaved ? t % 2 == 0 : t < h;
              const size_t pair = interleaved ? t / 2 : t % h, apart = interleaved ? 1 : h;
              const size_t table = static_cast<size_t>(positions[r]) * h + pair;
              const double a = before[low ? i : i - apart], b = before[low ? i + apart : i];
              const double ac = a * cos[table], bs = b * sin[table], bc = b * cos[table], as = a * sin[table];
              const double magnitude = low ? std::fabs(ac) + std::fabs(bs) : std::fabs(bc) + std::fabs(as);
              ASSERT_NEAR(x[i], low ? ac - bs : bc + as, magnitude * kUlp) << i;
            }
          }
}

TEST_P(OpsTest, RowsRotateByTheirOwnRowsOfTables) {
  constexpr int kHeads = 3, kHeadDim = 20, kRotaryDim = 12;
  constexpr size_t kMany = 300;
  const Floats x = random_floats(kMany * kHeads * kHeadDim, 1), cos = random_floats(kMany * 6, 2),
               sin = random_floats(kMany * 6, 3);
  std::vector<int32_t> own(kMany);
  for (size_t r = 0; r < kMany; ++r)
    own[r] = static_cast<int32_t>(r);
  for (const bool interleaved : {false, true}) {
    Floats expected = x, got = x;
    (interleaved ? rope_interleaved : rope_neox)(expected.data(), kHeads * kHeadDim, kHeads, kHeadDim,
                                                 kRotaryDim, own, cos.data(), sin.data(), pool_);
    rotate_rows(interleaved, got.data(), kHeads * kHeadDim, kHeads, kHeadDim, kRotaryDim, kMany, cos.data(),
                sin.data(), pool_);
    EXPECT_EQ(got, expected);
    EXPECT_NE(got, x);
  }
}

// Rows shared between threads, in any company, give the bits of one row alone.
TEST_P(OpsTest, ARowDoesNotDependOnItsCompanyOrThreads) {
  constexpr int64_t kMany = 120, kDim = 1003;
  constexpr auto kD = static_cast<size_t>(kDim);
  ThreadPool one(1);
  const Floats x = random_floats(kMany * kDim, 1), other = random_floats(kMany * kDim, 2),
               w = random_floats(kDim, 3);
  const Floats cos = random_floats(kMany * 500, 4), sin = random_floats(kMany * 500, 5);
  std::vector<int32_t> positions(kMany);
  for (size_t r = 0; r < positions.size(); ++r)
    positions[r] = static_cast<int32_t>(r);
  const auto all = [&](int64_t first, int64_t rows, ThreadPool& pool, Floats* out) {
    const float *a = x.data() + first * kDim, *b = other.data() + first * kDim;
    const auto at = static_cast<size_t>(first) * kD;
    rms_norm(a, kDim, w.data(), 1e-6f, out[0].data() + at, kDim, rows, kDim, pool);
    activate_mul(Activation::silu, a, b, kDim, out[1].data() + at, kDim, rows, kDim, pool);
    std::copy(a, a + rows * kDim, out[2].data() + at);
    add_rows(out[2].data() + at, kDim, b, kDim, 0.3f, rows, kDim, pool);
    std::copy(a, a + rows * kDim, out[3].data() + at);
    rope_neox(out[3].data() + at, kDim, 1, 1003, 1000,
              std::span(positions).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), cos.data(),
              sin.data(), pool);
    layer_norm(a, kDim, w.data(), w.data(), 1e-6f, out[4].data() + at, kDim, rows, kDim, pool);
    activate(Activation::gelu, a, kDim, out[5].data() + at, kDim, rows, kDim, pool);
    softcap_rows(out[5].data() + at, kDim, 2.0f, rows, kDim, pool);
  };
  const std::vector<Floats> empty(6, Floats(kMany * kDim));
  std::vector<Floats> alone = empty;
  for (int64_t r = 0; r < kMany; ++r)
    all(r, 1, one, alone.data());
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    std::vector<Floats> together = empty;
    all(0, kMany, pool, together.data());
    ASSERT_EQ(together, alone) << threads;
  }
}

TEST_P(OpsTest, LogSumExp) {
  for (int64_t n : {1, 2, 15, 16, 17, 1000, 1024, 1025, 151936})
    for (float scale : {0.01f, 1.0f, 30.0f, 1000.0f}) {
      Floats x = random_floats(n, 1, scale);
      if (n > 10) x[3] = x[7] = -INFINITY;  // masked
      double top = -INFINITY, sum = 0;
      for (float v : x)
        top = std::max(top, static_cast<double>(v));
      for (float v : x)
        sum += std::exp(v - top);
      // The sum within 2 ulp of exp and 128 roundings (a lane adds 1024 / 8 terms of a block in fp32), and
      // the rounding of x - max, which is at most max's own scale times 2^-24 for terms that matter.
      const double exact = top + std::log(sum);
      ASSERT_NEAR(log_sum_exp(x.data(), n), exact, 131 * kUlp + 25 * kUlp) << n << " " << scale;
    }
}

TEST_P(OpsTest, LogSumExpOfSpecialValues) {
  EXPECT_EQ(log_sum_exp(nullptr, 0), -INFINITY);
  for (size_t n : {size_t{1}, size_t{20}, size_t{3000}}) {
    Floats x(n, -INFINITY);
    EXPECT_EQ(log_sum_exp(x.data(), static_cast<int64_t>(n)), -INFINITY);
    x[n / 2] = 5.0f;
    EXPECT_EQ(log_sum_exp(x.data(), static_cast<int64_t>(n)), 5.0);
    x[n / 2] = INFINITY;
    EXPECT_EQ(log_sum_exp(x.data(), static_cast<int64_t>(n)), INFINITY);
    for (float company : {-INFINITY, 5.0f, INFINITY}) {
      x.assign(n, company);
      x[n - 1] = NAN;
      EXPECT_TRUE(std::isnan(log_sum_exp(x.data(), static_cast<int64_t>(n)))) << company;
    }
  }
}

TEST_P(OpsTest, ArgmaxIsTheLowestIndexOfTheLargest) {
  for (int64_t n : {1, 2, 7, 8, 16, 17, 64, 65, 1023, 1024, 1025, 5000}) {
    Floats x = random_floats(n, static_cast<uint32_t>(n));
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      Floats y = x;
      y[static_cast<size_t>(at)] = 100.0f;
      ASSERT_EQ(argmax(y.data(), n), at);
      y[static_cast<size_t>(n - 1)] = 100.0f;  // a tie further on
      ASSERT_EQ(argmax(y.data(), n), at);
      y[0] = NAN;
      ASSERT_EQ(argmax(y.data(), n), at > 0 ? at : n > 1 ? n - 1 : -1);
    }
    Floats flat(static_cast<size_t>(n), -INFINITY);
    EXPECT_EQ(argmax(flat.data(), n), 0);
    flat[0] = NAN;
    EXPECT_EQ(argmax(flat.data(), n), n > 1 ? 1 : -1);
    flat.assign(flat.size(), NAN);
    EXPECT_EQ(argmax(flat.data(), n), -1);
  }
  EXPECT_EQ(argmax(nullptr, 0), -1);
  const Floats zeros = {-1.0f, -0.0f, 0.0f, 0.0f};
  EXPECT_EQ(argmax(zeros.data(), 4), 1);
  const Floats infinite = {1.0f, INFINITY, INFINITY};
  EXPECT_EQ(argmax(infinite.data(), 3), 1);
}

}  // namespace
}  // namespace fovea
