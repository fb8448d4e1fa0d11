// CPU_MLA: a head's bits don't depend on the heads and rows beside it, whatever lanes and tiles they get.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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

/// Heads [first, first + heads) of the rows [row, row + rows) of the sequence.
Outputs run(AttentionBackend& backend, const Inputs& in, int first, int heads, int row, int rows) {
  AttentionSpec spec;
  spec.use_mla = true;
  spec.num_heads = heads;
  spec.num_kv_heads = 1;
  spec.head_dim = kD;
  spec.v_head_dim = kDv;
  spec.scale = 0.06f;
  spec.page_size = kPage;
  spec.fp64_accumulate = backend.info().capability.features.has(Feature::fp64_accumulate);
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
  args.kv = latent_view(KvCacheDType::float32, kPage, kD);
  args.kv.k = args.kv.v = in.records.data();
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

INSTANTIATE_TEST_SUITE_P(, CpuMla, ::testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& given) { return std::string(to_string(given.param)); });

}  // namespace
}  // namespace fovea
