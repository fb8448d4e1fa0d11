// Through the real engine: each backend plans at most once a step, and runs once a layer for each plan.
#include <atomic>

#include "backends/torch_native/torch_native.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

struct Counts {
  int plans = 0, extends = 0, decodes = 0;
  int plans_since_forward = 0;
  int most_plans_in_a_row = 0;  // more than one = planned twice for one step
};

class CountingBackend final : public AttentionBackend {
 public:
  explicit CountingBackend(Counts& counts) : counts_(counts), real_(make_torch_native()) {}
  const BackendInfo& info() const noexcept override { return real_->info(); }
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    return real_->workspace_bytes(spec, limits);
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    ++counts_.plans;
    counts_.most_plans_in_a_row = std::max(counts_.most_plans_in_a_row, ++counts_.plans_since_forward);
    return real_->plan(spec, limits, meta, workspace, stream);
  }
  void forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    ++counts_.extends;
    counts_.plans_since_forward = 0;
    real_->forward_extend(plan, args, stream);
  }
  void forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    ++counts_.decodes;
    counts_.plans_since_forward = 0;
    real_->forward_decode(plan, args, stream);
  }

 private:
  Counts& counts_;
  std::unique_ptr<AttentionBackend> real_;
};

constexpr int kLayers = 2;

BackendInfo info_named(std::string_view name) {
  BackendInfo info = torch_native_info();
  info.name = name;
  info.aliases = {};
  return info;
}

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> out;
  for (uint32_t i = 0; i < 4; ++i)
    out.push_back(test::greedy(test::prompt_of(30, i), 6 + static_cast<int>(i)));
  return out;
}

TEST(PlanOnce, OneBackendPlansOnceAStepAndRunsOnceALayer) {
  Counts counts;
  const BackendInfo info = info_named("COUNTED");
  BackendRegistry registry;
  registry.add(info, [&] { return std::make_unique<CountingBackend>(counts); });
  EngineConfig config = test::fixture_config(test::kLlama, "COUNTED");
  config.max_batched_tokens = 16;  // chunked prefills, and mixed steps
  auto engine = test::make_engine(config, registry);
  ASSERT_NE(engine, nullptr);
  test::run_all(*engine, requests());
  const auto steps = static_cast<int>(engine->stats().steps);
  engine.reset();
  EXPECT_GT(steps, 10);
  EXPECT_EQ(counts.plans, steps);
  EXPECT_EQ(counts.extends + counts.decodes, steps * kLayers);
  EXPECT_GT(counts.decodes, 0);  // steps that only decode went to the decode entry
  EXPECT_GT(counts.extends, 0);
  EXPECT_EQ(counts.most_plans_in_a_row, 1);
}

TEST(PlanOnce, APairPlansOncePerPhaseOfAStep) {
  Counts prefill, decode;
  const BackendInfo prefill_info = info_named("PREFILLS"), decode_info = info_named("DECODES");
  BackendRegistry registry;
  registry.add(prefill_info, [&] { return std::make_unique<CountingBackend>(prefill); });
  registry.add(decode_info, [&] { return std::make_unique<CountingBackend>(decode); });
  EngineConfig config = test::fixture_config(test::kLlama, "PREFILLS,DECODES");
  config.max_batched_tokens = 16;
  auto engine = test::make_engine(config, registry);
  ASSERT_NE(engine, nullptr);
  const auto answers = test::run_all(*engine, requests());
  const auto steps = static_cast<int>(engine->stats().steps);
  engine.reset();
  EXPECT_EQ(prefill.decodes + decode.extends, 0);
  EXPECT_EQ(prefill.extends, prefill.plans * kLayers);
  EXPECT_EQ(decode.decodes, decode.plans * kLayers);
  EXPECT_LE(prefill.plans, steps);
  EXPECT_LE(decode.plans, steps);
  EXPECT_GT(prefill.plans + decode.plans, steps);  // mixed steps planned both
  EXPECT_EQ(prefill.most_plans_in_a_row, 1);
  EXPECT_EQ(decode.most_plans_in_a_row, 1);

  auto plain = test::make_engine(test::fixture_config());
  const auto expected = test::run_all(*plain, requests());
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i].ids, expected[i].ids);
}

}  // namespace
}  // namespace fovea
