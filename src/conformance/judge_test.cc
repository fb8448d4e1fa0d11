// The conformance library must find defects: each mutant of TORCH_NATIVE has one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/torch_native/torch_native.h"
#include "base/thread_pool.h"
#include "conformance/mutant.h"
#include "conformance/run.h"

namespace fovea::conformance {
namespace {

Mutant mutant() {
  return Mutant(make_torch_native());
}

class Defects : public ::testing::TestWithParam<DType> {
 protected:
  Defects() {
    AttentionSpec& spec = problem_.spec;
    spec.num_heads = 4;
    spec.num_kv_heads = 2;
    spec.head_dim = spec.v_head_dim = 32;
    spec.scale = 1.0f / std::sqrt(32.0f);
    spec.page_size = 3;
    spec.dtype = GetParam();
    spec.mask.window_left = 30;
    spec.has_sink = true;
    problem_.sinks = {1, 2, 0, -1};
    problem_.seqs = {make_sequence(spec, 5, 40, 1), make_sequence(spec, 1, 33, 2, {.qk_gain = 4})};
  }
  std::string verdict(Mutant m, Layout layout = {.row_padding = 4}) {
    ThreadPool pool(1);
    return conform(m, problem_, layout, pool);
  }
  Problem problem_;
};

TEST_P(Defects, NoneIsAccepted) {
  EXPECT_EQ(verdict(mutant()), "");
}

TEST_P(Defects, WindowWiderByOneReadsPoison) {
  Mutant m = mutant();
  m.spec = [](AttentionSpec& s) { s.mask.window_left = 31; };
  EXPECT_NE(verdict(std::move(m)), "");
}

TEST_P(Defects, WindowNarrowerByOne) {
  Mutant m = mutant();
  m.spec = [](AttentionSpec& s) { s.mask.window_left = 29; };
  EXPECT_NE(verdict(std::move(m)), "");
}

TEST_P(Defects, ForgottenSink) {
  Mutant m = mutant();
  m.spec = [](AttentionSpec& s) { s.has_sink = false; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("O of sequence 0"));
}

TEST_P(Defects, SinkInTheLse) {
  Mutant m = mutant();
  m.spec = [](AttentionSpec& s) { s.lse_includes_sink = true; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("LSE of sequence 0"));
}

TEST_P(Defects, ScaleOffByAPercent) {
  Mutant m = mutant();
  m.spec = [](AttentionSpec& s) { s.scale *= 1.01f; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("LSE"));
}

TEST_P(Defects, WrongQueryHead) {
  Mutant m = mutant();
  m.before = [](AttentionArgs& a) { a.kv.v_head_stride = 0; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("O of sequence"));
}

TEST_P(Defects, WritesBetweenRows) {
  Mutant m = mutant();
  const size_t size = size_of(GetParam());
  m.after = [size](const AttentionArgs& a) { static_cast<char*>(a.out)[4 * 32 * size] = 0; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("wrote between the output's rows"));
}

TEST_P(Defects, WritesPastTheEnd) {
  Mutant m = mutant();
  const size_t size = size_of(GetParam());
  m.after = [size](const AttentionArgs& a) {
    static_cast<char*>(a.out)[6 * a.out_row_stride * static_cast<int64_t>(size)] = 0;
  };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("wrote outside the output's rows"));
  m = mutant();
  m.after = [](const AttentionArgs& a) { a.lse[6 * 4] = 0; };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("wrote outside the LSE's rows"));
}

TEST_P(Defects, ForgetsARow) {
  Mutant m = mutant();
  m.after = [](const AttentionArgs& a) { a.lse[3] = -std::numeric_limits<float>::infinity(); };
  EXPECT_THAT(verdict(std::move(m)), ::testing::HasSubstr("LSE of sequence 0"));
}

/// A wrong mask in the reference, and so in all kernels that share its code.
TEST_P(Defects, AnOracleOfAnotherMaskIsNamed) {
  ThreadPool pool(1);
  const Output textbook = naive(problem_);
  const Output want = reference(problem_, pool);
  EXPECT_EQ(judge(problem_, want, want, textbook), "");
  Problem wider = problem_;
  wider.spec.mask.window_left += 1;
  Output other = reference(wider, pool);
  EXPECT_THAT(judge(problem_, other, other, textbook), ::testing::HasSubstr("the textbook's LSE"));
  other.lse = want.lse;  // O alone also shows it
  EXPECT_THAT(judge(problem_, other, other, textbook), ::testing::HasSubstr("the textbook's O"));
}

/// Defects specific to quantised caches and x-packed pages.
TEST(KvDefects, NoneIsAccepted) {
  ThreadPool pool(1);
  int spec_page_size = 4;
  const auto verdict = [&](KvCacheDType dtype, KvLayout layout, std::function<void(KvView&)> defect) {
    Problem problem;
    AttentionSpec& spec = problem.spec;
    spec.num_heads = 4;
    spec.num_kv_heads = 2;
    spec.head_dim = spec.v_head_dim = 32;
    spec.scale = 1.0f / std::sqrt(32.0f);
    spec.page_size = spec_page_size;
    spec.kv_dtype = dtype;
    problem.seqs = {make_sequence(spec, 5, 40, 1)};
    Mutant m = mutant();
    if (defect) m.before = [&](AttentionArgs& args) { defect(args.kv); };
    return conform(m, problem, {.kv = layout}, pool);
  };
  const auto e4m3 = KvCacheDType::fp8_e4m3, int8 = KvCacheDType::int8_per_token_head;
  for (const KvCacheDType dtype : {e4m3, KvCacheDType::fp8_e5m2, int8})
    for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed})
      EXPECT_EQ(verdict(dtype, layout, nullptr), "");
  EXPECT_NE(verdict(e4m3, KvLayout::hnd, [](KvView& kv) { kv.k_scale *= 1.01f; }), "");
  EXPECT_NE(verdict(e4m3, KvLayout::hnd, [](KvView& kv) { kv.v_scale = 1; }), "");
  EXPECT_NE(verdict(e4m3, KvLayout::hnd, [](KvView& kv) { kv.dtype = KvCacheDType::fp8_e5m2; }), "");
  EXPECT_NE(verdict(int8, KvLayout::hnd, [](KvView& kv) { std::swap(kv.k_scales, kv.v_scales); }), "");
  EXPECT_NE(verdict(int8, KvLayout::hnd, [](KvView& kv) { kv.scale_head_stride = 0; }), "");
  EXPECT_NE(verdict(int8, KvLayout::hnd, [](KvView& kv) { kv.scale_slot_stride = 0; }), "");
  EXPECT_NE(verdict(e4m3, KvLayout::x_packed, [](KvView& kv) { kv.k_chunk_stride = 16; }), "");
  EXPECT_NE(verdict(e4m3, KvLayout::x_packed, [](KvView& kv) { kv.v_dim_stride = 1; }), "");
  spec_page_size = 32;  // two runs of 16 slots
  for (const KvCacheDType dtype : {e4m3, int8})
    EXPECT_EQ(verdict(dtype, KvLayout::shuffle, nullptr), "");
  EXPECT_NE(verdict(e4m3, KvLayout::shuffle, [](KvView& kv) { kv.v_chunk_stride += 16; }), "");
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Defects, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& p) { return std::string(to_string(p.param)); });

}  // namespace
}  // namespace fovea::conformance
