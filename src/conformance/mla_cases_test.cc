// Cases of rows with MLA: what they are, and that they find the defects that MLA's kernels tend to have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/thread_pool.h"
#include "conformance/case_space.h"
#include "conformance/mutant.h"
#include "conformance/run.h"
#include "fovea/attention.h"

namespace fovea::conformance {
namespace {

/// The sizes of a GPU's kernels: two records, each with its own latent.
const BackendInfo& two_records() {
  static const BackendInfo info = [] {
    BackendInfo row = cpu_mla_info();
    row.capability.head_dims = {288, 576};
    row.capability.v_head_dims = {256, 512};
    row.capability.page_sizes = {1, 7, 16, 64};
    row.capability.features = row.capability.features.without({Feature::tree_mask, Feature::non_causal});
    row.supports_combination = [](const AttentionSpec& s, const DeviceInfo&) -> std::optional<Reason> {
      if (s.head_dim - s.v_head_dim == s.head_dim / 9) return {};
      return Reason{"another latent not supported", {}};
    };
    return row;
  }();
  return info;
}

/// The first `most` of the cases with common and with large sizes.
std::vector<Case> cases_of(const BackendInfo& info, size_t most) {
  const CaseSpace space(info, {});
  std::vector<Levels> rows = space.large_rows(3, static_cast<int>(most / 2));
  for (Levels& row : space.common_rows(4, static_cast<int>(most)))
    rows.push_back(std::move(row));
  std::vector<Case> cases;
  uint64_t seed = 7;
  for (size_t i = 0; i < rows.size() && cases.size() < most; ++i) {
    // Large and common ones in turn.
    Case c = space.make(rows[i % 2 == 0 ? i / 2 : rows.size() - 1 - i / 2], ++seed);
    if (c.layout.place == KvPlace::far) continue;  // slow
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Lists of keys, over records of floats and of bytes.
const BackendInfo& sparse_records() {
  static const BackendInfo info = [] {
    BackendInfo row = cpu_mla_sparse_info();
    row.capability.head_dims = {576};
    row.capability.v_head_dims = {512};
    row.capability.page_sizes = {1, 7, 16, 64};
    row.capability.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::fp8_e4m3, KvCacheDType::fp8_ds_mla};
    return row;
  }();
  return info;
}

/// Cases of at most 12 million multiply-adds.
std::vector<Case> small_cases(size_t most, const BackendInfo& info = two_records()) {
  std::vector<Case> cases;
  for (Case& c : cases_of(info, 3 * most)) {
    const AttentionSpec& spec = c.problem.spec;
    int64_t pairs = 0;
    for (const Sequence& s : c.problem.seqs)
      pairs += int64_t{s.n_q} * s.n_k;
    if (pairs * spec.num_heads * (spec.head_dim + spec.v_head_dim) > 12'000'000 || cases.size() == most)
      continue;
    cases.push_back(std::move(c));
  }
  return cases;
}

TEST(MlaCases, TheBeginningOfEachRecordIsItsValue) {
  for (const Case& c : cases_of(two_records(), 30)) {
    const AttentionSpec& spec = c.problem.spec;
    EXPECT_TRUE(spec.use_mla);
    EXPECT_EQ(spec.num_kv_heads, 1);
    EXPECT_EQ(spec.head_dim - spec.v_head_dim, spec.head_dim / 9);
    EXPECT_TRUE(validate(two_records(), spec, {}, c.problem.phase).empty()) << c.problem.describe();
    for (const Sequence& s : c.problem.seqs)
      for (int64_t j = 0; j < s.n_k; ++j)
        ASSERT_TRUE(std::equal(s.v.begin() + j * spec.v_head_dim, s.v.begin() + (j + 1) * spec.v_head_dim,
                               s.k.begin() + j * spec.head_dim));
    const Batch batch(c.problem, c.layout);
    EXPECT_EQ(batch.num_pages() > 0, true);
  }
}

TEST(MlaCases, GapsBetweenRecordsAreSmall) {
  Problem problem;
  problem.spec = cases_of(two_records(), 1).front().problem.spec;
  problem.spec.page_size = 1024;
  problem.seqs = {make_sequence(problem.spec, 1, 5, 1)};
  ThreadPool pool(1);
  HostMachine machine(pool);
  const auto session = machine.open_session();
  for (const KvLayout kv : {KvLayout::hnd, KvLayout::nhd}) {
    const auto args = Batch(problem, {.kv = kv, .place = KvPlace::gaps}).upload_args(**session);
    ASSERT_TRUE(args);
    EXPECT_GT(args->kv.k_slot_stride, problem.spec.head_dim);
    EXPECT_LT(args->kv.k_page_stride, 2 * 1024 * problem.spec.head_dim);
    EXPECT_EQ(args->kv.v_page_stride, args->kv.k_page_stride);
  }
}

TEST(MlaCases, CoverManyHeadsAndSplits) {
  int most_heads = 0, longest = 0, drafts = 0;
  for (const Case& c : cases_of(two_records(), 80)) {
    most_heads = std::max(most_heads, c.problem.spec.num_heads);
    for (const Sequence& s : c.problem.seqs) {
      longest = std::max(longest, s.n_k);
      if (c.problem.phase == Phase::decode) drafts = std::max(drafts, s.n_q);
    }
  }
  EXPECT_EQ(most_heads, 128);
  EXPECT_GT(longest, 4096);  // several splits of every kernel
  EXPECT_GT(drafts, 1);
}

TEST(MlaCases, TheKernelsOfACpuPass) {
  ThreadPool pool(1);
  const auto backend = make_cpu_mla();
  for (const Case& c : small_cases(12))
    EXPECT_EQ(conform(*backend, c.problem, c.layout, pool), "");
}

/// TORCH_NATIVE, which knows no MLA, in place of a backend for it.
struct TwoTensors : Mutant {
  using Mutant::Mutant;
  Result<size_t> workspace_bytes(const AttentionSpec&, const AttentionLimits&) const override {
    return size_t{0};
  }
};

/// What the first of 12 cases to find the defect says; empty = none finds it.
std::string found(const std::function<void(Mutant&)>& defect) {
  ThreadPool pool(1);
  TwoTensors mutant(make_torch_native());
  mutant.claims = &two_records();
  mutant.spec = [](AttentionSpec& s) { s.use_mla = false; };
  defect(mutant);
  static const std::vector<Case> cases = small_cases(12);
  for (const Case& c : cases)
    if (std::string what = conform(mutant, c.problem, c.layout, pool); !what.empty()) return what;
  return {};
}

TEST(MlaCases, FindDefects) {
  const auto with_spec = [](auto change) {
    return [change](Mutant& m) {
      m.spec = [change](AttentionSpec& s) {
        s.use_mla = false;
        change(s);
      };
    };
  };
  const auto with_args = [](auto change) { return [change](Mutant& m) { m.before = change; }; };
  EXPECT_EQ(found([](Mutant&) {}), "") << "without a defect";
  EXPECT_NE(
      "",
      found(with_spec([](AttentionSpec& s) { s.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)); })))
      << "the scale of the absorbed size";
  EXPECT_NE("", found(with_spec([](AttentionSpec& s) { s.mask.causal = false; }))) << "drafts see each other";
  EXPECT_NE("", found(with_args([](AttentionArgs& a) {
              const auto* v = static_cast<const std::byte*>(a.kv.v);
              a.kv.v = v + 32 * size_of(a.kv.dtype);
            })))
      << "V is the end of a record";
  EXPECT_NE("", found(with_args([](AttentionArgs& a) { a.kv.v_scale = 1; }))) << "V without the scale";
  EXPECT_NE("", found(with_args([](AttentionArgs& a) { a.kv.v_slot_stride = a.kv.v_slot_stride / 9 * 8; })))
      << "V as a tensor of its own";
}

TEST(SparseMlaCases, ListKeysWithGapsAndBytes) {
  bool bytes = false, listed = false, left_out = false;
  for (const Case& c : cases_of(sparse_records(), 40)) {
    const AttentionSpec& spec = c.problem.spec;
    EXPECT_TRUE(spec.use_sparse && spec.sparse_topk > 0);
    EXPECT_TRUE(validate(sparse_records(), spec, {}, c.problem.phase).empty()) << c.problem.describe();
    bytes = bytes || spec.kv_dtype == KvCacheDType::fp8_ds_mla;
    for (const Sequence& s : c.problem.seqs) {
      listed = listed || (s.n_q > 0 && s.n_k > 0);
      left_out = left_out || (s.n_q > 0 && s.n_k > spec.sparse_topk);
    }
  }
  EXPECT_TRUE(bytes);
  EXPECT_TRUE(listed);
  EXPECT_TRUE(left_out);
}

TEST(SparseMlaCases, TheKernelsOfACpuPass) {
  ThreadPool pool(1);
  const auto fast = make_cpu_mla_sparse(), plain = make_torch_native_mla_sparse();
  int turn = 0;
  for (const Case& c : small_cases(12, sparse_records())) {
    EXPECT_EQ(conform(*fast, c.problem, c.layout, pool), "");
    if (++turn % 4 == 0) {
      EXPECT_EQ(conform(*plain, c.problem, c.layout, pool), "");
    }
  }
}

TEST(SparseMlaCases, FindDefects) {
  ThreadPool pool(1);
  const std::vector<Case> cases = small_cases(12, sparse_records());
  const auto found = [&](auto change) {
    Mutant mutant(make_cpu_mla_sparse());
    mutant.before = change;
    for (const Case& c : cases)
      if (std::string what = conform(mutant, c.problem, c.layout, pool); !what.empty()) return what;
    return std::string();
  };
  EXPECT_EQ(found([](AttentionArgs&) {}), "") << "without a defect";
  EXPECT_NE(found([](AttentionArgs& a) { ++a.chosen; }), "") << "the first key is lost";
  EXPECT_NE(found([](AttentionArgs& a) { a.chosen_row_stride = 0; }), "") << "the first row's list";
  EXPECT_NE(found([](AttentionArgs& a) { --a.chosen_row_stride; }), "") << "rows without padding";
  Mutant fewer(make_cpu_mla_sparse());
  fewer.spec = [](AttentionSpec& s) { s.sparse_topk = std::max(1, s.sparse_topk / 2); };
  std::string what;
  for (size_t i = 0; i < cases.size() && what.empty(); ++i)
    what = conform(fewer, cases[i].problem, cases[i].layout, pool);
  EXPECT_NE(what, "") << "half of the list";
}

}  // namespace
}  // namespace fovea::conformance
