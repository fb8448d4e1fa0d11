// CPU_ATTN against the definition in fp64, and its bits under everything that must not change them.
// tests/attention has random problems over all masks; this file tests each path of the kernels by name.
#include "backends/cpu_attn/cpu_attn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/kv_view.h"
#include "base/aligned.h"
#include "base/cpu_features.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "kernels/cpu/attn_params.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One sequence whose n_q query rows are the last of its n_k tokens; all fp32 values of every token are kept,
/// so that any rows of it can be computed.
struct Case {
  AttentionSpec spec;
  int tokens = 0;
  std::vector<float> q, k, v;  // [tokens, heads, d]
  std::vector<float> sinks;

  Case(int heads, int kv_heads, int d, int dv, int n, unsigned seed = 1) : tokens(n) {
    spec.num_heads = heads;
    spec.num_kv_heads = kv_heads;
    spec.head_dim = d;
    spec.v_head_dim = dv;
    spec.scale = 1.0f / std::sqrt(static_cast<float>(d));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::vector<float>& to, int count, float gain) {
      to.resize(static_cast<size_t>(n) * static_cast<size_t>(count));
      for (float& x : to)
        x = bf16_to_float(float_to_bf16(gain * normal(random)));
    };
    draw(q, heads * d, 2.0f);
    draw(k, kv_heads * d, 2.0f);
    draw(v, kv_heads * dv, 1.0f);
  }
};

/// Settings of a run; none of them may change a bit of the result.
struct How {
  int page_size = 16;
  int threads = 1;
  bool tokens_major = false;
  KvCacheDType kv = KvCacheDType::float32;
  int company = 0;  // other sequences before this one
};

struct Rows {
  std::vector<float> o, lse;  // [rows, heads, dv], [rows, heads]
  bool operator==(const Rows&) const = default;
};

void put(std::vector<std::byte>& to, KvCacheDType dtype, size_t at, float value) {
  if (dtype == KvCacheDType::float32) {
    std::memcpy(to.data() + at * 4, &value, 4);
    return;
  }
  const uint16_t half = float_to_bf16(value);
  std::memcpy(to.data() + at * 2, &half, 2);
}

/// Rows [first, last) of the case as one step in which the sequence has `last` keys.
Rows compute(const Case& c, int first, int last, const How& how = {}) {
  const AttentionSpec spec = [&] {
    AttentionSpec s = c.spec;
    s.page_size = how.page_size;
    return s;
  }();
  const int s = how.page_size, hkv = spec.num_kv_heads, d = spec.head_dim, dv = spec.v_head_dim;
  const int pages = (last + s - 1) / s;
  // Pages are in descending order; the last one of the pool belongs to the other sequences.
  std::vector<std::byte> k(static_cast<size_t>(pages + 1) * static_cast<size_t>(s * hkv * d) *
                           size_of(how.kv));
  std::vector<std::byte> v(static_cast<size_t>(pages + 1) * static_cast<size_t>(s * hkv * dv) *
                           size_of(how.kv));
  for (size_t i = 0; i < k.size() / size_of(how.kv); ++i)
    put(k, how.kv, i, kNan);
  for (size_t i = 0; i < v.size() / size_of(how.kv); ++i)
    put(v, how.kv, i, kNan);
  KvView kv;
  kv.dtype = how.kv;
  kv.page_size = s;
  kv.k_slot_stride = how.tokens_major ? hkv * d : d;
  kv.k_head_stride = how.tokens_major ? d : s * d;
  kv.k_page_stride = int64_t{s} * hkv * d;
  kv.v_slot_stride = how.tokens_major ? hkv * dv : dv;
  kv.v_head_stride = how.tokens_major ? dv : s * dv;
  kv.v_page_stride = int64_t{s} * hkv * dv;
  const auto write = [&](int token, int64_t page, int slot) {
    for (int h = 0; h < hkv; ++h) {
      const int64_t ka = page * kv.k_page_stride + h * kv.k_head_stride + slot * kv.k_slot_stride;
      const int64_t va = page * kv.v_page_stride + h * kv.v_head_stride + slot * kv.v_slot_stride;
      for (int i = 0; i < d; ++i)
        put(k, how.kv, static_cast<size_t>(ka + i), c.k[static_cast<size_t>((token * hkv + h) * d + i)]);
      for (int i = 0; i < dv; ++i)
        put(v, how.kv, static_cast<size_t>(va + i), c.v[static_cast<size_t>((token * hkv + h) * dv + i)]);
    }
  };
  for (int t = 0; t < last; ++t)
    write(t, pages - 1 - t / s, t % s);
  write(0, pages, 0);
  kv.k = k.data();
  kv.v = v.data();

  std::vector<int32_t> q_offsets{0}, kv_lens, table;
  const int64_t stride = pages + 1;
  for (int b = 0; b < how.company; ++b) {
    q_offsets.push_back(b + 1);
    kv_lens.push_back(1);
    table.resize(table.size() + static_cast<size_t>(stride), INT32_MAX);
    table[table.size() - static_cast<size_t>(stride)] = pages;
  }
  q_offsets.push_back(how.company + last - first);
  kv_lens.push_back(last);
  for (int p = 0; p < pages; ++p)
    table.push_back(pages - 1 - p);
  table.push_back(INT32_MAX);

  const int64_t q_row = int64_t{spec.num_heads} * d, o_row = int64_t{spec.num_heads} * dv;
  const int rows = last - first, all = how.company + rows;
  std::vector<float> q(static_cast<size_t>(all * q_row), 0.5f), o(static_cast<size_t>(all * o_row), kNan);
  std::vector<float> lse(static_cast<size_t>(all * spec.num_heads), kNan);
  std::copy(c.q.begin() + first * q_row, c.q.begin() + last * q_row, q.begin() + how.company * q_row);

  ThreadPool pool(how.threads);
  Stream stream(pool);
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.page_table = table;
  meta.page_table_stride = stride;
  const AttentionLimits limits{how.company + 1, all, how.company + last, std::max(last, 1)};
  const auto backend = make_cpu_attn();
  const auto bytes = backend->workspace_bytes(spec, limits);
  EXPECT_TRUE(bytes.ok());
  AlignedArray<std::byte> workspace(*bytes);
  const auto plan = backend->plan(spec, limits, meta, workspace, stream);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  AttentionArgs args;
  args.q = q.data();
  args.q_row_stride = q_row;
  args.out = o.data();
  args.out_row_stride = o_row;
  args.lse = lse.data();
  args.kv = kv;
  args.sinks = c.sinks.data();
  if (rows == 1)
    EXPECT_TRUE(backend->forward_decode(**plan, args, stream).ok());
  else
    EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
  return {{o.begin() + how.company * o_row, o.end()},
          {lse.begin() + how.company * spec.num_heads, lse.end()}};
}

/// Row `row` of one head by the definition (causal, left window, sink logit, soft cap).
double expect_row(const Case& c, int row, int head, const float* got, double tolerance) {
  const AttentionSpec& s = c.spec;
  const int kv_head = head / (s.num_heads / s.num_kv_heads), d = s.head_dim, dv = s.v_head_dim;
  const int first = s.mask.window_left >= 0 ? std::max(0, row - s.mask.window_left) : 0;
  std::vector<double> scores;
  double high = s.has_sink ? c.sinks[static_cast<size_t>(head)] : -INFINITY;
  for (int j = first; j <= row; ++j) {
    double dot = 0;
    for (int i = 0; i < d; ++i)
      dot += double{c.q[static_cast<size_t>((row * s.num_heads + head) * d + i)]} *
             double{c.k[static_cast<size_t>((j * s.num_kv_heads + kv_head) * d + i)]};
    dot *= double{s.scale};
    if (s.softcap > 0) dot = double{s.softcap} * std::tanh(dot / double{s.softcap});
    scores.push_back(dot);
    high = std::max(high, dot);
  }
  double total = s.has_sink ? std::exp(c.sinks[static_cast<size_t>(head)] - high) : 0.0;
  std::vector<double> o(static_cast<size_t>(dv));
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - high);
    total += weight;
    for (int i = 0; i < dv; ++i)
      o[static_cast<size_t>(i)] +=
          weight * double{c.v[((static_cast<size_t>(first) + j) * static_cast<size_t>(s.num_kv_heads) +
                               static_cast<size_t>(kv_head)) *
                                  static_cast<size_t>(dv) +
                              static_cast<size_t>(i)]};
  }
  double worst = 0;
  for (int i = 0; i < dv; ++i)
    worst = std::max(worst, std::abs(o[static_cast<size_t>(i)] / total - double{got[i]}));
  EXPECT_LT(worst, tolerance) << "row " << row << " head " << head;
  return worst;
}

class CpuAttn : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = current_isa();
    if (!set_isa(GetParam())) GTEST_SKIP() << "this CPU lacks " << to_string(GetParam());
  }
  void TearDown() override { set_isa(before_); }

 private:
  Isa before_ = Isa::generic;
};

TEST_P(CpuAttn, EveryRowFollowsTheDefinition) {
  // Head sizes around the vector widths, groups around the register tile, more rows than a block.
  const struct {
    int heads, kv_heads, d, dv, n;
  } cases[] = {{1, 1, 16, 16, 1},   {1, 1, 24, 40, 65},    {4, 2, 64, 64, 200}, {7, 1, 128, 128, 90},
               {6, 2, 80, 72, 130}, {10, 2, 256, 136, 70}, {3, 1, 512, 512, 66}};
  for (const auto& k : cases) {
    const Case c(k.heads, k.kv_heads, k.d, k.dv, k.n);
    const Rows got = compute(c, 0, c.tokens);
    for (int row = 0; row < c.tokens; row += 1 + row / 8)
      for (int head = 0; head < k.heads; ++head)
        expect_row(c, row, head, &got.o[static_cast<size_t>((row * k.heads + head) * k.dv)], 2e-5);
  }
}

TEST_P(CpuAttn, WindowSinkAndSoftCapFollowTheDefinition) {
  Case c(4, 2, 64, 32, 300);
  c.spec.mask.window_left = 70;
  c.spec.softcap = 5.0f;
  c.spec.has_sink = true;
  c.sinks = {0.5f, -kInf, 3.0f, -2.0f};
  const Rows got = compute(c, 0, c.tokens);
  for (int row = 0; row < c.tokens; row += 7)
    for (int head = 0; head < 4; ++head)
      expect_row(c, row, head, &got.o[static_cast<size_t>((row * 4 + head) * 32)], 2e-5);
}

TEST_P(CpuAttn, BitsDependOnNothingButTheRow) {
  for (const int window : {-1, 100}) {
    Case c(6, 2, 72, 40, 2200);
    c.spec.mask.window_left = window;
    const How plain;
    const Rows whole = compute(c, 2100, 2200, plain);
    for (const int page_size : {1, 3, 64, 544, 1024})
      for (const bool tokens_major : {false, true}) {
        How how;
        how.page_size = page_size;
        how.tokens_major = tokens_major;
        EXPECT_EQ(compute(c, 2100, 2200, how), whole) << "page size " << page_size;
      }
    How three;
    three.threads = 3;
    three.company = 2;
    EXPECT_EQ(compute(c, 2100, 2200, three), whole) << "threads and company";
    const size_t o_row = 6 * 40;
    for (const int row : {2100, 2111, 2163, 2199}) {
      const auto at = static_cast<size_t>(row - 2100);
      const Rows decoded = compute(c, row, row + 1, plain);
      const Rows split = compute(c, row, row + 1, three);  // over the keys: one sequence for three threads
      EXPECT_TRUE(
          std::equal(decoded.o.begin(), decoded.o.end(), whole.o.begin() + static_cast<int64_t>(at * o_row)))
          << "row " << row;
      EXPECT_TRUE(std::equal(decoded.lse.begin(), decoded.lse.end(),
                             whole.lse.begin() + static_cast<int64_t>(at * 6)));
      EXPECT_EQ(split, decoded) << "row " << row;
    }
    Rows chunks;
    for (const auto& [first, last] :
         std::vector<std::pair<int, int>>{{2100, 2101}, {2101, 2113}, {2113, 2200}}) {
      const Rows part = compute(c, first, last, plain);
      chunks.o.insert(chunks.o.end(), part.o.begin(), part.o.end());
      chunks.lse.insert(chunks.lse.end(), part.lse.begin(), part.lse.end());
    }
    EXPECT_EQ(chunks, whole);
  }
}

TEST_P(CpuAttn, SixteenBitKeysWidenExactly) {
  // The inputs are bf16 values, so a bf16 cache holds them exactly: widening in registers (decode) and in
  // scratch (prefill) must both give the bits of fp32.
  const Case c(4, 1, 40, 24, 150);
  How bf16;
  bf16.kv = KvCacheDType::bfloat16;
  EXPECT_EQ(compute(c, 0, 150, bf16), compute(c, 0, 150));
  EXPECT_EQ(compute(c, 149, 150, bf16), compute(c, 149, 150));
}

TEST_P(CpuAttn, WhatARowDoesNotSeeCanNotReachIt) {
  Case c(2, 1, 64, 64, 100);
  const Rows clean = compute(c, 40, 90);
  for (size_t i = 70 * 64; i < c.k.size(); ++i)  // tokens from 70 on: hidden from the rows before them
    c.k[i] = c.v[i] = i % 2 ? kNan : kInf;
  const Rows poisoned = compute(c, 40, 90);
  const int64_t rows = 70 - 40;
  EXPECT_TRUE(std::equal(clean.o.begin(), clean.o.begin() + rows * 128, poisoned.o.begin()));
  EXPECT_TRUE(std::isnan(poisoned.o.back())) << "what is seen propagates";
}

TEST_P(CpuAttn, RowsWithoutKeysAreZero) {
  Case c(4, 2, 32, 32, 5);
  AttentionSpec& spec = c.spec;
  spec.page_size = 16;
  const int32_t q_offsets[] = {0, 3, 5}, kv_lens[] = {0, 1}, table[] = {INT32_MAX, 0};
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.page_table = table;
  meta.page_table_stride = 1;
  ThreadPool pool(2);
  Stream stream(pool);
  const AttentionLimits limits{2, 5, 1, 1};
  const auto backend = make_cpu_attn();
  AlignedArray<std::byte> workspace(*backend->workspace_bytes(spec, limits));
  const auto plan = backend->plan(spec, limits, meta, workspace, stream);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::vector<float> kv(16 * 2 * 32, 1.0f), out(5 * 4 * 32, kNan), lse(5 * 4, kNan);
  AttentionArgs args;
  args.q = c.q.data();
  args.q_row_stride = 4 * 32;
  args.out = out.data();
  args.out_row_stride = 4 * 32;
  args.lse = lse.data();
  args.kv = {kv.data(), kv.data(), KvCacheDType::float32, 16, 1024, 512, 32, 1024, 512, 32};
  EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
  for (size_t i = 0; i < out.size(); ++i)  // only the last row sees the only key
    ASSERT_EQ(out[i], i < 4 * 4 * 32 ? 0.0f : 1.0f) << i;
  for (size_t i = 0; i < 16; ++i)
    ASSERT_EQ(lse[i], -kInf);
}

/// One key whose K and V are the 256 codes of an 8-bit cache, and one query row for each: row i has 1 at i,
/// so that its score is K's element i; O is V, since the only weight is 1.
struct Codes {
  static constexpr int kCodes = 256;
  std::vector<uint8_t> k, v;
  float k_scale = 1, v_scale = 1;
  std::vector<float> o, lse;  // [kCodes, kCodes], [kCodes]

  void run(KvCacheDType dtype, int rows_a_step, KvLayout layout) {
    AttentionSpec spec;
    spec.num_heads = spec.num_kv_heads = 1;
    spec.head_dim = spec.v_head_dim = kCodes;
    spec.scale = 1;
    spec.page_size = 1;
    spec.kv_dtype = dtype;
    spec.kv_x_packed = layout == KvLayout::x_packed;
    spec.mask.causal = false;
    ThreadPool pool(1);
    Stream stream(pool);
    const auto backend = make_cpu_attn();
    const AttentionLimits limits{1, kCodes, 1, 1};
    AlignedArray<std::byte> workspace(*backend->workspace_bytes(spec, limits));
    o.assign(kCodes * kCodes, 42.0f);
    lse.assign(kCodes, 42.0f);
    const float one = 1.0f;
    for (int row = 0; row < kCodes; row += rows_a_step) {
      const int32_t q_offsets[] = {0, rows_a_step}, kv_lens[] = {1}, table[] = {0};
      BatchMeta meta;
      meta.q_offsets = q_offsets;
      meta.kv_lens = kv_lens;
      meta.page_table = table;
      meta.page_table_stride = 1;
      std::vector<float> q(static_cast<size_t>(rows_a_step) * kCodes);
      for (int i = 0; i < rows_a_step; ++i)
        q[static_cast<size_t>(i * kCodes + row + i)] = 1.0f;
      AttentionArgs args;
      args.q = q.data();
      args.q_row_stride = args.out_row_stride = kCodes;
      args.out = o.data() + row * kCodes;
      args.lse = lse.data() + row;
      args.kv = paged_view(layout, dtype, 1, 1, kCodes, kCodes);
      args.kv.k = k.data();
      args.kv.v = v.data();
      args.kv.k_scale = k_scale;
      args.kv.v_scale = v_scale;
      if (has_token_scales(dtype)) args.kv.k_scales = args.kv.v_scales = &one;
      const auto plan = backend->plan(spec, limits, meta, workspace, stream);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
    }
  }
};

TEST_P(CpuAttn, EveryEightBitCodeIsReadExactly) {
  const struct {
    KvCacheDType dtype;
    float (*read)(uint8_t);
  } formats[] = {{KvCacheDType::fp8_e4m3, e4m3_to_float},
                 {KvCacheDType::fp8_e5m2, e5m2_to_float},
                 {KvCacheDType::int8_per_token_head,
                  [](uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); }}};
  for (const auto& f : formats)
    for (const int rows : {1, 64})  // widened in registers, in scratch
      for (const KvLayout layout : {KvLayout::hnd, KvLayout::x_packed}) {
        SCOPED_TRACE(std::string(to_string(f.dtype)) + " rows " + std::to_string(rows) + " " +
                     std::string(to_string(layout)));
        Codes c;
        for (int i = 0; i < Codes::kCodes; ++i) {
          const auto code = static_cast<uint8_t>(i);
          c.v.push_back(code);
          c.k.push_back(std::isfinite(f.read(code)) ? code : 0);  // 0 x NaN would reach every row
        }
        c.k_scale = 0.5f;  // powers of two: still exact
        c.v_scale = 4.0f;
        c.run(f.dtype, rows, layout);
        for (int i = 0; i < Codes::kCodes; ++i) {
          const float v = 4.0f * f.read(static_cast<uint8_t>(i));
          for (const int row : {0, 77, 255}) {
            const float got = c.o[static_cast<size_t>(row * Codes::kCodes + i)];
            if (std::isnan(v))
              EXPECT_TRUE(std::isnan(got)) << i;
            else
              EXPECT_EQ(got, v) << i;
          }
          EXPECT_EQ(c.lse[static_cast<size_t>(i)], 0.5f * f.read(c.k[static_cast<size_t>(i)])) << i;
        }
      }
}

TEST_P(CpuAttn, NanScaleOfATokenReachesTheRowsThatSeeIt) {
  // Two rows, causal: row 0 sees token 0, row 1 both; token 1's scales are NaN, its codes numbers.
  for (const int heads : {1, 16}) {  // widened in registers, in scratch
    AttentionSpec spec;
    spec.num_heads = heads;
    spec.num_kv_heads = 1;
    spec.head_dim = spec.v_head_dim = 16;
    spec.scale = 1;
    spec.page_size = 2;
    spec.kv_dtype = KvCacheDType::int8_per_token_head;
    const int32_t q_offsets[] = {0, 2}, kv_lens[] = {2}, table[] = {0};
    BatchMeta meta;
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = table;
    meta.page_table_stride = 1;
    const std::vector<int8_t> codes(32, 100);
    const float k_scales[] = {0.01f, 0.01f}, v_scales[] = {0.01f, kNan};
    const auto width = static_cast<size_t>(heads * 16);
    std::vector<float> q(2 * width, 0.1f), o(2 * width, 42.0f);
    AttentionArgs args;
    args.q = q.data();
    args.q_row_stride = args.out_row_stride = heads * 16;
    args.out = o.data();
    args.kv = paged_view(KvLayout::hnd, spec.kv_dtype, 1, 2, 16, 16);
    args.kv.k = args.kv.v = codes.data();
    ThreadPool pool(1);
    Stream stream(pool);
    const auto backend = make_cpu_attn();
    const AttentionLimits limits{1, 2, 2, 2};
    AlignedArray<std::byte> workspace(*backend->workspace_bytes(spec, limits));
    const auto plan = backend->plan(spec, limits, meta, workspace, stream);
    ASSERT_TRUE(plan.ok());
    for (const bool in_k : {false, true}) {
      args.kv.k_scales = in_k ? v_scales : k_scales;
      args.kv.v_scales = in_k ? k_scales : v_scales;
      EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
      for (size_t i = 0; i < width; ++i) {
        EXPECT_FLOAT_EQ(o[i], 1.0f) << heads << ' ' << i;
        EXPECT_TRUE(std::isnan(o[width + i])) << heads << ' ' << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuAttn, testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(CpuAttnPlan, RefusesWhatItCanNotServe) {
  AttentionSpec spec = Case(4, 2, 64, 64, 1).spec;
  const auto backend = make_cpu_attn();
  const AttentionLimits limits{1, 1, 32, 32};
  const size_t bytes = *backend->workspace_bytes(spec, limits);
  AlignedArray<std::byte> workspace(bytes);
  ThreadPool pool(1);
  Stream stream(pool);
  const int32_t q_offsets[] = {0, 1}, kv_lens[] = {32}, table[] = {0, 1};
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.page_table = table;
  meta.page_table_stride = 2;
  const Workspace whole = workspace;
  EXPECT_TRUE(backend->plan(spec, limits, meta, whole, stream).ok());
  EXPECT_FALSE(backend->plan(spec, limits, meta, whole.first(bytes - 64), stream).ok());
  EXPECT_FALSE(backend->plan(spec, limits, meta, whole.subspan(1), stream).ok());
  const AttentionLimits shorter{1, 1, 32, 31};
  EXPECT_FALSE(backend->plan(spec, shorter, meta, whole, stream).ok());
  spec.head_dim = 60;
  EXPECT_FALSE(backend->workspace_bytes(spec, limits).ok());
  spec.head_dim = 520;
  EXPECT_FALSE(backend->workspace_bytes(spec, limits).ok());
}

TEST(CpuAttnPlan, WorkspaceIsBounded) {
  const AttentionSpec spec = Case(32, 8, 128, 128, 1).spec;
  const AttentionLimits huge{1 << 20, 1 << 30, int64_t{1} << 60, 1 << 30};
  const attn::ScratchLayout layout = attn::scratch_layout(128, 128);
  const auto bytes = make_cpu_attn()->workspace_bytes(spec, huge);
  ASSERT_TRUE(bytes.ok());
  EXPECT_LE(*bytes, static_cast<size_t>(attn::kMaxPartialBytes) +
                        static_cast<size_t>(attn::kMaxSlots * layout.size) * sizeof(float));
}

}  // namespace
}  // namespace fovea
