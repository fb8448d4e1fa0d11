// What the engine reports: the times of requests, its statistics, its snapshot between two steps.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using Clock = std::chrono::steady_clock;
using State = EngineSnapshot::State;
using test::Answer;
using test::greedy;
using test::make_engine;
using test::prompt_of;
using test::run_all;
using test::run_one;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int64_t total(const EngineStats& stats) {
  return std::accumulate(stats.step_tokens.begin(), stats.step_tokens.end(), int64_t{0});
}

TEST(Times, AddUpToWhatPassed) {
  const auto engine = make_engine(test::fixture_config());
  const auto start = Clock::now();
  std::vector<RequestOutput> outputs;
  ASSERT_TRUE(
      engine->submit(greedy(prompt_of(21), 30), [&](const RequestOutput& o) { outputs.push_back(o); }));
  engine->wait_idle();
  ASSERT_EQ(outputs.size(), 30u);
  const double passed = seconds_between(start, Clock::now());
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_GT(outputs[i].queue_seconds, 0);
    EXPECT_GT(outputs[i].prefill_seconds, 0);
    EXPECT_EQ(outputs[i].queue_seconds, outputs[0].queue_seconds);
    EXPECT_EQ(outputs[i].prefill_seconds, outputs[0].prefill_seconds);
    if (i > 0) {
      EXPECT_GT(outputs[i].decode_seconds, outputs[i - 1].decode_seconds);
    }
  }
  const RequestOutput& last = outputs.back();
  EXPECT_LE(last.queue_seconds + last.prefill_seconds + last.decode_seconds, passed);
}

TEST(Times, InLineUntilTheFirstStep) {
  EngineConfig config = test::fixture_config();
  config.max_running_requests = 1;
  const auto engine = make_engine(config);
  Answer first, second;
  Clock::time_point submitted, first_done;
  // The second comes while the first runs, and waits until its last output.
  ASSERT_TRUE(engine->submit(greedy(prompt_of(9), 20), [&](const RequestOutput& o) {
    if (o.completion_tokens == 1) {
      EXPECT_TRUE(
          engine->submit(greedy(prompt_of(9, 2), 3), [&](const RequestOutput& p) { second.last = p; }));
      submitted = Clock::now();
    }
    first.last = o;
    first_done = Clock::now();
  }));
  engine->wait_idle();
  EXPECT_GE(second.last.queue_seconds, seconds_between(submitted, first_done));
}

TEST(Times, RequestsThatNeverRanOnlyHaveQueueTime) {
  EngineConfig config = test::fixture_config();
  config.max_running_requests = 1;
  const auto engine = make_engine(config);
  RequestOutput waited;
  ASSERT_TRUE(engine->submit(greedy(prompt_of(9), 20), [&](const RequestOutput& o) {
    if (o.completion_tokens != 1) return;
    const auto id = engine->submit(greedy(prompt_of(9, 2), 3), [&](const RequestOutput& p) { waited = p; });
    ASSERT_TRUE(id);
    engine->cancel(*id);
  }));
  engine->wait_idle();
  EXPECT_EQ(waited.finish, FinishReason::cancelled);
  EXPECT_GT(waited.queue_seconds, 0);
  EXPECT_EQ(waited.prefill_seconds, 0);
  EXPECT_EQ(waited.decode_seconds, 0);
}

// The counts that vLLM's test of its metrics expects: N requests give N * T steps of N * (P + T) tokens.
TEST(StepTokens, TenRequestsOfTenTokens) {
  const auto engine = make_engine(test::fixture_config());
  for (int i = 0; i < 10; ++i)
    run_one(*engine, greedy(prompt_of(12), 10));  // all requests except the first find it in the cache
  const EngineStats s = engine->stats();
  EXPECT_GT(s.prefix_hits, 0);
  EXPECT_EQ(s.prompt_tokens, 120);
  EXPECT_EQ(s.generated_tokens, 100);
  EXPECT_EQ(total(s), 100);
  EXPECT_EQ(s.step_tokens[0], 90);  // one token
  EXPECT_EQ(s.step_tokens[2], 10);  // 13 tokens: 9 to 16
}

TEST(StepTokens, AnswersAreCountedBeforeTheyAreDelivered) {
  const auto engine = make_engine(test::fixture_config());
  std::vector<int64_t> counted;
  int running = -1;
  ASSERT_TRUE(engine->submit(greedy(prompt_of(12), 10), [&](const RequestOutput& output) {
    const EngineStats s = engine->stats();
    counted.push_back(s.generated_tokens - output.completion_tokens);
    running = s.running;
  }));
  engine->wait_idle();
  EXPECT_EQ(counted, std::vector<int64_t>(10, 0));
  EXPECT_EQ(running, 0) << "when it has ended";
}

TEST(StepTokens, ChunksCountWhenThePromptIsComplete) {
  EngineConfig config = test::fixture_config();
  config.max_batched_tokens = 8;
  const auto engine = make_engine(config);
  run_one(*engine, greedy(prompt_of(21), 5));
  const EngineStats s = engine->stats();
  EXPECT_EQ(s.steps, 3 + 4);
  EXPECT_EQ(s.prompt_tokens, 21);
  EXPECT_EQ(s.generated_tokens, 5);
  EXPECT_EQ(total(s), 5);
  EXPECT_EQ(s.step_tokens[3], 1);  // 22 tokens: 17 to 32
}

TEST(StepTokens, APromptCountsOnceWhateverItsAnswers) {
  const auto engine = make_engine(test::fixture_config());
  GenerateRequest request = greedy(prompt_of(10), 4);
  request.sampling.temperature = 1;
  request.sampling.n = 3;
  run_one(*engine, request);
  EXPECT_EQ(engine->stats().prompt_tokens, 10);
  EXPECT_EQ(engine->stats().generated_tokens, 12);
}

TEST(StepTokens, RepeatedWorkIsNotCountedAgain) {
  EngineConfig config = test::fixture_config();
  config.max_seq_len = 64;
  config.num_pages = 24;  // of 4 tokens: two sequences of 40 and 60 don't fit
  const auto engine = make_engine(config);
  run_all(*engine, {greedy(prompt_of(8), 50), greedy(prompt_of(8, 2), 50), greedy(prompt_of(8, 3), 50)});
  const EngineStats s = engine->stats();
  EXPECT_GT(s.preemptions, 0);
  EXPECT_EQ(s.prompt_tokens, 24);
  EXPECT_EQ(s.generated_tokens, 150);
}

TEST(AttentionUse, SaysWhatEachPhaseDid) {
  const auto engine = make_engine(test::fixture_config());
  run_one(*engine, greedy(prompt_of(21), 30));
  const EngineStats s = engine->stats();
  ASSERT_EQ(s.attention.size(), 2u);
  const AttentionUse &prefill = s.attention[0], &decode = s.attention[1];
  EXPECT_EQ(prefill.phase, Phase::prefill);
  EXPECT_EQ(decode.phase, Phase::decode);
  EXPECT_EQ(prefill.kind, LayerKind::full);
  EXPECT_EQ(prefill.backend, "TORCH_NATIVE");
  EXPECT_EQ(decode.backend, "TORCH_NATIVE");
  ASSERT_GT(prefill.calls, 0);  // one step
  EXPECT_EQ(decode.calls, 29 * prefill.calls);

  const AttentionSpec& spec = engine->info().specs.at(0);
  const auto layers = static_cast<double>(prefill.calls);
  const double dims = spec.head_dim + spec.v_head_dim, row = dims * spec.num_heads;
  const auto key = dims * spec.num_kv_heads * static_cast<double>(size_of(spec.kv_dtype));
  double keys = 0;
  for (int n = 22; n <= 50; ++n)
    keys += n;
  EXPECT_EQ(prefill.bytes, layers * (21 * key + 21 * row * 4));
  EXPECT_EQ(prefill.flops, layers * 2 * row * (21 * 22 / 2));
  EXPECT_EQ(decode.bytes, layers * (keys * key + 29 * row * 4));
  EXPECT_EQ(decode.flops, layers * 2 * row * keys);
  EXPECT_GT(prefill.seconds, 0);
  EXPECT_GT(decode.seconds, 0);
  EXPECT_GT(s.plan_seconds, 0);
  EXPECT_LT(prefill.seconds + decode.seconds + s.plan_seconds, s.busy_seconds);
}

void expect_pages_add_up(const EngineSnapshot& s) {
  EXPECT_EQ(s.pages_free + s.pages_cached + s.pages_in_use, s.pages_total);
  EXPECT_EQ(s.pages_cached, s.prefix_pages - s.prefix_locked_pages);
}

TEST(Snapshot, OfAnEngineWithoutWork) {
  const auto engine = make_engine(test::fixture_config());
  const auto asked = Clock::now();
  const EngineSnapshot fresh = engine->snapshot();
  EXPECT_EQ(fresh.pages_total, 1024);
  EXPECT_EQ(fresh.pages_free, 1024);
  EXPECT_EQ(fresh.page_size, 4);
  EXPECT_TRUE(fresh.sequences.empty() && fresh.prefixes.empty() && fresh.steps.empty());
  run_one(*engine, greedy(prompt_of(21), 30));
  EngineSnapshot s;
  do  // the last step is reported before its snapshot is made
    s = engine->snapshot();
  while (s.steps_total < 30 || s.running > 0);
  EXPECT_GE(s.made, asked);
  expect_pages_add_up(s);
  EXPECT_EQ(s.pages_in_use, 0);
  EXPECT_EQ(s.steps_total, 30);
  EXPECT_TRUE(s.sequences.empty());
  EXPECT_TRUE(s.prefixes_complete);
  EXPECT_EQ(s.prefix_pages, 12);
  EXPECT_EQ(s.prefix_locked_pages, 0);
  ASSERT_EQ(s.prefixes.size(), 1u);
  EXPECT_EQ(s.prefixes[0].tokens, 48);
  EXPECT_EQ(s.prefixes[0].pages, 12);
  EXPECT_FALSE(s.prefixes[0].locked);
  ASSERT_EQ(s.steps.size(), 30u);
  EXPECT_EQ(s.steps[0].prefill_rows, 21);
  EXPECT_EQ(s.steps[0].decode_rows, 0);
  EXPECT_EQ(s.steps[29].prefill_rows, 0);
  EXPECT_EQ(s.steps[29].decode_rows, 1);
  for (const auto& step : s.steps) {
    EXPECT_GT(step.attention_seconds, 0);
    EXPECT_GT(step.plan_seconds, 0);
    EXPECT_LT(step.attention_seconds + step.plan_seconds, step.seconds);
  }
}

TEST(Snapshot, IsTakenWithoutAPreviousOne) {
  const auto engine = make_engine(test::fixture_config());
  run_one(*engine, greedy(prompt_of(21), 30));  // no snapshot was made while it ran
  while (engine->snapshot().steps_total < 30)   // one request is enough, unless the machine is very busy
    std::this_thread::yield();
  EXPECT_EQ(engine->snapshot().prefix_pages, 12);
}

TEST(Snapshot, ShowsRunningAndWaitingSequences) {
  EngineConfig config = test::fixture_config();
  config.max_running_requests = 1;
  const auto engine = make_engine(config);
  const auto slowly = [](const RequestOutput&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  for (bool seen = false; !seen;) {  // repeated in case all requests ended before the snapshot was made
    const auto first = engine->submit(greedy(prompt_of(21), 500), slowly);
    GenerateRequest two = greedy(prompt_of(9, 2), 5);
    two.sampling.temperature = 1;
    two.sampling.n = 2;
    const auto second = engine->submit(two, nullptr);
    ASSERT_TRUE(first && second);
    EngineSnapshot s;
    do
      s = engine->snapshot();
    while ((s.running == 0 || s.sequences[0].state != State::decode) && engine->stats().steps < 500);
    engine->cancel(*first);
    engine->cancel(*second);
    engine->wait_idle();
    if (s.running == 0 || s.sequences[0].id != *first || s.waiting == 0) continue;
    seen = true;
    expect_pages_add_up(s);
    EXPECT_EQ(s.running, 1);
    EXPECT_EQ(s.waiting, 2);
    ASSERT_EQ(s.sequences.size(), 3u);
    const auto& r = s.sequences[0];
    EXPECT_EQ(r.state, State::decode);
    EXPECT_EQ(r.prompt_tokens, 21);
    EXPECT_GE(r.generated_tokens, 1);
    EXPECT_EQ(r.computed_tokens, 21 + r.generated_tokens - 1);  // the newest token's keys are not cached yet
    EXPECT_EQ(r.pages, (r.computed_tokens + 3) / 4);
    EXPECT_EQ(r.pages, s.pages_in_use);
    EXPECT_EQ(r.shared_pages, 5);  // the whole pages of its prompt are in the tree
    ASSERT_FALSE(s.prefixes.empty());
    EXPECT_TRUE(s.prefixes[0].locked);
    for (int i = 0; i < 2; ++i) {
      const auto& w = s.sequences[static_cast<size_t>(i) + 1];
      EXPECT_EQ(w.id, *second);
      EXPECT_EQ(w.index, i);
      EXPECT_EQ(w.state, State::waiting);
      EXPECT_EQ(w.prompt_tokens, 9);
      EXPECT_EQ(w.pages + w.computed_tokens + w.generated_tokens, 0);
    }
  }
}

TEST(Snapshot, ListsAreBounded) {
  EngineConfig config = test::fixture_config();
  config.max_running_requests = 2;
  const auto engine = make_engine(config);
  run_one(*engine, greedy(prompt_of(5), 200));  // more steps than are kept
  const auto slowly = [](const RequestOutput&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 100; ++i)
    ids.push_back(*engine->submit(greedy(prompt_of(20, i), 500), slowly));
  EngineSnapshot s;
  do
    s = engine->snapshot();
  while (s.running + s.waiting < 100);
  for (const uint64_t id : ids)
    engine->cancel(id);
  engine->wait_idle();
  EXPECT_EQ(s.running + s.waiting, 100);
  EXPECT_EQ(s.sequences.size(), kSnapshotSequences);
  EXPECT_EQ(s.steps.size(), kSnapshotSteps);
  EXPECT_LE(s.prefixes.size(), kSnapshotPrefixes);
}

TEST(Floor, IsMeasured) {
  const auto engine = make_engine(test::fixture_config());
  const auto floor = engine->measure_floor();
  ASSERT_TRUE(floor.ok()) << floor.error().message;
  EXPECT_GT(floor->read_bytes_per_second, 0);
  EXPECT_GT(floor->fp32_flops_per_second, 0);
}

TEST(Snapshot, AsManyMayAskAsLike) {
  const auto engine = make_engine(test::fixture_config());
  std::atomic<bool> stop = false;
  std::vector<std::thread> watchers;
  for (int t = 0; t < 3; ++t)
    watchers.emplace_back([&] {
      while (!stop) {
        expect_pages_add_up(engine->snapshot());
        (void)engine->stats();
      }
    });
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 20; ++i)
    requests.push_back(greedy(prompt_of(20, i), 40));
  for (const Answer& answer : run_all(*engine, requests))
    EXPECT_EQ(answer.last.finish, FinishReason::length);
  stop = true;
  for (std::thread& watcher : watchers)
    watcher.join();
}

}  // namespace
}  // namespace fovea
