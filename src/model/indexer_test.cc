// The indexer's operation on the CPU: what it writes to the pages of index keys, byte for byte, and which
// keys it chooses, against the definition in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "base/float8.h"
#include "base/thread_pool.h"
#include "kernels/cpu/indexer.h"
#include "kv/kv_cache.h"
#include "model/config.h"
#include "ops/cpu_ops.h"
#include "ops/op_queue.h"

namespace fovea {
namespace {

constexpr int kRows = 40, kHeads = 6, kDim = 32, kRope = 8, kPage = 8, kTopk = 9;
constexpr float kScale = 0.3f;

std::vector<float> normal_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out)
    x = normal(random);
  return out;
}

/// One sequence of kRows rows in pages in descending order, in a cache of one layer.
struct Step {
  std::vector<float> q = normal_values(kRows * kHeads * kDim, 1), key = normal_values(kRows * kDim, 2),
                     weights = normal_values(kRows * kHeads, 3), gain = normal_values(kDim, 4),
                     bias = normal_values(kDim, 5), cos, sin;
  std::vector<int64_t> slots;
  std::vector<int32_t> pages, q_offsets = {0, kRows}, lens = {kRows};
  std::vector<int32_t> chosen = std::vector<int32_t>(kRows * kTopk, 77);
  bool interleaved = false;
  KvCache cache;

  explicit Step(KvCacheDType dtype) : cache(make_cache(dtype)) {
    for (int t = 0; t < kRows; ++t)
      for (int c = 0; c < kRope / 2; ++c) {
        cos.push_back(std::cos(static_cast<float>(t) / static_cast<float>(1 + 3 * c)));
        sin.push_back(std::sin(static_cast<float>(t) / static_cast<float>(1 + 3 * c)));
      }
    for (int p = 0; p < kRows / kPage; ++p)
      pages.push_back(kRows / kPage - p);
    for (int t = 0; t < kRows; ++t)
      slots.push_back(int64_t{pages[static_cast<size_t>(t / kPage)]} * kPage + t % kPage);
  }

  static KvCache make_cache(KvCacheDType dtype) {
    KvGroup group;
    group.kind = KvKind::latent;
    group.layers = {0, 1};
    group.num_kv_heads = 1;
    group.head_dim = group.v_head_dim = 16;
    group.page_size = kPage;
    group.index_layers = {1};
    group.index_dim = kDim;
    group.index_dtype = dtype;
    return *KvCache::create({group}, {kRows / kPage + 1});
  }

  void run() {
    ThreadPool pool(2);
    Stream stream(pool);
    BatchMeta batch;
    batch.q_offsets = q_offsets;
    batch.kv_lens = lens;
    batch.page_table = pages;
    batch.page_table_stride = static_cast<int64_t>(pages.size());
    const auto tensor = [](auto& values, std::initializer_list<int64_t> shape, ElementType type) {
      return Tensor::dense(values.data(), cpu_device(), type, shape);
    };
    IndexInput in;
    in.q = tensor(q, {kRows, kHeads, kDim}, ElementType::f32);
    in.key = tensor(key, {kRows, kDim}, ElementType::f32);
    in.weights = tensor(weights, {kRows, kHeads}, ElementType::f32);
    in.norm = {tensor(gain, {kDim}, ElementType::f32), tensor(bias, {kDim}, ElementType::f32), 1e-6f};
    in.rope = {tensor(cos, {kRows, kRope / 2}, ElementType::f32),
               tensor(sin, {kRows, kRope / 2}, ElementType::f32), interleaved};
    in.scale = kScale;
    in.slots = tensor(slots, {kRows}, ElementType::i64);
    in.keys = cache.index_keys(1);
    in.batch = &batch;
    OpQueue queue(cpu_ops(), stream);
    queue.choose_keys(in, tensor(chosen, {kRows, kTopk}, ElementType::i32));
    ASSERT_TRUE(queue.status().ok()) << queue.status().error().message;
  }
};

std::vector<double> rotated(const float* x, const Step& step, int t) {
  std::vector<double> y(x, x + kDim);
  for (int c = 0; c < kRope / 2; ++c) {
    const auto a = static_cast<size_t>(step.interleaved ? 2 * c : c);
    const size_t b = step.interleaved ? a + 1 : a + kRope / 2;
    const double cos = step.cos[static_cast<size_t>(t * kRope / 2 + c)], low = y[a], high = y[b];
    const double sin = step.sin[static_cast<size_t>(t * kRope / 2 + c)];
    y[a] = low * cos - high * sin;
    y[b] = high * cos + low * sin;
  }
  return y;
}

/// Key `t` as attention's indexer sees it: normed, then rotated.
std::vector<double> exact_key(const Step& step, int t) {
  const float* x = step.key.data() + t * kDim;
  const double mean = std::accumulate(x, x + kDim, 0.0) / kDim;
  double square = 0;
  for (int c = 0; c < kDim; ++c)
    square += (x[c] - mean) * (x[c] - mean);
  std::vector<float> normed;
  for (int c = 0; c < kDim; ++c)
    normed.push_back(static_cast<float>((x[c] - mean) / std::sqrt(square / kDim + 1e-6)) *
                         step.gain[static_cast<size_t>(c)] +
                     step.bias[static_cast<size_t>(c)]);
  return rotated(normed.data(), step, t);
}

/// Scores [kRows][t + 1].
std::vector<std::vector<double>> exact_scores(const Step& step) {
  std::vector<std::vector<double>> keys, scores;
  for (int t = 0; t < kRows; ++t)
    keys.push_back(exact_key(step, t));
  for (int t = 0; t < kRows; ++t) {
    scores.emplace_back();
    for (int j = 0; j <= t; ++j) {
      double sum = 0;
      for (int h = 0; h < kHeads; ++h) {
        const std::vector<double> q = rotated(step.q.data() + (t * kHeads + h) * kDim, step, t);
        sum +=
            kScale * static_cast<double>(step.weights[static_cast<size_t>(t * kHeads + h)]) *
            std::max(0.0, std::inner_product(q.begin(), q.end(), keys[static_cast<size_t>(j)].begin(), 0.0));
      }
      scores.back().push_back(sum);
    }
  }
  return scores;
}

/// By how much the worst chosen key is below the best one that is not, at most, over all rows.
double worst_choice(const Step& step, const std::vector<std::vector<double>>& scores) {
  double worst = 0;
  for (int t = 0; t < kRows; ++t) {
    const int32_t* list = step.chosen.data() + t * kTopk;
    std::vector<double> left = scores[static_cast<size_t>(t)];
    double least = INFINITY;
    for (int i = 0; i < kTopk; ++i) {
      EXPECT_EQ(list[i] >= 0, i <= t) << t;
      if (list[i] < 0) continue;
      least = std::min(least, left[static_cast<size_t>(list[i])]);
      left[static_cast<size_t>(list[i])] = -INFINITY;
    }
    worst = std::max(worst, *std::ranges::max_element(left) - least);
  }
  return worst;
}

TEST(CpuIndexer, ChoosesByTheDefinition) {
  for (const bool interleaved : {false, true}) {
    Step step(KvCacheDType::float32);
    step.interleaved = interleaved;
    const auto scores = exact_scores(step);
    std::vector<std::vector<double>> keys;
    for (int t = 0; t < kRows; ++t)
      keys.push_back(exact_key(step, t));
    step.run();
    EXPECT_LT(worst_choice(step, scores), 1e-4);
    const auto* stored = static_cast<const float*>(step.cache.index_keys(1).k);
    for (int t = 0; t < kRows; ++t)
      for (int c = 0; c < kDim; ++c)
        ASSERT_NEAR(stored[step.slots[static_cast<size_t>(t)] * kDim + c],
                    keys[static_cast<size_t>(t)][static_cast<size_t>(c)], 1e-5);
  }
}

TEST(CpuIndexer, PagesOfCodes) {
  Step step(KvCacheDType::fp8_e4m3);
  const auto scores = exact_scores(step);
  std::vector<std::vector<double>> keys;
  for (int t = 0; t < kRows; ++t)
    keys.push_back(exact_key(step, t));
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(step.cache.index_keys(1).k));
  constexpr int64_t kPageBytes = kPage * (kDim + 4);
  std::memset(bytes, 0x7f, kPageBytes * (kRows / kPage + 1));
  step.run();
  // Of scores with a deviation of about 1, whose products have errors of 2^-4.
  const double worst = worst_choice(step, scores);
  EXPECT_LT(worst, 0.3);
  EXPECT_GT(worst, 1e-4) << "no code was rounded";
  for (int t = 0; t < kRows; ++t) {
    const uint8_t* page = bytes + step.pages[static_cast<size_t>(t / kPage)] * kPageBytes;
    const int64_t slot = t % kPage;
    float scale = 0;
    std::memcpy(&scale, page + kPage * kDim + slot * 4, 4);
    std::vector<float> want(keys[static_cast<size_t>(t)].begin(), keys[static_cast<size_t>(t)].end());
    hadamard(want.data(), kDim);
    float most = 1e-4f;
    for (const float x : want)
      most = std::max(most, std::abs(x));
    EXPECT_TRUE(scale * 448 >= most * 0.999f && scale / 2 * 448 <= most * 1.001f) << scale << " for " << most;
    for (int64_t c = 0; c < kDim; ++c)
      ASSERT_NEAR(e4m3_to_float(page[slot * kDim + c]) * scale, want[static_cast<size_t>(c)],
                  std::abs(want[static_cast<size_t>(c)]) / 15 + scale * 0x1p-9f)
          << t << " " << c;
  }
  for (int64_t i = 0; i < kPageBytes; ++i)  // a page of no sequence
    ASSERT_EQ(bytes[i], 0x7f);
}

TEST(CpuIndexer, PaddingIsNotWritten) {
  Step step(KvCacheDType::fp8_e4m3);
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(step.cache.index_keys(1).k));
  std::memset(bytes, 0x11, kPage * (kDim + 4) * (kRows / kPage + 1));
  std::ranges::fill(step.slots, -1);
  step.lens = {0};
  step.run();
  EXPECT_TRUE(std::all_of(bytes, bytes + kPage * (kDim + 4) * (kRows / kPage + 1),
                          [](uint8_t byte) { return byte == 0x11; }));
  EXPECT_EQ(std::ranges::count(step.chosen, -1), kRows * kTopk) << "rows before the first key see none";
}

// A GPU's kernels have a size of index heads.
TEST(Indexer, AGpuRefusesOtherHeads) {
  ModelConfig c;
  c.architecture = "DeepseekV32ForCausalLM";
  c.sparse_topk = 16;
  c.indexer.heads = 64;
  c.indexer.dim = 128;
  fit_to_length(c, 17);
  EXPECT_EQ(length_refusal(c), "");
  c.indexer.heads = 65;
  EXPECT_THAT(length_refusal(c), ::testing::HasSubstr("an indexer of 65 heads of 128 elements"));
  c.indexer.heads = 4;
  c.indexer.dim = 64;
  EXPECT_THAT(length_refusal(c), ::testing::HasSubstr("--max-model-len 16"));
  fit_to_length(c, 16);  // dense
  EXPECT_EQ(length_refusal(c), "");
}

}  // namespace
}  // namespace fovea
