// Memory layouts of problems that no CPU backend reads.
#include "conformance/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/torch_native/torch_native.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "conformance/mutant.h"
#include "conformance/run.h"

namespace fovea::conformance {
namespace {

Problem example(KvCacheDType kv, int page_size) {
  Problem p;
  AttentionSpec& spec = p.spec;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 16;
  spec.v_head_dim = 24;
  spec.scale = 0.25f;
  spec.kv_dtype = kv;
  spec.page_size = page_size;
  for (const auto& [n_q, n_k] : {std::pair{3, 40}, {1, 17}, {0, 5}, {2, 0}, {5, 5}})
    p.seqs.push_back(make_sequence(spec, n_q, n_k, static_cast<uint64_t>(n_k)));
  return p;
}

TEST(Batch, RaggedRowsAreThoseOfTheSequences) {
  const Problem problem = example(KvCacheDType::auto_, 1);
  ThreadPool pool(1);
  // A list of row ids describes pages of one token.
  Mutant lists(make_torch_native());
  lists.meta = [](const AttentionSpec&, BatchMeta& meta, Mutant::Step& step) {
    ASSERT_TRUE(meta.page_table.empty() && meta.kv_indices.empty());
    step.kv_indices.resize(static_cast<size_t>(meta.kv_indptr.back()));
    std::iota(step.kv_indices.begin(), step.kv_indices.end(), 0);
    meta.kv_indices = step.kv_indices;
  };
  const Output want = run(*make_torch_native(), problem, {}, pool);
  ASSERT_EQ(want.error, "");
  for (const bool null_page : {false, true}) {
    Layout layout;
    layout.ragged = true;
    layout.null_page = null_page;
    layout.share_pages = true;
    const Output got = run(lists, problem, layout, pool);
    EXPECT_EQ(got.error, "");
    EXPECT_TRUE(got == want);
  }
}

TEST(Batch, ASequenceWithoutTokensAndPhaseSaysBoth) {
  Problem problem = example(KvCacheDType::auto_, 16);
  problem.phase = Phase::decode;
  const Batch batch(problem, {});
  EXPECT_EQ(batch.meta().phase, Phase::decode);
  EXPECT_EQ(batch.meta().tokens, 11);
}

TEST(Batch, ScalesOfHeads) {
  Problem problem = example(KvCacheDType::fp8_e4m3, 16);
  problem.spec.needs.insert(Feature::per_head_scales);
  problem.seqs = {make_sequence(problem.spec, 1, 3, 9)};
  Layout layout;
  layout.order = PageOrder::ascending;
  const Batch batch(problem, layout);
  ThreadPool pool(1);
  HostMachine machine(pool);
  const auto session = machine.open_session();
  const auto args = batch.upload_args(**session);
  const KvView& kv = args->kv;
  EXPECT_EQ(kv.scale_page_stride, 0);
  EXPECT_EQ(kv.scale_slot_stride, 0);
  const auto* k = static_cast<const uint8_t*>(kv.k);
  for (int j = 0; j < 3; ++j)
    for (int h = 0; h < 2; ++h)
      for (int d = 0; d < 16; ++d) {
        const float code = e4m3_to_float(k[h * kv.k_head_stride + j * kv.k_slot_stride + d]);
        const float value = code * (kv.k_scale * kv.k_scales[h * kv.scale_head_stride]);
        EXPECT_FLOAT_EQ(value, problem.seqs[0].k[(j * 2 + h) * 16 + d]);
      }
  EXPECT_NE(kv.k_scales[0], kv.k_scales[1]);
  EXPECT_NE(kv.k_scales[0], kv.v_scales[0]);
}

TEST(Batch, PlacesGiveTheSameBits) {
  ThreadPool pool(1);
  for (const int page_size : {1, 4, 16})
    for (const KvCacheDType kv :
         {KvCacheDType::float32, KvCacheDType::bfloat16, KvCacheDType::int8_per_token_head})
      for (const KvLayout kv_layout : {KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed}) {
        const Problem problem = example(kv, page_size);
        Layout layout;
        layout.kv = kv_layout;
        const Output want = run(*make_torch_native(), problem, layout, pool);
        ASSERT_EQ(want.error, "");
        for (const KvPlace place : {KvPlace::gaps, KvPlace::far}) {
          layout.place = place;
          layout.kv_gap = 3;
          EXPECT_TRUE(run(*make_torch_native(), problem, layout, pool) == want)
              << "page size " << page_size << " " << to_string(kv) << " " << to_string(kv_layout);
        }
      }
}

TEST(Batch, FarPagesAreBeyond32Bits) {
  Layout layout;
  layout.place = KvPlace::far;
  layout.order = PageOrder::descending;
  const Batch batch(example(KvCacheDType::fp8_e4m3, 16), layout);
  ThreadPool pool(1);
  HostMachine machine(pool);
  const auto session = machine.open_session();
  const auto args = batch.upload_args(**session);
  ASSERT_TRUE(args);
  const int64_t last = args->kv.num_pages - 1;
  EXPECT_EQ(batch.meta().page_table[0], last);
  EXPECT_GT(last * args->kv.k_page_stride, int64_t{1} << 31);
  EXPECT_GT(last * args->kv.v_page_stride, int64_t{1} << 31);
  EXPECT_EQ(args->kv.k_page_stride % 16, 0);
}

TEST(Batch, GapsAreAtEachLevel) {
  Layout layout;
  layout.place = KvPlace::gaps;
  for (const KvLayout kv_layout : {KvLayout::hnd, KvLayout::nhd}) {
    layout.kv = kv_layout;
    const Batch batch(example(KvCacheDType::auto_, 4), layout);
    ThreadPool pool(1);
    HostMachine machine(pool);
    const auto session = machine.open_session();
    const auto args = batch.upload_args(**session);
    const KvView& kv = args->kv;
    const int64_t inner = std::min(kv.k_slot_stride, kv.k_head_stride);
    const int64_t outer = std::max(kv.k_slot_stride, kv.k_head_stride);
    const int inner_count = kv_layout == KvLayout::nhd ? 2 : 4;
    EXPECT_GT(inner, 16);
    EXPECT_GT(outer, inner * inner_count);
    EXPECT_GT(kv.k_page_stride, outer * (8 / inner_count));
  }
}

TEST(Batch, DeclaredLimitsAreNeverLessThanTheStep) {
  const Problem problem = example(KvCacheDType::auto_, 16);
  Layout layout;
  layout.declared = {.max_seqs = 256, .max_tokens = 2, .max_kv_tokens = 1, .max_kv_len = 1 << 17};
  const AttentionLimits limits = Batch(problem, layout).limits();
  EXPECT_EQ(limits.max_seqs, 256);
  EXPECT_EQ(limits.max_tokens, 11);
  EXPECT_EQ(limits.max_kv_tokens, 67);
  EXPECT_EQ(limits.max_kv_len, 1 << 17);
}

}  // namespace
}  // namespace fovea::conformance
