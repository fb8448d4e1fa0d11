// Graphs on the CPU: a backend with a correct lifecycle, and some with defects. A replay calls the recorded
// function.
#include "conformance/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/torch_native/torch_native.h"
#include "conformance/mutant.h"
#include "conformance/prove.h"

namespace fovea::conformance {
namespace {

using ::testing::HasSubstr;

const BackendInfo& claims() {
  static const BackendInfo info = [] {
    BackendInfo small = torch_native_info();
    small.capability.head_dims = small.capability.v_head_dims = {64};
    small.capability.page_sizes = {16, 64};
    small.capability.gqa_ratios = {2};
    small.capability.kv_dtypes = {KvCacheDType::auto_};
    small.capability.types = {AttentionType::decoder};
    small.capability.features = {Feature::lse, Feature::verify, Feature::spans, Feature::packed_mask,
                                 Feature::tree_mask};
    small.capability.invariance = {};
    small.capability.graph = GraphSupport::always;
    return small;
  }();
  return info;
}

enum class Defect {
  none,
  first_replay,  ///< later replays repeat the first
  all_rows,      ///< writes as many rows as were captured
};

/// TORCH_NATIVE with the lifecycle of graphs.
class Graphs : public Mutant {
 public:
  explicit Graphs(Defect defect) : Mutant(make_torch_native()), defect_(defect) {
    claims = &conformance::claims();
  }

  Result<size_t> init_graph_state(const AttentionSpec& s, const AttentionLimits& limits) override {
    return workspace_bytes(s, limits);
  }
  Result<std::unique_ptr<Plan>> plan_for_capture(const AttentionSpec& s, const AttentionLimits& limits,
                                                 const BatchMeta& step, Workspace workspace,
                                                 Stream&) override {
    auto plan = std::make_unique<Captured>();
    plan->spec = s;
    plan->limits = limits;
    plan->step = step;
    plan->workspace = workspace;
    return std::unique_ptr<Plan>(std::move(plan));
  }
  Status plan_for_replay(Plan& plan, const BatchMeta& step, Stream& stream) override {
    auto& captured = dynamic_cast<Captured&>(plan);
    if (defect_ == Defect::first_replay && captured.current != nullptr) return {};
    const BatchMeta& taken = defect_ == Defect::all_rows ? captured.step : step;
    FOVEA_TRY(current, inner->plan(captured.spec, captured.limits, taken, captured.workspace, stream));
    captured.current = std::move(current);
    return {};
  }

 protected:
  Status forward(Forward which, const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    const auto* captured = dynamic_cast<const Captured*>(&plan);
    return Mutant::forward(which, captured != nullptr ? *captured->current : plan, args, stream);
  }

 private:
  struct Captured : Plan {
    AttentionSpec spec;
    AttentionLimits limits;
    BatchMeta step;
    Workspace workspace;
    std::unique_ptr<Plan> current;
  };

  Defect defect_;
};

BackendReport prove_graphs(Defect defect, const char* level) {
  ProveOptions options;
  options.quick = true;
  options.threads = 2;
  options.only_cell = Cell{"graph", level, true};
  auto report = prove(claims(), [defect] { return std::make_unique<Graphs>(defect); }, options);
  EXPECT_TRUE(report) << report.error().message;
  return *std::move(report);
}

TEST(Graph, EachLevelIsProven) {
  for (const char* level : {"UNIFORM_SINGLE_TOKEN_DECODE", "UNIFORM_BATCH", "ALWAYS"}) {
    const BackendReport report = prove_graphs(Defect::none, level);
    EXPECT_THAT(report.failures, ::testing::IsEmpty());
    ASSERT_EQ(report.proof.cells.size(), 1u);
    EXPECT_EQ(report.proof.cells[0].status, CellStatus::proven) << report.proof.cells[0].reason;
  }
}

TEST(Graph, WhatDoesNotFollowItsArraysIsFound) {
  const auto wrong = [](Defect defect) {
    const BackendReport report = prove_graphs(defect, "UNIFORM_SINGLE_TOKEN_DECODE");
    EXPECT_GT(report.failed_cases, 0);
    return report.failures.empty() ? "" : report.failures.front().what;
  };
  EXPECT_THAT(wrong(Defect::first_replay), HasSubstr("by a graph: "));
  EXPECT_THAT(wrong(Defect::all_rows), HasSubstr("wrote outside the"));
}

TEST(Graph, UniformCasesHaveAsManyRowsEach) {
  const CaseSpace space(claims(), {});
  int seen = 0;
  for (const Levels& row : space.rows(1)) {
    const Case c = space.make(row, 7);
    if (!c.graph || *c.graph == GraphSupport::always) continue;
    for (const Sequence& s : c.problem.seqs)
      EXPECT_EQ(s.n_q, c.problem.seqs.front().n_q) << space.describe(row);
    if (*c.graph == GraphSupport::uniform_single_token_decode) {
      EXPECT_EQ(c.problem.seqs.front().n_q, 1) << space.describe(row);
    }
    ++seen;
  }
  EXPECT_GT(seen, 10);
}

}  // namespace
}  // namespace fovea::conformance
