// CPU_MLA: a head's bits don't depend on the heads and rows beside it, whatever lanes and tiles they get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "attention/kv_view.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/aligned.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "kernels/cache/ds_mla.h"

namespace fovea {
namespace {

constexpr int kD = 576, kDv = 512, kPage = 7, kKeys = 1100, kRows = 3, kHeads = 71;

struct Inputs {
  std::vector<float> q, records;
  std::vector<int32_t> pages;

  Inputs() : q(kRows * kHeads * kD), pages((kKeys + kPage - 1) / kPage) {
    records.resize((pages.size() + 1) * kPage * kD, std::nanf(""));
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& x : q)
      x = normal(random);
    std::iota(pages.begin(), pages.end(), 1);
    std::shuffle(pages.begin(), pages.end(), random);
    for (int64_t j = 0; j < kKeys; ++j)
      for (int64_t d = 0; d < kD; ++d)
        records[static_cast<size_t>((pages[static_cast<size_t>(j / kPage)] * kPage + j % kPage) * kD + d)] =
            normal(random);
  }
};

struct Outputs {
  std::vector<float> o, lse;
};

/// Heads [first, first + heads) of the rows [row, row + rows) of the sequence; with lists [kRows, topk], over
/// the keys that these name.
Outputs run(AttentionBackend& backend, const Inputs& in, int first, int heads, int row, int rows,
            const std::vector<int32_t>& chosen = {}, const std::vector<std::byte>& ds_mla = {}) {
  AttentionSpec spec;
  spec.use_mla = true;
  spec.num_heads = heads;
  spec.num_kv_heads = 1;
  spec.head_dim = kD;
  spec.v_head_dim = kDv;
  spec.scale = 0.06f;
  spec.page_size = kPage;
  if (!ds_mla.empty()) spec.kv_dtype = KvCacheDType::fp8_ds_mla;
  spec.fp64_accumulate = backend.info().capability.features.has(Feature::fp64_accumulate);
  spec.use_sparse = !chosen.empty();
  spec.sparse_topk = static_cast<int>(chosen.size()) / kRows;
  const int32_t offsets[] = {0, rows}, lens[] = {kKeys - kRows + row + rows};
  BatchMeta meta;
  meta.phase = Phase::decode;
  meta.q_offsets = offsets;
  meta.kv_lens = lens;
  meta.page_table = in.pages;
  meta.page_table_stride = static_cast<int64_t>(in.pages.size());
  const AttentionLimits limits{1, rows, kKeys, kKeys};
  ThreadPool pool(2);
  Stream stream(pool);
  AlignedArray<std::byte> workspace(*backend.workspace_bytes(spec, limits));
  const auto plan = backend.plan(spec, limits, meta, workspace, stream);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  Outputs out{std::vector<float>(static_cast<size_t>(rows * heads * kDv), std::nanf("")),
              std::vector<float>(static_cast<size_t>(rows * heads), std::nanf(""))};
  AttentionArgs args;
  args.q = in.q.data() + (row * kHeads + first) * kD;
  args.q_row_stride = kHeads * kD;
  args.out = out.o.data();
  args.out_row_stride = int64_t{heads} * kDv;
  args.lse = out.lse.data();
  args.chosen = chosen.empty() ? nullptr : chosen.data() + row * spec.sparse_topk;
  args.chosen_row_stride = spec.sparse_topk;
  args.kv = latent_view(ds_mla.empty() ? KvCacheDType::float32 : KvCacheDType::fp8_ds_mla, kPage, kD, kDv);
  args.kv.k = args.kv.v = ds_mla.empty() ? static_cast<const void*>(in.records.data()) : ds_mla.data();
  EXPECT_TRUE(backend.forward_decode(**plan, args, stream).ok());
  return out;
}

class CpuMla : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > detect_isa()) GTEST_SKIP() << "this CPU lacks it";
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(detect_isa()); }
};

TEST_P(CpuMla, AHeadsBitsDontDependOnItsNeighbours) {
  const Inputs in;
  const auto backend = make_cpu_mla();
  const Outputs all = run(*backend, in, 0, kHeads, 0, kRows);
  struct Part {
    int first, heads, row, rows;
  };
  for (const Part p : {Part{0, 1, 0, 1}, Part{70, 1, 2, 1}, Part{13, 16, 1, 2}, Part{40, 17, 0, 3},
                       Part{5, 33, 2, 1}, Part{3, 64, 0, 1}, Part{8, 5, 0, 3}}) {
    const Outputs part = run(*backend, in, p.first, p.heads, p.row, p.rows);
    for (int r = 0; r < p.rows; ++r)
      for (int h = 0; h < p.heads; ++h) {
        const auto whole = static_cast<size_t>((p.row + r) * kHeads + p.first + h);
        const auto own = static_cast<size_t>(r * p.heads + h);
        EXPECT_EQ(std::memcmp(&all.o[whole * kDv], &part.o[own * kDv], kDv * sizeof(float)), 0)
            << "row " << p.row + r << " head " << p.first + h << " of " << p.heads;
        EXPECT_EQ(all.lse[whole], part.lse[own]);
      }
  }
}

TEST_P(CpuMla, AgreesWithTheTextbook) {
  const Inputs in;
  const Outputs got = run(*make_cpu_mla(), in, 0, kHeads, 0, kRows);
  const Outputs want = run(*make_torch_native_mla(), in, 0, kHeads, 0, kRows);
  for (size_t i = 0; i < got.o.size(); ++i)
    ASSERT_NEAR(got.o[i], want.o[i], 5e-6) << i;
  for (size_t i = 0; i < got.lse.size(); ++i)
    ASSERT_NEAR(got.lse[i], want.lse[i], 2e-5) << i;
}

/// The records as fp8_ds_mla, with scales that are no powers of two, and NaN where there are none.
std::vector<std::byte> ds_mla_records(const Inputs& in) {
  constexpr auto kBytes = static_cast<size_t>(ds_mla_bytes(kDv, kD - kDv));
  std::vector<std::byte> out(in.records.size() / kD * kBytes);
  for (size_t slot = 0; slot < in.records.size() / kD; ++slot) {
    std::byte* record = out.data() + slot * kBytes;
    store_ds_mla(in.records.data() + slot * kD, kDv, kD - kDv, record);
    for (size_t group = 0; group < 4; ++group) {
      float scale = 0;
      std::memcpy(&scale, record + kDv + group * 4, 4);
      scale *= 1.0f + 0.1f * static_cast<float>(group);
      std::memcpy(record + kDv + group * 4, &scale, 4);
    }
  }
  return out;
}

/// Lists [kRows, topk] of distinct keys, ascending, with others outside of the sequence between them.
std::vector<int32_t> random_lists(int topk, int keys) {
  std::mt19937 random(static_cast<uint32_t>(topk));
  std::vector<int32_t> out;
  for (int r = 0; r < kRows; ++r) {
    std::vector<int32_t> all(static_cast<size_t>(keys));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    std::vector<int32_t> list(all.begin(), all.begin() + topk / 2);
    std::sort(list.begin(), list.end());
    list.resize(static_cast<size_t>(topk), -1);
    const int32_t outside[] = {-1, kKeys, std::numeric_limits<int32_t>::max(),
                               std::numeric_limits<int32_t>::min()};
    for (size_t i = 0; i < list.size(); i += 3)  // moves the last ones into gaps
      if (list[i] >= 0 && list.back() < 0) {
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(i), list.end() - 1, list.end());
        list[i] = outside[i % 4];
      }
    out.insert(out.end(), list.begin(), list.end());
  }
  return out;
}

TEST_P(CpuMla, ListedKeysAgreeWithTheTextbook) {
  const Inputs in;
  for (const int topk : {1, 2, 70, 640, 2100}) {
    const std::vector<int32_t> lists = random_lists(topk, std::min(kKeys - kRows, kKeys));
    const Outputs got = run(*make_cpu_mla_sparse(), in, 0, kHeads, 0, kRows, lists);
    const Outputs want = run(*make_torch_native_mla_sparse(), in, 0, kHeads, 0, kRows, lists);
    for (size_t i = 0; i < got.o.size(); ++i)
      ASSERT_NEAR(got.o[i], want.o[i], 2e-5) << topk << " at " << i;
    for (size_t i = 0; i < got.lse.size(); ++i)
      ASSERT_TRUE(got.lse[i] == want.lse[i] || std::abs(got.lse[i] - want.lse[i]) < 2e-5f)
          << topk << " at " << i << ": " << got.lse[i] << " and " << want.lse[i];  // or both -inf
  }
}

TEST_P(CpuMla, ReadsRecordsOfBytes) {
  const Inputs in;
  const std::vector<std::byte> records = ds_mla_records(in);
  for (const int topk : {70, 2100}) {
    const std::vector<int32_t> lists = random_lists(topk, kKeys - kRows);
    const Outputs got = run(*make_cpu_mla_sparse(), in, 0, kHeads, 0, kRows, lists, records);
    const Outputs want = run(*make_torch_native_mla_sparse(), in, 0, kHeads, 0, kRows, lists, records);
    for (size_t i = 0; i < got.o.size(); ++i)
      ASSERT_NEAR(got.o[i], want.o[i], 2e-5) << topk << " at " << i;
    for (size_t i = 0; i < got.lse.size(); ++i)
      ASSERT_NEAR(got.lse[i], want.lse[i], 5e-5) << topk << " at " << i;
  }
}

TEST_P(CpuMla, ARowThatListsAllKeysHasTheBitsOfDenseAttention) {
  const Inputs in;
  const Outputs dense = run(*make_cpu_mla(), in, 0, kHeads, 0, kRows);
  std::vector<int32_t> lists(kRows * (kKeys + 9), -1);
  for (int r = 0; r < kRows; ++r)
    std::iota(lists.begin() + r * (kKeys + 9), lists.begin() + r * (kKeys + 9) + kKeys - kRows + r + 1, 0);
  const Outputs sparse = run(*make_cpu_mla_sparse(), in, 0, kHeads, 0, kRows, lists);
  EXPECT_EQ(sparse.o, dense.o);
  EXPECT_EQ(sparse.lse, dense.lse);
  const Outputs alone = run(*make_cpu_mla_sparse(), in, 9, 20, 1, 1, lists);
  for (size_t h = 0; h < 20; ++h)
    EXPECT_EQ(std::memcmp(&alone.o[h * kDv], &dense.o[(kHeads + 9 + h) * kDv], kDv * sizeof(float)), 0);
}

TEST(SparseMla, RefusesStepsWithoutLists) {
  const Inputs in;
  const auto backend = make_cpu_mla_sparse();
  AttentionSpec spec;
  spec.use_mla = spec.use_sparse = true;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = kD;
  spec.v_head_dim = kDv;
  spec.scale = 1;
  spec.page_size = kPage;
  ThreadPool pool(1);
  Stream stream(pool);
  EXPECT_THAT(backend->plan(spec, {1, 1, 8, 8}, {}, {}, stream).error().message,
              testing::HasSubstr("sparse_topk = 0"));
  spec.sparse_topk = 4;
  const int32_t offsets[] = {0, 1}, lens[] = {3};
  BatchMeta meta;
  meta.q_offsets = offsets;
  meta.kv_lens = lens;
  meta.page_table = in.pages;
  meta.page_table_stride = static_cast<int64_t>(in.pages.size());
  AlignedArray<std::byte> workspace(*backend->workspace_bytes(spec, {1, 1, 8, 8}));
  const auto plan = backend->plan(spec, {1, 1, 8, 8}, meta, workspace, stream);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  AttentionArgs args;
  args.kv = latent_view(KvCacheDType::float32, kPage, kD);
  EXPECT_THAT(backend->forward_extend(**plan, args, stream).error().message,
              testing::HasSubstr("without AttentionArgs::chosen"));
  args.chosen = lens;
  args.chosen_row_stride = 3;
  EXPECT_THAT(backend->forward_extend(**plan, args, stream).error().message,
              testing::HasSubstr("rows 3 entries apart"));
}

INSTANTIATE_TEST_SUITE_P(, CpuMla, ::testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& given) { return std::string(to_string(given.param)); });

}  // namespace
}  // namespace fovea
