// Many requests through one engine leak nothing, and requests do not affect each other: sinks that cancel,
// steps that can't be planned, priorities.
#include <atomic>
#include <condition_variable>
#include <random>
#include <thread>

#include "backends/torch_native/torch_native.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::Answer;
using test::greedy;
using test::make_engine;
using test::prompt_of;

/// Counts live requests: each keeps its sink alive, and the sink keeps this.
class Live {
 public:
  explicit Live(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Live() { --count_; }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

 private:
  std::atomic<int>& count_;
};

/// Without drafts, and with those of a head.
class Endurance : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Drafts, Endurance, testing::Bool());

TEST_P(Endurance, HundredsOfRequestsLeaveNothingBehind) {
  constexpr int kRequests = 400, kInFlight = 40, kRunning = 12;
  EngineConfig config = test::fixture_config(test::kLlama, "CPU_ATTN");
  config.max_seq_len = 96;
  config.num_pages = 60;  // of 4 tokens: two and a half sequences of the maximum length
  config.max_running_requests = kRunning;
  config.max_batched_tokens = 64;
  config.threads = 1;
  if (GetParam()) {
    config.speculative.method = DraftMethod::eagle3;
    config.speculative.model = std::string(FOVEA_SOURCE_DIR) + "/tests/draft_heads/eagle3_bf16";
    config.speculative.num_tokens = 5;
    config.speculative.adaptive = false;
  }
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  std::atomic<int> live{0}, finished{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::mt19937 rng(5);
  for (int i = 0; i < kRequests; ++i) {
    std::vector<int32_t> prompt = prompt_of(24, rng() % 4);  // prefixes that other requests share
    prompt.resize(rng() % 24);
    const auto own = prompt_of(1 + static_cast<int>(rng() % 12), static_cast<uint32_t>(i) + 100);
    prompt.insert(prompt.end(), own.begin(), own.end());
    const auto token = std::make_shared<Live>(live);
    const auto id = engine->submit(greedy(prompt, 1 + static_cast<int>(rng() % 60)),
                                   [&, token](const RequestOutput& output) {
                                     if (output.finish == FinishReason::none) return;
                                     const std::lock_guard lock(mutex);
                                     ++finished;
                                     changed.notify_all();
                                   });
    ASSERT_TRUE(id.ok());
    if (i % (GetParam() ? 9 : 29) == 0) engine->cancel(*id);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return i + 1 - finished < kInFlight; });
    // A request is destroyed once all outputs of its last step are sent: at most those of one step may be on
    // their way out, and the one just submitted may have a second owner here.
    EXPECT_LE(live, i + 1 - finished + kRunning + 1);
  }
  engine->wait_idle();
  EXPECT_EQ(finished, kRequests);
  EXPECT_EQ(live, 0);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.pages_in_use, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
  EXPECT_EQ(stats.speculative.draft_tokens > 1000, GetParam());
  EXPECT_TRUE(stats.preemptions > 0 || GetParam());
  EXPECT_GT(stats.prefix_hits, 0);
  EXPECT_GT(stats.token_gap_max, 0);
  EXPECT_LE(stats.token_gap_p50, stats.token_gap_p99);
  EXPECT_LE(stats.token_gap_p99, stats.token_gap_max);
}

TEST(Faults, ASinkMayCancelOthersAndTheRestGoesOn) {
  EngineConfig config = test::fixture_config();
  config.max_seq_len = 64;
  config.num_pages = 27;
  const GenerateRequest request = greedy(prompt_of(12, 1), 30);
  const Answer alone = test::run_one(*make_engine(config), request);
  auto engine = make_engine(config);
  std::vector<uint64_t> victims;
  std::vector<std::shared_ptr<Answer>> answers;
  for (uint32_t i = 0; i < 6; ++i)
    answers.push_back(std::make_shared<Answer>());
  // The last request's first output cancels two that run or wait; their pages are free in the next step.
  std::promise<void> ready;
  std::shared_future<void> all_there = ready.get_future();
  bool done = false;
  for (uint32_t i = 0; i < 6; ++i) {
    const auto collected = test::collect(answers[i]);
    const auto id = engine->submit(i == 5 ? request : greedy(prompt_of(12, 20 + i), 30),
                                   [&, i, collected](const auto& output) {
                                     all_there.wait();
                                     collected(output);
                                     if (i != 0 || done) return;
                                     done = true;
                                     for (const uint64_t victim : victims)
                                       engine->cancel(victim);
                                   });
    ASSERT_TRUE(id.ok());
    if (i == 1 || i == 4) victims.push_back(*id);
  }
  ready.set_value();
  engine->wait_idle();
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(answers[i]->last.finish, i == 1 || i == 4 ? FinishReason::cancelled : FinishReason::length)
        << i;
  EXPECT_EQ(answers[5]->ids, alone.ids);
  EXPECT_EQ(engine->stats().pages_in_use, 0);
}

/// Refuses the plan of every step that has a sequence of `kBad` keys.
class RefusingBackend final : public AttentionBackend {
 public:
  static constexpr int kBad = 37;

  RefusingBackend() : real_(make_torch_native()) {}
  const BackendInfo& info() const noexcept override { return real_->info(); }
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const override {
    return real_->workspace_bytes(spec, limits);
  }
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    for (const int32_t keys : meta.kv_lens)
      if (keys == kBad) return Error{ErrorCode::internal, "no plan for 37 keys"};
    return real_->plan(spec, limits, meta, workspace, stream);
  }
  Status forward_extend(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return real_->forward_extend(plan, args, stream);
  }
  Status forward_decode(const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return real_->forward_decode(plan, args, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> real_;
};

TEST(Faults, AStepThatCanNotBePlannedEndsItsRequestsOnly) {
  BackendInfo info = torch_native_info();
  info.name = "REFUSING";
  info.aliases = {};
  BackendRegistry registry;
  registry.add(info, [] { return std::make_unique<RefusingBackend>(); });
  EngineConfig config = test::fixture_config(test::kLlama, "REFUSING");
  config.max_running_requests = 1;  // one sequence a step: the others wait
  config.registry = &registry;
  auto engine = make_engine(config);
  const auto answers = test::run_all(*engine, {greedy(prompt_of(20), 10), greedy(prompt_of(20), 30),
                                               greedy(prompt_of(37, 2), 4), greedy(prompt_of(20), 10)});
  for (const size_t good : {0u, 3u}) {
    EXPECT_EQ(answers[good].last.finish, FinishReason::length);
    EXPECT_EQ(answers[good].ids, answers[0].ids);
  }
  for (const size_t bad : {1u, 2u}) {
    EXPECT_EQ(answers[bad].last.finish, FinishReason::error);
    EXPECT_NE(answers[bad].last.error.message.find("37 keys"), std::string::npos);
  }
  EXPECT_EQ(answers[1].ids.size(), 17u);  // those before its 37th key
  EXPECT_EQ(engine->stats().pages_in_use, 0);
}

TEST(Priorities, TheLowestNumberIsServedFirst) {
  EngineConfig config = test::fixture_config();
  config.scheduling_policy = SchedulingPolicy::priority;
  config.max_running_requests = 1;
  auto engine = make_engine(config);
  std::vector<int> order;
  std::promise<void> ready;
  std::shared_future<void> all_there = ready.get_future();
  std::atomic<bool> begun{false};
  const auto submit = [&](int priority, int tokens) {
    GenerateRequest request = greedy(prompt_of(5), tokens);
    request.priority = priority;
    const auto id = engine->submit(request, [&, priority, all_there](const RequestOutput& output) {
      begun = true;
      all_there.wait();
      if (output.finish != FinishReason::none) order.push_back(priority);
    });
    EXPECT_TRUE(id.ok());
  };
  submit(100, 2);  // runs before the others arrive, and is not interrupted
  while (!begun)
    std::this_thread::yield();
  for (const int priority : {3, -1, 7, 0})
    submit(priority, 2);
  ready.set_value();
  engine->wait_idle();
  EXPECT_EQ(order, (std::vector<int>{100, -1, 0, 3, 7}));
}

TEST(Priorities, ArePartOfTheirPolicyOnly) {
  auto engine = make_engine(test::fixture_config());
  GenerateRequest request = greedy(prompt_of(5), 2);
  request.priority = 1;
  const auto id = engine->submit(request, nullptr);
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("--scheduling-policy priority"), std::string::npos);
}

TEST(EncoderInputs, AreRefusedByModelsWithoutAnEncoder) {
  auto engine = make_engine(test::fixture_config());
  GenerateRequest request = greedy(prompt_of(5), 2);
  request.encoder_ids = {1, 2};
  const auto id = engine->submit(request, nullptr);
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("LlamaForCausalLM"), std::string::npos);
}

}  // namespace
}  // namespace fovea
