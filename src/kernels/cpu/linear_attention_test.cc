#include "kernels/cpu/linear_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "fovea/result.h"
#include "kernels/cpu/hstu_mask.h"
#include "kernels/reference/linear_attention.h"

namespace fovea {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A tensor [rows, heads, dim] whose elements lie apart; what lies between them is NaN.
class Rows {
 public:
  Rows(DType dtype, int64_t rows, int64_t heads, int64_t dim, uint32_t seed, float scale = 1.0f)
      : dtype_(dtype), dim_(dim), head_(dim + 3), token_(heads * (dim + 3) + 5), heads_(heads), rows_(rows) {
    bytes_.assign(static_cast<size_t>(rows * token_ + 1) * size_of(dtype), std::byte{0xff});
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dim; ++d)
          set(t, h, d, normal(random));
  }
  void poison() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff}); }
  void set(int64_t t, int64_t h, int64_t d, float x) {
    std::byte* at = bytes_.data() + (t * token_ + h * head_ + d) * static_cast<int64_t>(size_of(dtype_));
    const uint16_t half = dtype_ == DType::f16 ? float_to_fp16(x) : float_to_bf16(x);
    if (dtype_ == DType::f32)
      std::memcpy(at, &x, 4);
    else
      std::memcpy(at, &half, 2);
  }
  float get(int64_t t, int64_t h, int64_t d) const {
    const std::byte* at =
        bytes_.data() + (t * token_ + h * head_ + d) * static_cast<int64_t>(size_of(dtype_));
    float x = 0;
    uint16_t half = 0;
    std::memcpy(&x, at, dtype_ == DType::f32 ? 4 : 2);
    std::memcpy(&half, at, 2);
    return dtype_ == DType::f32 ? x : dtype_ == DType::f16 ? fp16_to_float(half) : bf16_to_float(half);
  }
  HeadRows view(int64_t first = 0) const { return {at(first), token_, head_}; }
  WrittenHeadRows written(int64_t first = 0) {
    return {bytes_.data() + first * token_ * static_cast<int64_t>(size_of(dtype_)), token_, head_};
  }
  /// Dense, in ascending order.
  Floats values() const {
    Floats out;
    for (int64_t t = 0; t < rows_; ++t)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t d = 0; d < dim_; ++d)
          out.push_back(get(t, h, d));
    return out;
  }
  /// Whether everything between the elements is still poisoned.
  bool gaps_kept() const {
    const auto is_ff = [](std::byte b) { return b == std::byte{0xff}; };
    const auto size = static_cast<int64_t>(size_of(dtype_));
    for (int64_t t = 0; t < rows_; ++t)
      for (int64_t h = 0; h < heads_; ++h) {
        const auto gap = bytes_.begin() + (t * token_ + h * head_ + dim_) * size;
        if (!std::all_of(gap, gap + 3 * size, is_ff)) return false;
      }
    return true;
  }

 private:
  const std::byte* at(int64_t t) const {
    return bytes_.data() + t * token_ * static_cast<int64_t>(size_of(dtype_));
  }
  DType dtype_;
  int64_t dim_, head_, token_, heads_, rows_;
  std::vector<std::byte> bytes_;
};

/// Half an ulp.
double rounding(DType dtype) {
  return dtype == DType::f32 ? 0 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

/// Largest difference beyond the rounding of a result, relative to the reference's root mean square; infinite
/// when one is not a number.
double difference(const Floats& got, const std::vector<double>& expected, DType dtype = DType::f32) {
  double most = 0, squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(got[i])) return kInf;
    most = std::max(most, std::abs(double{got[i]} - expected[i]) - rounding(dtype) * std::abs(expected[i]));
    squares += expected[i] * expected[i];
  }
  return most / (std::sqrt(squares / static_cast<double>(std::max<size_t>(expected.size(), 1))) + 1e-30);
}
constexpr double kTolerance = 2e-5;

struct Shape {
  Ints lengths;
  int heads = 2, k_heads = 2, dk = 16, dv = 16;
  DType dtype = DType::f32;
  bool normalize = true;

  Ints offsets() const {
    Ints out{0};
    for (const int n : lengths)
      out.push_back(out.back() + n);
    return out;
  }
};

/// A batch of the gated delta rule with all of its arrays.
struct Delta {
  explicit Delta(const Shape& s, uint32_t seed = 1)
      : shape(s),
        offsets(s.offsets()),
        q(s.dtype, offsets.back(), s.k_heads, s.dk, seed),
        k(s.dtype, offsets.back(), s.k_heads, s.dk, seed + 1),
        v(s.dtype, offsets.back(), s.heads, s.dv, seed + 2),
        out(s.dtype, offsets.back(), s.heads, s.dv, seed + 3) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    for (int i = 0; i < offsets.back() * (s.heads + 1); ++i) {
      g.push_back(-2.0f * uniform(random) * uniform(random));
      beta.push_back(uniform(random));
    }
    const size_t states = s.lengths.size() * static_cast<size_t>(s.heads * s.dk * s.dv);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < states; ++i)
      in.push_back(normal(random));
    after.assign(states, kNan);
    out.poison();
  }
  GatedDeltaRule call() {
    GatedDeltaRule c;
    c.dtype = shape.dtype;
    c.heads = shape.heads;
    c.k_heads = shape.k_heads;
    c.dk = shape.dk;
    c.dv = shape.dv;
    c.q = q.view();
    c.k = k.view();
    c.v = v.view();
    c.out = out.written();
    c.sequences = {static_cast<int>(shape.lengths.size()), offsets.back(), 0, offsets.data()};
    c.g = g.data();
    c.beta = beta.data();
    c.g_stride = c.beta_stride = shape.heads + 1;
    c.normalize_qk = shape.normalize;
    c.states.in = in.data();
    c.states.out = after.data();
    c.states.slots = static_cast<int>(shape.lengths.size());
    return c;
  }
  Shape shape;
  Ints offsets;
  Rows q, k, v, out;
  Floats g, beta, in, after;
};

LightningAttention lightning(Delta& d, const Floats& log_decay) {
  const GatedDeltaRule c = d.call();
  LightningAttention l;
  l.dtype = c.dtype;
  l.heads = c.heads;
  l.dk = c.dk;
  l.dv = c.dv;
  l.q = c.q;
  l.k = c.k;
  l.v = c.v;
  l.out = c.out;
  l.sequences = c.sequences;
  l.states = c.states;
  l.log_decay = log_decay.data();
  return l;
}

std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) list.push_back(isa);
  return list;
}

class LinearAttentionTest : public testing::TestWithParam<Isa> {
 protected:
  LinearAttentionTest() { set_isa(GetParam()); }
  ~LinearAttentionTest() override { set_isa(detect_isa()); }

  void run(Delta& d, const GatedDeltaRule& call) {
    d.out.poison();
    const Status done = gated_delta_rule_cpu(call, pool_);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  void run(Delta& d) { run(d, d.call()); }
  void expect_definition(Delta& d, const std::string& what) {
    run(d);
    const LinearReference r = reference_gated_delta(d.call());
    EXPECT_LT(difference(d.out.values(), r.out, d.shape.dtype), kTolerance) << what;
    EXPECT_LT(difference(d.after, r.states), kTolerance) << what;
    EXPECT_TRUE(d.out.gaps_kept()) << what;
  }

  ThreadPool pool_{3};
};
INSTANTIATE_TEST_SUITE_P(Isas, LinearAttentionTest, testing::ValuesIn(isas()),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST_P(LinearAttentionTest, DeltaRuleIsItsDefinition) {
  const Ints lengths = {0, 1, 63, 64, 65, 0, 130};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const auto& [heads, k_heads, dk, dv] : std::vector<std::array<int, 4>>{
             {3, 3, 16, 16}, {6, 2, 24, 40}, {2, 1, 128, 128}, {1, 1, 7, 5}, {5, 1, 64, 33}}) {
      Delta d({lengths, heads, k_heads, dk, dv, dtype, true});
      expect_definition(
          d, std::to_string(heads) + " heads of " + std::to_string(dk) + ", " + std::to_string(dv));
    }
}

TEST_P(LinearAttentionTest, GatesAtTheirEnds) {
  for (const float gate : {0.0f, -kInf, -1e-4f, -90.0f})
    for (const float beta : {0.0f, 1.0f}) {
      Delta d({{5, 70}, 2, 1, 16, 20, DType::f32, true});
      std::fill(d.g.begin(), d.g.end(), gate);
      std::fill(d.beta.begin(), d.beta.end(), beta);
      expect_definition(d, std::to_string(gate) + ", " + std::to_string(beta));
      if (beta == 0.0f && gate == 0.0f) {
        EXPECT_EQ(d.after, d.in);
      }
      if (beta == 0.0f && gate == -kInf) {
        EXPECT_EQ(d.after, Floats(d.in.size(), 0.0f));
      }
    }
  Delta absent({{5, 70}, 2, 1, 16, 20, DType::f32, true}), one = absent;  // null: decay 1, beta 1
  std::fill(one.g.begin(), one.g.end(), 0.0f);
  std::fill(one.beta.begin(), one.beta.end(), 1.0f);
  GatedDeltaRule call = absent.call();
  call.g = call.beta = nullptr;
  run(absent, call);
  run(one);
  EXPECT_EQ(absent.out.values(), one.out.values());
  EXPECT_EQ(absent.after, one.after);
}

// The comparison sees an error of one part: each is a plausible defect of a kernel.
TEST_P(LinearAttentionTest, PlantedDefectsAreSeen) {
  const Shape shape{{70, 3}, 4, 2, 16, 16, DType::bf16, true};
  const auto seen = [&](const std::function<void(Delta&, GatedDeltaRule&)>& plant) {
    Delta d(shape);
    const LinearReference r = reference_gated_delta(d.call());
    GatedDeltaRule call = d.call();
    plant(d, call);
    run(d, call);
    return difference(d.out.values(), r.out, d.shape.dtype) > kTolerance ||
           difference(d.after, r.states) > kTolerance;
  };
  EXPECT_FALSE(seen([](Delta&, GatedDeltaRule&) {}));
  EXPECT_TRUE(seen([](Delta&, GatedDeltaRule& c) { c.g += 1; })) << "another head's gate";
  EXPECT_TRUE(seen([](Delta& d, GatedDeltaRule&) { d.g[0] -= 0.5f; })) << "one gate";
  EXPECT_TRUE(seen([](Delta& d, GatedDeltaRule&) { d.beta[69 * 5] *= 0.99f; })) << "the last beta";
  EXPECT_TRUE(seen([](Delta&, GatedDeltaRule& c) { c.normalize_qk = false; })) << "q and k as they are";
  EXPECT_TRUE(seen([](Delta&, GatedDeltaRule& c) { c.k.head_stride = 0; })) << "the first head of k for all";
  EXPECT_TRUE(seen([](Delta&, GatedDeltaRule& c) { c.states.in = nullptr; })) << "no state";
  EXPECT_TRUE(seen([](Delta&, GatedDeltaRule& c) { c.scale = 0.9f; })) << "the scale";
}

TEST_P(LinearAttentionTest, BitsDependOnNothingElse) {
  const Shape shape{{90, 1, 64}, 4, 2, 24, 72, DType::bf16, true};
  Delta together(shape);
  run(together);
  {
    Delta other(shape);
    ThreadPool one(1);
    ASSERT_TRUE(gated_delta_rule_cpu(other.call(), one).ok());
    EXPECT_EQ(other.out.values(), together.out.values());
    EXPECT_EQ(other.after, together.after);
  }
  // Each sequence alone, cut into calls of 1, 2, 4, ... rows, each of which continues the state in place.
  for (int b = 0; b < 3; ++b) {
    Delta d(shape);
    const size_t state = d.in.size() / 3;
    Floats s(d.in.begin() + b * static_cast<int64_t>(state),
             d.in.begin() + (b + 1) * static_cast<int64_t>(state));
    int row = d.offsets[static_cast<size_t>(b)];
    for (int n = 1; row < d.offsets[static_cast<size_t>(b) + 1]; row += n, n *= 2) {
      n = std::min(n, d.offsets[static_cast<size_t>(b) + 1] - row);
      const Ints offsets = {0, n};
      GatedDeltaRule c = d.call();
      c.q = d.q.view(row);
      c.k = d.k.view(row);
      c.v = d.v.view(row);
      c.out = d.out.written(row);
      c.g += row * c.g_stride;
      c.beta += row * c.beta_stride;
      c.sequences = {1, n, 0, offsets.data()};
      c.states.in = c.states.out = s.data();
      c.form = n % 2 != 0 ? LinearForm::recurrent : LinearForm::chunked;
      ASSERT_TRUE(gated_delta_rule_cpu(c, pool_).ok());
    }
    for (int t = d.offsets[static_cast<size_t>(b)]; t < d.offsets[static_cast<size_t>(b) + 1]; ++t)
      for (int h = 0; h < 4; ++h)
        for (int j = 0; j < 72; ++j)
          ASSERT_EQ(d.out.get(t, h, j), together.out.get(t, h, j)) << b << ", row " << t;
    EXPECT_TRUE(std::equal(s.begin(), s.end(), together.after.begin() + b * static_cast<int64_t>(state)));
  }
}

TEST_P(LinearAttentionTest, SlotsOfAPool) {
  Delta d({{3, 0, 65}, 2, 2, 16, 16, DType::f32, true});
  const size_t state = 2 * 16 * 16;
  Floats pool(5 * state, kNan);  // slot 3: sequence 0's, slot 1: sequence 1's
  std::copy_n(d.in.begin(), state, pool.begin() + 3 * state);
  std::copy_n(d.in.begin() + state, state, pool.begin() + state);
  const Ints in = {3, 1, -1}, out = {3, 4, 0};
  GatedDeltaRule call = d.call();
  call.states = {pool.data(), pool.data(), in.data(), out.data(), 5};
  std::fill_n(d.in.begin() + 2 * state, state, 0.0f);  // sequence 2 begins with zeros
  const LinearReference r = reference_gated_delta(d.call());
  run(d, call);
  EXPECT_LT(difference(d.out.values(), r.out), kTolerance);
  for (const auto& [slot, b] : {std::pair<size_t, size_t>{3, 0}, {4, 1}, {0, 2}}) {
    const Floats got(pool.begin() + static_cast<int64_t>(slot * state),
                     pool.begin() + static_cast<int64_t>((slot + 1) * state));
    const std::vector<double> expected(r.states.begin() + static_cast<int64_t>(b * state),
                                       r.states.begin() + static_cast<int64_t>((b + 1) * state));
    EXPECT_LT(difference(got, expected), kTolerance) << slot;
  }
  EXPECT_TRUE(std::isnan(pool[2 * state]));
  const Ints dropped = {-1, -1, -1};
  const Floats before(pool.begin() + static_cast<int64_t>(3 * state), pool.end());
  call.states.out_slots = dropped.data();
  run(d, call);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pool.begin() + static_cast<int64_t>(3 * state)));
}

TEST_P(LinearAttentionTest, LightningIsItsDefinition) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const auto& [heads, dk, dv] :
         std::vector<std::array<int, 3>>{{3, 16, 16}, {2, 96, 128}, {1, 5, 70}}) {
      Delta d({{1, 0, 64, 131}, heads, heads, dk, dv, dtype, false});
      Floats decay = {-0.9f, -0.0039f, -kInf};
      LightningAttention call = lightning(d, decay);
      ASSERT_TRUE(lightning_attention_cpu(call, pool_).ok());
      const LinearReference r = reference_lightning(call);
      EXPECT_LT(difference(d.out.values(), r.out, d.shape.dtype), kTolerance);
      EXPECT_LT(difference(d.after, r.states), kTolerance);
      EXPECT_TRUE(d.out.gaps_kept());
      decay[0] = -0.91f;
      EXPECT_GT(difference(d.after, reference_lightning(call).states), kTolerance) << "another decay passed";
    }
}

TEST(LightningDecay, IsThatOfTheModel) {
  Floats decay(64);
  lightning_log_decay(64, 0, 80, decay.data());
  EXPECT_FLOAT_EQ(decay[0], -0.9170132133f);
  EXPECT_FLOAT_EQ(decay[63], -0.0039062891f);
  lightning_log_decay(64, 40, 80, decay.data());
  EXPECT_NEAR(decay[0], -0.4527074274, 1e-6);
  lightning_log_decay(64, 79, 80, decay.data());
  EXPECT_NEAR(decay[0], -9.286117e-6, 1e-9);
}

/// A batch of HSTU.
struct Jagged {
  Jagged(const Ints& sizes, int heads_of_all, int qk_size, int v_size, DType type)
      : lengths(sizes),
        offsets(Shape{lengths}.offsets()),
        heads(heads_of_all),
        dk(qk_size),
        dv(v_size),
        dtype(type),
        q(dtype, offsets.back(), heads, dk, 1),
        k(dtype, offsets.back(), heads, dk, 2),
        v(dtype, offsets.back(), heads, dv, 3),
        out(dtype, offsets.back(), heads, dv, 4) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 2 * kMaxLen - 1; ++i)
      position.push_back(normal(random));
    for (int i = 0; i <= 20; ++i)
      time.push_back(normal(random));
    int64_t now = 1700000000;
    for (int i = 0; i < offsets.back(); ++i)
      times.push_back(now += static_cast<int64_t>(random() % 1000 * (random() % 50)));
    bounds.resize(20);
    hstu_time_bounds(20, bounds.data());
    out.poison();
  }
  HstuAttention call() {
    HstuAttention c;
    c.dtype = dtype;
    c.heads = heads;
    c.dk = dk;
    c.dv = dv;
    c.q = q.view();
    c.k = k.view();
    c.v = v.view();
    c.out = out.written();
    c.sequences = {static_cast<int>(lengths.size()), offsets.back(), 0, offsets.data()};
    c.max_seq_len = kMaxLen;
    return c;
  }
  void add_biases(HstuAttention& c) {
    c.position_bias = position.data();
    c.time_bias = time.data();
    c.time_bounds = bounds.data();
    c.time_buckets = 20;
    c.times = times.data();
  }
  static constexpr int kMaxLen = 200;
  Ints lengths, offsets;
  int heads, dk, dv;
  DType dtype;
  Rows q, k, v, out;
  Floats position, time;
  std::vector<int64_t> times, bounds;
};

TEST_P(LinearAttentionTest, HstuIsItsDefinition) {
  const Ints lengths = {0, 1, 64, 7, 129, 200};
  const Ints targets = {0, 1, 3, 0, 20, 200};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const auto& [contextual, window, full, with_targets, biases] :
         std::vector<std::array<int, 5>>{{0, 0, 0, 0, 0},
                                         {0, 0, 0, 1, 0},
                                         {5, 0, 0, 1, 1},
                                         {0, 9, 0, 1, 1},
                                         {3, 70, 11, 0, 0},
                                         {300, 2, 1, 1, 0}}) {
      Jagged j(lengths, 2, 24, 40, dtype);
      HstuAttention c = j.call();
      c.contextual = contextual;
      c.max_attn_len = window;
      c.min_full = full;
      if (with_targets != 0) c.num_targets = targets.data();
      if (biases != 0) j.add_biases(c);
      const Status done = hstu_attention_cpu(c, pool_);
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_LT(difference(j.out.values(), reference_hstu(c), dtype), kTolerance)
          << contextual << ", " << window;
      EXPECT_TRUE(j.out.gaps_kept());
      const Floats right = j.out.values();
      c.max_seq_len += 40;
      if (biases == 0) {
        EXPECT_GT(difference(right, reference_hstu(c), dtype), kTolerance) << "another divisor passed";
      }
    }
}

TEST_P(LinearAttentionTest, HstuOfTheLastQueries) {
  Jagged j({0, 9, 130}, 2, 16, 16, DType::bf16);
  const Ints targets = {0, 2, 40}, queries = {0, 0, 3, 3 + 70};
  HstuAttention all = j.call();
  all.num_targets = targets.data();
  j.add_biases(all);
  ASSERT_TRUE(hstu_attention_cpu(all, pool_).ok());
  Rows some(DType::bf16, 73, 2, 16, 7), q(DType::bf16, 73, 2, 16, 8);
  some.poison();
  for (int r = 0; r < 73; ++r)
    for (int h = 0; h < 2; ++h)
      for (int d = 0; d < 16; ++d)
        q.set(r, h, d, j.q.get(r < 3 ? 6 + r : 9 + 60 + r - 3, h, d));
  HstuAttention c = all;
  c.q = q.view();
  c.out = some.written();
  c.q_offsets = queries.data();
  c.q_tokens = 73;
  ASSERT_TRUE(hstu_attention_cpu(c, pool_).ok());
  EXPECT_LT(difference(some.values(), reference_hstu(c), DType::bf16), kTolerance);
  for (int r = 0; r < 73; ++r)  // the bits of the whole
    for (int d = 0; d < 16; ++d)
      EXPECT_EQ(some.get(r, 1, d), j.out.get(r < 3 ? 6 + r : 9 + 60 + r - 3, 1, d)) << r;
}

TEST_P(LinearAttentionTest, HstuReadsNoInvisibleValues) {
  Jagged j({100}, 1, 16, 16, DType::f32);
  const Ints targets = {10};
  HstuAttention c = j.call();
  c.num_targets = targets.data();
  ASSERT_TRUE(hstu_attention_cpu(c, pool_).ok());
  const Floats clean = j.out.values();
  for (const int key : {50, 95}) {
    Jagged bad({100}, 1, 16, 16, DType::f32);
    HstuAttention with = bad.call();
    with.num_targets = targets.data();
    bad.k.set(key, 0, 3, kNan);
    bad.v.set(key, 0, 3, kInf);
    ASSERT_TRUE(hstu_attention_cpu(with, pool_).ok());
    const Floats got = bad.out.values();
    for (int i = 0; i < 100; ++i) {
      const bool sees = hstu_visible(with, 100, 10, i, key);
      for (size_t d = 0; d < 16; ++d)
        if (!sees) {
          EXPECT_EQ(got[static_cast<size_t>(i) * 16 + d], clean[static_cast<size_t>(i) * 16 + d]) << i;
        }
      if (sees) {
        EXPECT_TRUE(std::isnan(got[static_cast<size_t>(i) * 16])) << i;
      }
    }
  }
}

TEST(HstuMask, MatchesTheTables) {
  const auto rows_of = [](int n, int c, int t, int window) {
    HstuAttention call;
    const int32_t targets = t;
    call.contextual = c;
    call.max_attn_len = window;
    call.num_targets = &targets;
    std::string text;
    for (int i = 0; i < n; ++i) {
      const HstuRange r = hstu_range({n, t, c, window, 0, true}, i);
      for (int j = 0; j < n; ++j) {
        const bool seen = i == j || (j >= r.begin && j < r.end);
        EXPECT_EQ(seen, hstu_visible(call, n, t, i, j));
        text += seen ? '1' : '.';
      }
      text += ' ';
    }
    return text;
  };
  EXPECT_EQ(rows_of(7, 2, 2, 0), "11111.. 11111.. 111.... 1111... 11111.. 111111. 11111.1 ");
  EXPECT_EQ(rows_of(6, 0, 2, 2), "1..... 11.... 111... .111.. ..111. ..11.1 ");
}

TEST(HstuMask, RangesAreTheMask) {
  for (int n = 1; n < 9; ++n)
    for (int c = 0; c < 10; ++c)
      for (int t = -1; t <= n; ++t)
        for (int window = 0; window < 5; ++window)
          for (int full = 0; full < 4; ++full) {
            HstuAttention call;
            const int32_t targets = t;
            call.contextual = c;
            call.max_attn_len = window;
            call.min_full = full;
            if (t >= 0) call.num_targets = &targets;
            for (int i = 0; i < n; ++i) {
              const HstuRange r = hstu_range({n, std::max(t, 0), c, window, full, t >= 0}, i);
              for (int j = 0; j < n; ++j)
                ASSERT_EQ(i == j || (j >= r.begin && j < r.end), hstu_visible(call, n, t, i, j))
                    << n << ' ' << c << ' ' << t << ' ' << window << ' ' << full << ": " << i << ", " << j;
            }
          }
}

TEST(HstuTimeBounds, AreTheResearchCodesBuckets) {
  std::vector<int64_t> bounds(128);
  hstu_time_bounds(128, bounds.data());
  for (const int64_t x :
       {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{59}, int64_t{86400}, int64_t{31536000}}) {
    const auto bucket = std::upper_bound(bounds.begin(), bounds.end(), x) - bounds.begin();
    EXPECT_EQ(bucket, static_cast<int64_t>(std::log(std::max<double>(static_cast<double>(x), 1)) / 0.301))
        << x;
  }
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
}

TEST(LinearAttentionRefusals, NameWhatIsWrong) {
  ThreadPool pool(1);
  const auto refusal = [&](const std::function<void(GatedDeltaRule&, Delta&)>& change) {
    Delta d({{3, 4}, 4, 2, 16, 16, DType::f32, true});
    GatedDeltaRule c = d.call();
    change(c, d);
    const Status done = gated_delta_rule_cpu(c, pool);
    return done.ok() ? std::string() : done.error().message;
  };
  EXPECT_EQ(refusal([](GatedDeltaRule&, Delta&) {}), "");
  EXPECT_THAT(refusal([](GatedDeltaRule& c, Delta&) { c.k_heads = 3; }),
              HasSubstr("must be a multiple of k_heads"));
  EXPECT_THAT(refusal([](GatedDeltaRule& c, Delta&) { c.dk = 300; }), HasSubstr("1 to 256 have kernels"));
  EXPECT_THAT(refusal([](GatedDeltaRule& c, Delta&) { c.q.data = nullptr; }), HasSubstr("q is null"));
  EXPECT_THAT(refusal([](GatedDeltaRule& c, Delta&) { c.out.token_stride = 3; }),
              HasSubstr("elements overlap"));
  EXPECT_THAT(refusal([](GatedDeltaRule&, Delta& d) { d.offsets[1] = 9; }), HasSubstr("must not decrease"));
  EXPECT_THAT(refusal([](GatedDeltaRule&, Delta& d) { d.offsets[2] = 6; }), HasSubstr("ends with 6"));
  EXPECT_THAT(refusal([](GatedDeltaRule& c, Delta&) { c.states.slots = 1; }), HasSubstr("there are 1 slots"));
  const Ints same = {1, 1};
  EXPECT_THAT(refusal([&](GatedDeltaRule& c, Delta&) { c.states.out_slots = same.data(); }),
              HasSubstr("must be distinct"));
  Jagged j({3}, 1, 16, 16, DType::f32);
  const auto hstu_refusal = [&](const std::function<void(HstuAttention&)>& change) {
    HstuAttention c = j.call();
    change(c);
    const Status done = hstu_attention_cpu(c, pool);
    return done.ok() ? std::string() : done.error().message;
  };
  const Ints targets = {4}, queries = {0, 4};
  EXPECT_EQ(hstu_refusal([](HstuAttention&) {}), "");
  EXPECT_THAT(hstu_refusal([](HstuAttention& c) { c.max_seq_len = 2; }), HasSubstr("max_seq_len is 2"));
  EXPECT_THAT(hstu_refusal([&](HstuAttention& c) { c.num_targets = targets.data(); }), HasSubstr("0 to 3"));
  EXPECT_THAT(hstu_refusal([&](HstuAttention& c) { c.q_offsets = queries.data(), c.q_tokens = 4; }),
              HasSubstr("4 queries and 3 keys"));
  EXPECT_THAT(hstu_refusal([&](HstuAttention& c) { c.time_bias = j.time.data(); }), HasSubstr("times, with"));
}

}  // namespace
}  // namespace fovea
