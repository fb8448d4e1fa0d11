// The indexer of sparse attention against its definition in fp64, and the choice among equal scores.
#include "kernels/cpu/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/float8.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<int32_t> choose(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> out(static_cast<size_t>(k), 77);
  choose_largest(scores.data(), static_cast<int64_t>(scores.size()), k, out.data());
  return out;
}

/// By sorting.
std::vector<int32_t> sorted_choice(const std::vector<float>& scores, size_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int32_t i) {
    const float x = scores[static_cast<size_t>(i)];
    return std::isnan(x) ? std::pair(1, 0.0f) : std::pair(0, x);
  };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  order.resize(std::min(k, order.size()));
  std::ranges::sort(order);
  order.resize(k, -1);
  return order;
}

TEST(ChooseLargest, AgreesWithSorting) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> scores(1 + random() % 300);
    const int levels = 1 + static_cast<int>(random() % 40);
    for (float& x : scores) {
      x = round % 2 == 0 ? normal(random) : std::round(normal(random) * static_cast<float>(levels)) + 0.0f;
      if (round % 5 == 0 && random() % 20 == 0) x = std::nanf("");
      if (round % 7 == 0 && random() % 20 == 0) x = random() % 2 == 0 ? kInf : -kInf;
      if (round % 3 == 0 && random() % 9 == 0) x = std::nextafter(1.0f, static_cast<float>(random() % 3));
    }
    const size_t k = 1 + random() % 200;
    EXPECT_EQ(choose(scores, static_cast<int64_t>(k)), sorted_choice(scores, k)) << round;
  }
}

TEST(ChooseLargest, OfEqualScoresTheLowerPositions) {
  EXPECT_EQ(choose(std::vector<float>(9, 0.25f), 4), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(choose({1, 2, 1, 3, 1}, 3), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(choose({1, 2}, 4), (std::vector<int32_t>{0, 1, -1, -1}));
  EXPECT_EQ(choose({}, 2), (std::vector<int32_t>{-1, -1}));
}

TEST(IndexCodes, HadamardIsItsDefinition) {
  for (const int n : {1, 2, 16, 128}) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x)
      v = normal(random);
    std::vector<float> y = x;
    hadamard(y.data(), n);
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int j = 0; j < n; ++j)
        sum += std::popcount(static_cast<unsigned>(i & j)) % 2 == 0
                   ? static_cast<double>(x[static_cast<size_t>(j)])
                   : -static_cast<double>(x[static_cast<size_t>(j)]);
      EXPECT_NEAR(y[static_cast<size_t>(i)], sum / std::sqrt(n), 1e-5) << n << " " << i;
    }
  }
}

TEST(IndexCodes, ScalesArePowersOfTwo) {
  struct Case {
    float most, scale;
  };
  for (const Case c : {Case{448, 1}, Case{449, 2}, Case{224, 0.5f}, Case{225, 1}, Case{0, 0x1p-22f},
                       Case{1e-30f, 0x1p-22f}, Case{1e30f, 0x1p91f}}) {
    float x[] = {c.most, -c.most / 3, c.most / 7};
    const float given[] = {x[0], x[1], x[2]};
    const float scale = round_to_index_codes(x, 3);
    EXPECT_EQ(scale, c.scale) << c.most;
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(x[i], e4m3_to_float(float_to_e4m3(given[i] / scale)));
  }
}

/// Two sequences in shuffled pages, with NaN in all slots that hold none of their keys.
struct Fixture {
  static constexpr int kHeads = 19, kDim = 48, kPage = 5;
  std::vector<int32_t> q_offsets, kv_lens, table;
  std::vector<float> q, weights, keys;  // keys [pages, kPage, kDim], as they read
  std::vector<std::byte> stored;
  std::vector<float> scales;
  IndexStep step;

  Fixture(KvCacheDType dtype, std::vector<std::pair<int, int>> lengths, int topk) : q_offsets{0} {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    size_t most = 0, pages = 1;
    for (const auto& [n_q, n_k] : lengths) {
      q_offsets.push_back(q_offsets.back() + n_q);
      kv_lens.push_back(n_k);
      most = std::max(most, static_cast<size_t>(n_k / kPage + 1));
      pages += static_cast<size_t>(n_k / kPage + 1);
    }
    std::vector<int32_t> free(pages);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    table.assign(lengths.size() * most, -1);
    q.resize(static_cast<size_t>(q_offsets.back()) * kHeads * kDim);
    weights.resize(static_cast<size_t>(q_offsets.back()) * kHeads);
    for (std::vector<float>* values : {&q, &weights})
      for (float& x : *values)
        x = normal(random);
    keys.assign(pages * kPage * kDim, std::nanf(""));
    scales.assign(pages * kPage, std::nanf(""));
    stored.resize(keys.size() * size_of(dtype), std::byte{0x7f});
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int j = 0; j < kv_lens[b]; ++j) {
        int32_t& page = table[b * most + static_cast<size_t>(j / kPage)];
        if (page < 0) {
          page = free.back();
          free.pop_back();
        }
        const size_t slot = static_cast<size_t>(page) * kPage + static_cast<size_t>(j % kPage);
        scales[slot] = dtype == KvCacheDType::fp8_e4m3 ? std::ldexp(1.0f, static_cast<int>(random() % 3)) : 1;
        for (size_t c = slot * kDim; c < (slot + 1) * kDim; ++c)
          put(dtype, c, normal(random), scales[slot]);
      }
    step.q = q.data();
    step.weights = weights.data();
    step.q_stride = int64_t{kHeads} * kDim;
    step.weight_stride = step.heads = kHeads;
    step.dim = kDim;
    step.topk = topk;
    step.keys.k = stored.data();
    step.keys.dtype = dtype;
    step.keys.page_size = kPage;
    step.keys.k_slot_stride = kDim;
    step.keys.k_page_stride = int64_t{kDim} * kPage;
    if (dtype == KvCacheDType::fp8_e4m3) {
      step.keys.k_scales = scales.data();
      step.keys.scale_page_stride = kPage;
      step.keys.scale_slot_stride = 1;
    }
    step.batch.q_offsets = q_offsets;
    step.batch.kv_lens = kv_lens;
    step.batch.page_table = table;
    step.batch.page_table_stride = static_cast<int64_t>(most);
  }

  void put(KvCacheDType dtype, size_t at, float value, float scale) {
    if (dtype == KvCacheDType::float32) {
      reinterpret_cast<float*>(stored.data())[at] = keys[at] = value;
    } else if (dtype == KvCacheDType::bfloat16) {
      const uint16_t bits = float_to_bf16(value);
      reinterpret_cast<uint16_t*>(stored.data())[at] = bits;
      keys[at] = bf16_to_float(bits);
    } else {
      const uint8_t code = float_to_e4m3(value);
      stored[at] = std::byte{code};
      keys[at] = e4m3_to_float(code) * scale;
    }
  }

  std::vector<int32_t> run(int threads) {
    std::vector<int32_t> chosen(static_cast<size_t>(q_offsets.back() * step.topk), 77);
    step.chosen = chosen.data();
    ThreadPool pool(threads);
    choose_keys(step, pool);
    return chosen;
  }

  double score(int b, int64_t row, int64_t j) const {
    const int64_t page = table[static_cast<size_t>(b * step.batch.page_table_stride + j / kPage)];
    const float* key = keys.data() + (page * kPage + j % kPage) * kDim;
    double sum = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      double dot = 0;
      for (int64_t c = 0; c < kDim; ++c)
        dot += static_cast<double>(q[static_cast<size_t>((row * kHeads + h) * kDim + c)]) *
               static_cast<double>(key[c]);
      sum += std::max(0.0, dot) * static_cast<double>(weights[static_cast<size_t>(row * kHeads + h)]);
    }
    return sum;
  }
};

class Indexer : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > detect_isa()) GTEST_SKIP() << "this CPU lacks it";
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(detect_isa()); }
};

TEST_P(Indexer, ChoosesTheKeysOfTheDefinition) {
  for (const KvCacheDType dtype : {KvCacheDType::float32, KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3})
    for (const int topk : {1, 20, 64}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(topk));
      Fixture f(dtype, {{3, 150}, {1, 9}, {21, 21}, {0, 4}, {70, 90}, {1, 131}}, topk);
      const std::vector<int32_t> chosen = f.run(3);
      for (int b = 0; b < 6; ++b)
        for (int64_t row = f.q_offsets[static_cast<size_t>(b)]; row < f.q_offsets[static_cast<size_t>(b) + 1];
             ++row) {
          const int64_t n =
              f.kv_lens[static_cast<size_t>(b)] - f.q_offsets[static_cast<size_t>(b) + 1] + row + 1;
          std::vector<double> scores;
          for (int64_t j = 0; j < n; ++j)
            scores.push_back(f.score(b, row, j));
          std::vector<double> best = scores;
          std::ranges::sort(best, std::greater<>());
          const int32_t* list = chosen.data() + row * topk;
          for (int i = 0; i < topk; ++i) {
            if (i >= n) {
              ASSERT_EQ(list[i], -1);
              continue;
            }
            ASSERT_TRUE(list[i] >= 0 && list[i] < n && (i == 0 || list[i] > list[i - 1]));
            ASSERT_GE(scores[static_cast<size_t>(list[i])],
                      best[static_cast<size_t>(std::min<int64_t>(n, topk) - 1)] - 1e-3)
                << b << " row " << row;
          }
        }
    }
}

// The choice among keys that are all the same is by position, so that it shows scores that differ in a bit.
TEST_P(Indexer, EqualKeysHaveEqualScores) {
  Fixture f(KvCacheDType::float32, {{2, 700}, {9, 300}}, 33);
  for (size_t i = 0; i < f.keys.size(); i += Fixture::kDim)
    if (!std::isnan(f.keys[i]))
      std::copy_n(f.q.begin(), Fixture::kDim, reinterpret_cast<float*>(f.stored.data()) + i);
  std::vector<int32_t> want(33);
  std::iota(want.begin(), want.end(), 0);
  const std::vector<int32_t> chosen = f.run(2);
  for (auto row = chosen.begin(); row != chosen.end(); row += 33)
    EXPECT_EQ(std::vector<int32_t>(row, row + 33), want);
}

INSTANTIATE_TEST_SUITE_P(, Indexer, testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& given) { return std::string(to_string(given.param)); });

}  // namespace
}  // namespace fovea
