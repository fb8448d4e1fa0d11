// Through the real engine: each backend plans at most once per step, and runs once per layer for each plan.
#include "tests/engine/counting_backend.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::CountingBackend;
using test::Counts;
using test::info_named;

constexpr int kLayers = 2;

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
  config.registry = &registry;
  auto engine = test::make_engine(config);
  ASSERT_NE(engine, nullptr);
  test::run_all(*engine, requests());
  const auto steps = static_cast<int>(engine->stats().steps);
  engine.reset();
  EXPECT_GT(steps, 10);
  EXPECT_EQ(counts.plans, steps);
  EXPECT_EQ(counts.extends + counts.decodes, steps * kLayers);
  EXPECT_GT(counts.decodes, 0);  // decode-only steps used the decode entry
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
  config.registry = &registry;
  auto engine = test::make_engine(config);
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
