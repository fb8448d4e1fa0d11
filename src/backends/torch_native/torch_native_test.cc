#include "backends/torch_native/torch_native.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "attention/merge.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/stream.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

/// One sequence in fp32, keys in pages of one slot in order.
struct Tiny {
  AttentionSpec spec;
  int n_q = 1, n_k = 0;
  std::vector<float> q, k, v, sinks, slopes;
  std::vector<Span> spans;
  std::vector<uint8_t> packed;
  std::vector<float> tree_bias;
  int tree_size = 0;
  std::vector<float> o, lse;

  Tiny(int heads, int kv_heads, int d, int dv, int rows, int keys) : n_q(rows), n_k(keys) {
    spec.num_heads = heads;
    spec.num_kv_heads = kv_heads;
    spec.head_dim = d;
    spec.v_head_dim = dv;
    spec.scale = 1.0f;
    spec.page_size = 1;
  }

  std::string run() {
    const int32_t q_offsets[] = {0, n_q}, kv_lens[] = {n_k};
    const int32_t span_offsets[] = {0, static_cast<int32_t>(spans.size())};
    const int64_t packed_offsets[] = {0, static_cast<int64_t>(packed.size())};
    std::vector<int32_t> pages(n_k);
    for (int j = 0; j < n_k; ++j)
      pages[j] = j;
    BatchMeta meta;
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = pages;
    meta.page_table_stride = n_k;
    meta.spans = spans;
    meta.span_offsets = span_offsets;
    meta.packed_mask = packed;
    meta.packed_offsets = packed_offsets;
    meta.tree_bias = tree_bias;
    meta.tree_size = tree_size;
    o.assign(n_q * spec.num_heads * spec.v_head_dim, kNan);
    lse.assign(n_q * spec.num_heads, kNan);
    AttentionArgs args;
    args.q = q.data();
    args.q_row_stride = spec.num_heads * spec.head_dim;
    args.out = o.data();
    args.out_row_stride = spec.num_heads * spec.v_head_dim;
    args.lse = lse.data();
    args.kv.k = k.data();
    args.kv.v = v.data();
    args.kv.k_page_stride = spec.num_kv_heads * spec.head_dim;
    args.kv.v_page_stride = spec.num_kv_heads * spec.v_head_dim;
    args.kv.k_head_stride = spec.head_dim;
    args.kv.v_head_stride = spec.v_head_dim;
    args.sinks = sinks.data();
    args.alibi_slopes = slopes.data();
    ThreadPool pool(1);
    Stream stream(pool);
    const auto backend = make_torch_native();
    const auto plan = backend->plan(spec, {1, n_q, n_k, n_k}, meta, {}, stream);
    if (!plan) return plan.error().message;
    EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
    return {};
  }
};

/// Scores s = k (q = 1), values v: section 12 of the semantics.
Tiny golden() {
  Tiny t(1, 1, 1, 1, 1, 3);
  t.q = {1};
  t.k = {0.5f, 1.5f, -0.25f};
  t.v = {1, 2, 4};
  return t;
}

TEST(TorchNative, GoldenSoftmax) {
  for (const bool fp64 : {false, true}) {
    Tiny t = golden();
    t.spec.fp64_accumulate = fp64;
    ASSERT_EQ(t.run(), "");
    EXPECT_NEAR(t.o[0], 1.986811851, 2e-7);
    EXPECT_NEAR(t.lse[0], 1.932855467, 2e-7);
  }
}

TEST(TorchNative, GoldenSink) {
  Tiny t = golden();
  t.spec.has_sink = true;
  t.sinks = {1.0f};
  ASSERT_EQ(t.run(), "");
  EXPECT_NEAR(t.o[0], 1.425843946, 2e-7);
  EXPECT_NEAR(t.lse[0], 1.932855467, 2e-7) << "without the sink unless asked";
  t.spec.lse_includes_sink = true;
  ASSERT_EQ(t.run(), "");
  EXPECT_NEAR(t.o[0], 1.425843946, 2e-7);
  EXPECT_NEAR(t.lse[0], 2.264622855, 2e-7);
}

TEST(TorchNative, InfiniteSinks) {
  Tiny t = golden();
  ASSERT_EQ(t.run(), "");
  const float without = t.o[0];
  t.spec.has_sink = true;
  t.sinks = {-kInf};
  ASSERT_EQ(t.run(), "");
  EXPECT_EQ(t.o[0], without);
  t.sinks = {kInf};
  ASSERT_EQ(t.run(), "");
  EXPECT_EQ(t.o[0], 0.0f);
  EXPECT_NEAR(t.lse[0], 1.932855467, 2e-7);
}

TEST(TorchNative, GoldenPartsMergeToTheWhole) {
  Tiny a = golden(), b = golden();
  a.n_k = 2;
  b.n_k = 1;
  b.k = {-0.25f};
  b.v = {4};
  ASSERT_EQ(a.run() + b.run(), "");
  EXPECT_NEAR(a.o[0], 1.731058579, 2e-7);
  EXPECT_NEAR(a.lse[0], 1.813261688, 2e-7);
  const PartialState parts[] = {{a.o.data(), a.lse.data()}, {b.o.data(), b.lse.data()}};
  float o, lse;
  merge_states(parts, 1, 1, &o, &lse);
  EXPECT_NEAR(o, 1.986811851, 3e-7);
  EXPECT_NEAR(lse, 1.932855467, 3e-7);
}

TEST(TorchNative, GoldenSoftCap) {
  Tiny t(1, 1, 1, 1, 1, 1);
  t.q = {8};
  t.k = {10};
  t.v = {3};
  t.spec.softcap = 50;
  ASSERT_EQ(t.run(), "");
  EXPECT_NEAR(t.lse[0], 46.08342773, 4e-6);
  EXPECT_EQ(t.o[0], 3.0f);
  t.k = {1e30f};  // tanh saturates without overflow
  ASSERT_EQ(t.run(), "");
  EXPECT_EQ(t.lse[0], 50.0f);
}

TEST(TorchNative, AlibiIsTheDistance) {
  Tiny t(1, 1, 1, 1, 2, 3);
  t.spec.mask.causal = false;
  t.spec.has_alibi = true;
  t.slopes = {0.5f};
  t.q = {0, 0};
  t.k = {1, 1, 1};
  t.v = {1, 0, 0};
  ASSERT_EQ(t.run(), "");
  // Row 0 is at position 1: distances 1 0 1; row 1 at 2: 2 1 0.
  const double e = std::exp(-0.5);
  EXPECT_NEAR(t.o[0], e / (1 + 2 * e), 1e-7);
  EXPECT_NEAR(t.o[1], e * e / (1 + e + e * e), 1e-7);
  EXPECT_NEAR(t.lse[1], std::log(1 + e + e * e), 2e-7);
  t.spec.softcap = 5;
  EXPECT_THAT(t.run(), HasSubstr("ALiBi with a logit soft cap not supported"));
}

TEST(TorchNative, RowsWithoutKeysAreZero) {
  Tiny t(1, 1, 2, 2, 3, 1);
  t.q.assign(6, 1);
  t.k.assign(2, 1);
  t.v.assign(2, 7);
  for (const bool sink : {false, true}) {
    t.spec.has_sink = t.spec.lse_includes_sink = sink;
    t.sinks = {0.75f};
    ASSERT_EQ(t.run(), "");
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(t.o[i], 0.0f);
    EXPECT_EQ(t.lse[0], sink ? 0.75f : -kInf);
    EXPECT_GT(t.o[4], 0.0f);
  }
}

TEST(TorchNative, NanInVisibleKeysPropagatesAndInHiddenOnesDoesNot) {
  Tiny t(1, 1, 1, 1, 2, 2);
  t.q = {1, 1};
  t.k = {1, kNan};
  t.v = {5, kNan};
  ASSERT_EQ(t.run(), "");
  EXPECT_EQ(t.o[0], 5.0f);
  EXPECT_TRUE(std::isnan(t.o[1]));
  t.k = {kNan, 1};
  t.v = {1, 1};
  ASSERT_EQ(t.run(), "");
  EXPECT_TRUE(std::isnan(t.o[0]) && std::isnan(t.o[1]));
}

TEST(TorchNative, QueryHeadsShareKvHeadsInBlocks) {
  Tiny t(6, 2, 1, 1, 1, 1);
  t.q.assign(6, 1);
  t.k = {1, 1};
  t.v = {10, 20};
  ASSERT_EQ(t.run(), "");
  EXPECT_EQ(t.o, (std::vector<float>{10, 10, 10, 20, 20, 20}));
}

/// Paths (0,) (1,) (0,0) (0,1) (1,0): section 12.
TEST(TorchNative, TreeRowsSeeTheirAncestors) {
  const char* rows[] = {"1.....", "11....", "1.1...", "11.1..", "11..1.", "1.1..1"};
  constexpr int kContext = 2;
  Tiny t(1, 1, 1, 8, 6, 6 + kContext);
  t.spec.mask.tree = true;
  t.tree_size = 6;
  for (const char* row : rows)
    for (int c = 0; c < 6; ++c)
      t.tree_bias.push_back(row[c] == '1' ? 0.0f : -kInf);
  t.q.assign(6, 0);
  t.k.assign(8, 0);
  t.v.assign(64, 0);
  for (int j = 0; j < 8; ++j)
    t.v[j * 8 + j] = 1;  // o[j] > 0 iff key j was seen
  ASSERT_EQ(t.run(), "");
  for (int i = 0; i < 6; ++i) {
    std::string seen;
    for (int j = 0; j < 8; ++j)
      seen += t.o[i * 8 + j] > 0 ? '1' : '.';
    EXPECT_EQ(seen, std::string("11") + rows[i]) << i;
  }
}

/// Section 1.2 with a dense mask; shares no code with the kernel.
void dense(const Tiny& t, const std::vector<std::vector<bool>>& mask, std::vector<double>& o,
           std::vector<double>& lse) {
  const AttentionSpec& s = t.spec;
  for (int i = 0; i < t.n_q; ++i)
    for (int h = 0; h < s.num_heads; ++h) {
      const int g = h * s.num_kv_heads / s.num_heads;
      double l = 0;
      std::vector<double> sum(s.v_head_dim);
      for (int j = 0; j < t.n_k; ++j) {
        if (!mask[i][j]) continue;
        double score = 0;
        for (int d = 0; d < s.head_dim; ++d)
          score += double{t.q[(i * s.num_heads + h) * s.head_dim + d]} *
                   t.k[(j * s.num_kv_heads + g) * s.head_dim + d];
        score *= s.scale;
        if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
        if (s.has_alibi) score -= double{t.slopes[h]} * std::abs(i + t.n_k - t.n_q - j);
        l += std::exp(score);
        for (int d = 0; d < s.v_head_dim; ++d)
          sum[d] += std::exp(score) * t.v[(j * s.num_kv_heads + g) * s.v_head_dim + d];
      }
      lse.push_back(std::log(l));
      if (s.has_sink) l += std::exp(double{t.sinks[h]});
      for (double x : sum)
        o.push_back(l > 0 ? x / l : 0.0);
    }
}

TEST(TorchNative, Fp64MatchesDenseMasks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto draw = [&](size_t n) {
    std::vector<float> x(n);
    for (float& e : x)
      e = normal(random);
    return x;
  };
  constexpr int kQ = 9, kK = 14, kP0 = kK - kQ;
  for (int variant = 0; variant < 10; ++variant) {
    SCOPED_TRACE(variant);
    Tiny t(6, 2, 5, 3, kQ, kK);
    t.spec.fp64_accumulate = true;
    t.spec.scale = 0.4f;
    t.q = draw(kQ * 6 * 5);
    t.k = draw(kK * 2 * 5);
    t.v = draw(kK * 2 * 3);
    t.sinks = draw(6);
    t.slopes = {0.5f, 0.25f, 0.1f, 0.05f, 0.7f, 0.3f};
    MaskSpec& m = t.spec.mask;
    if (variant == 1) m.window_left = 3;
    if (variant == 2) m.window_left = 2, m.sink_tokens = 2;
    if (variant == 3) m.chunk = 4;
    if (variant == 4) m.causal = false, m.window_left = 2, m.window_right = 1;
    if (variant == 5) m.spans = true, m.window_left = 1, t.spans = {{4, 8}, {10, 12}};
    if (variant == 6)
      m.packed = true, m.causal = false, t.packed = {0x5a, 0xc3, 0x99, 0x10, 0xff, 0x01, 0x77, 0xee,
                                                     0x24, 0x81, 0x3c, 0x42, 0x18, 0xf0, 0x0f, 0xaa};
    if (variant == 7) t.spec.softcap = 1.5f;
    if (variant == 8) t.spec.has_alibi = true;
    if (variant == 9) t.spec.has_sink = true;
    std::vector<std::vector<bool>> mask(kQ, std::vector<bool>(kK));
    for (int i = 0; i < kQ; ++i)
      for (int j = 0; j < kK; ++j) {
        const int p = kP0 + i;
        bool see = j <= p;
        if (variant == 1) see = j <= p && j >= p - 3;
        if (variant == 2) see = j <= p && (j >= p - 2 || j < 2);
        if (variant == 3) see = j <= p && j / 4 == p / 4;
        if (variant == 4) see = j >= p - 2 && j <= p + 1;
        if (variant == 5)
          see = (j <= p && j >= p - 1) || (4 <= p && p <= 8 && 4 <= j && j <= 8) ||
                (10 <= p && p <= 12 && 10 <= j && j <= 12);
        if (variant == 6) see = (t.packed[(i * kK + j) / 8] >> ((i * kK + j) % 8)) % 2 == 1;
        mask[i][j] = see;
      }
    ASSERT_EQ(t.run(), "");
    std::vector<double> o, lse;
    dense(t, mask, o, lse);
    for (size_t e = 0; e < o.size(); ++e)
      ASSERT_NEAR(t.o[e], o[e], 3e-7) << e;
    for (size_t e = 0; e < lse.size(); ++e)
      if (std::isfinite(lse[e]))
        ASSERT_NEAR(t.lse[e], lse[e], 5e-7) << e;
      else
        ASSERT_EQ(t.lse[e], -kInf) << e;
  }
}

/// Codes, scales and strides by the definition of KvView; primes distinguish them.
TEST(TorchNative, ReadsScalesAndPackedPages) {
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 1;
  spec.head_dim = 32;
  spec.v_head_dim = 2;
  spec.scale = 1;
  spec.page_size = 3;
  spec.kv_dtype = KvCacheDType::int8_per_token_head;
  spec.kv_x_packed = true;
  spec.fp64_accumulate = true;
  const int32_t q_offsets[] = {0, 1}, kv_lens[] = {1}, indptr[] = {1, 2}, indices[] = {77, 1};
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.kv_indptr = indptr;
  meta.kv_indices = indices;
  // Page 1, slot 0: K [D / 16, 3, 16] and V [2, 3] of a page.
  std::vector<int8_t> k(2 * 3 * 32, 99), v(2 * 3 * 2, 99);
  k[96 + 5] = 2;       // d = 5
  k[96 + 48 + 1] = 3;  // d = 17
  for (int d = 0; d < 32; ++d)
    if (d != 5 && d != 17) k[static_cast<size_t>(96 + d / 16 * 48 + d % 16)] = 0;
  v[6] = 7;
  v[9] = -11;
  std::vector<float> q(32), o(2, kNan), k_scales(6, kNan), v_scales(6, kNan);
  q[5] = 10;
  q[17] = 100;
  k_scales[3] = 0.5f;
  v_scales[3] = 0.25f;
  float lse = kNan;
  AttentionArgs args;
  args.q = q.data();
  args.q_row_stride = 32;
  args.out = o.data();
  args.out_row_stride = 2;
  args.lse = &lse;
  KvView& kv = args.kv;
  kv.k = k.data();
  kv.v = v.data();
  kv.dtype = spec.kv_dtype;
  kv.page_size = 3;
  kv.form = KvForm::x_packed;
  kv.k_page_stride = 96;
  kv.k_slot_stride = 16;
  kv.k_chunk_stride = 48;
  kv.v_page_stride = 6;
  kv.v_slot_stride = 1;
  kv.v_dim_stride = 3;
  kv.k_scale = 2;
  kv.v_scale = 8;
  kv.k_scales = k_scales.data();
  kv.v_scales = v_scales.data();
  kv.scale_page_stride = 3;
  kv.scale_slot_stride = 1;
  ThreadPool pool(1);
  Stream stream(pool);
  const auto backend = make_torch_native();
  const auto plan = backend->plan(spec, {1, 1, 1, 1}, meta, {}, stream);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(backend->forward_extend(**plan, args, stream).ok());
  EXPECT_EQ(lse, (10 * 2 + 100 * 3) * 2 * 0.5f);
  EXPECT_EQ(o, (std::vector<float>{7 * 8 * 0.25f, -11 * 8 * 0.25f}));
}

TEST(TorchNative, PlanRefusesWhatDisagrees) {
  ThreadPool pool(1);
  Stream stream(pool);
  const auto backend = make_torch_native();
  AttentionSpec spec = golden().spec;
  spec.page_size = 4;
  const std::vector<int32_t> offsets = {0, 2, 3}, lens = {9, 1}, table(6);
  const auto refusal = [&](auto change, AttentionLimits limits = {2, 3, 10, 9}) {
    BatchMeta meta;
    meta.q_offsets = offsets;
    meta.kv_lens = lens;
    meta.page_table = table;
    meta.page_table_stride = 3;
    AttentionSpec s = spec;
    change(meta, s);
    const auto plan = backend->plan(s, limits, meta, {}, stream);
    return plan ? std::string("accepted") : plan.error().message;
  };
  const std::vector<int32_t> decreasing = {0, 2, 1}, late = {1, 2, 3}, negative = {9, -1};
  const auto same = [](BatchMeta&, AttentionSpec&) {};
  EXPECT_EQ(refusal(same), "accepted");
  EXPECT_THAT(refusal(same, {1, 3, 10, 9}), HasSubstr("2 sequences exceeds the limit of 1"));
  EXPECT_THAT(refusal(same, {2, 2, 10, 9}), HasSubstr("q_offsets"));
  EXPECT_THAT(refusal(same, {2, 3, 9, 9}), HasSubstr("10 keys exceeds the limit of 9"));
  EXPECT_THAT(refusal(same, {2, 3, 10, 8}), HasSubstr("sequence 0 has 9 keys"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.q_offsets = decreasing; }), HasSubstr("decreases"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.q_offsets = late; }), HasSubstr("begin with 0"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.q_offsets = m.q_offsets.first(2); }),
              HasSubstr("q_offsets"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.kv_lens = negative; }), HasSubstr("-1 keys"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.page_table_stride = 2; }), HasSubstr("page table"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.page_table = m.page_table.first(3); }),
              HasSubstr("page table"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.page_size = 2; }), HasSubstr("page table"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.mask.spans = true; }), HasSubstr("span_offsets"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.mask.tree = true; }), HasSubstr("tree_size"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.mask.packed = true, s.mask.causal = false; }),
              HasSubstr("packed_offsets"));
  // Lists of pages: 3 and 1 are needed.
  const std::vector<int32_t> lists = {1, 4, 6}, falling = {4, 1, 6}, few = {0, 2, 6}, far = {0, 3, 7};
  const auto listed = [&](const std::vector<int32_t>& indptr, std::span<const int32_t> indices) {
    return refusal([&](BatchMeta& m, auto&) {
      m.page_table = {};
      m.kv_indptr = indptr;
      m.kv_indices = indices;
    });
  };
  EXPECT_EQ(listed(lists, table), "accepted");
  EXPECT_THAT(listed(falling, table), HasSubstr("kv_indptr decreases"));
  EXPECT_THAT(listed(far, table), HasSubstr("kv_indptr points outside"));
  EXPECT_THAT(listed({-1, 3, 6}, table), HasSubstr("kv_indptr points outside"));
  EXPECT_THAT(listed(few, table), HasSubstr("kv_indptr lists 2 pages for sequence 0; its 9 keys need 3"));
  EXPECT_THAT(listed({0, 3}, table), HasSubstr("kv_indptr has 2 entries"));
  EXPECT_THAT(listed(lists, {}), HasSubstr("kv_indptr points outside"));
  EXPECT_THAT(refusal([&](BatchMeta& m, auto&) { m.kv_indptr = lists, m.kv_indices = table; }),
              HasSubstr("give one of them"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.kv_x_packed = true, s.head_dim = 6; }),
              HasSubstr("multiple of 4"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.kv_dtype = KvCacheDType::nvfp4; }),
              HasSubstr("kv_cache_dtype not supported (--kv-cache-dtype auto: it takes auto, float32, "
                        "float16, bfloat16, fp8_e4m3, fp8_e5m2, int8_per_token_head)"));
  EXPECT_THAT(refusal([&](auto&, AttentionSpec& s) { s.head_dim = 1025; }),
              HasSubstr("head_size not supported"));
}

}  // namespace
}  // namespace fovea
