// The engine on a device whose memory the host cannot access and whose steps run late: its answers match
// transformers and do not depend on when steps run, on chunk sizes or on the number of pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core.h"
#include "model/kv_groups.h"
#include "model/model_test_support.h"
#include "tests/reference_device/reference_backend.h"
#include "tests/reference_device/reference_executor.h"

namespace fovea {
namespace {

using nlohmann::json;
using test::GuardedDevice;
using test::ReferenceBackend;
using test::ReferenceExecutor;
using test::ReferenceOps;
using Tokens = std::vector<int32_t>;

constexpr double kDecidedGap = 2e-3;  // as in reference_device_test
constexpr int kPageSize = 4;
constexpr char kLlama[] = "llama3_gqa4_d16_bf16", kExperts[] = "mixtral_gqa2_d16_bf16";

std::string fixture(const std::string& name) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/" + name;
}

struct Answer {
  Tokens ids;
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  std::vector<float> last_logits;
  FinishReason finish = FinishReason::none;
  bool operator==(const Answer&) const = default;
};

struct EngineSetup {
  ReferenceExecutor::Options executor;
  int max_batched_tokens = 33;
  int64_t num_pages = 400;
  uint32_t seed = 0;
};

/// Scheduler, batches, runner, model and executor; all tensors are on the device.
class DeviceEngine {
 public:
  DeviceEngine(const std::string& name, const EngineSetup& setup, const BackendRegistry* registry = nullptr)
      : pool_(1), stream_(pool_), own_registry_(ReferenceBackend::registry(device_)) {
    const BackendRegistry& backends = registry ? *registry : own_registry_;
    const auto config = load_model_config(fixture(name));
    EXPECT_TRUE(config.ok()) << config.error().message;
    auto model = Model::load(*config, {.dir = fixture(name), .dtype = DType::f32}, stream_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    const Status placed = model_->place(ops_, stream_);
    EXPECT_TRUE(placed.ok()) << placed.error().message;

    SchedulerConfig scheduler;
    scheduler.max_running = 6;
    scheduler.max_batched_tokens = setup.max_batched_tokens;
    scheduler.max_logit_rows = setup.max_batched_tokens;
    scheduler.page_size = kPageSize;
    scheduler.num_pages = setup.num_pages;
    scheduler.max_seq_len = static_cast<int>(std::min<int64_t>(320, setup.num_pages * kPageSize));
    scheduler.watermark = 2;

    AttentionConfig attention;
    attention.backend = std::string(ReferenceBackend::kName);
    attention.page_size = kPageSize;
    std::vector<AttentionSpec> specs = attention_specs(*config);
    for (AttentionSpec& spec : specs) {
      spec = ModelRunner::resolve(spec, DType::f32, KvCacheDType::float32, KvLayout::hnd, 0);
      spec.page_size = 0;
    }
    const auto selection = select(attention, specs, *parse_device("xpu"), backends);
    EXPECT_TRUE(selection.ok()) << (selection.ok() ? "" : selection.error().message);
    ModelRunner::Options options;
    options.ops = &ops_;
    options.open_steps = setup.executor.overlap.open_steps;
    options.limits = {scheduler.max_running, scheduler.max_batched_tokens,
                      int64_t{scheduler.max_running} * scheduler.max_seq_len, scheduler.max_seq_len};
    options.kv_dtype = KvCacheDType::float32;
    options.max_logit_rows = scheduler.max_logit_rows;
    auto runner = ModelRunner::create(*model_, *selection, backends, options);
    EXPECT_TRUE(runner.ok()) << (runner.ok() ? "" : runner.error().message);
    runner_ = *std::move(runner);
    kv_ = std::make_unique<KvCache>(*KvCache::create(
        kv_groups(*config, KvCacheDType::float32, KvLayout::hnd, kPageSize), {setup.num_pages}, device_));
    runner_->set_kv_cache(*kv_);

    ReferenceExecutor::Options late = setup.executor;
    late.max_seqs = scheduler.max_running;
    late.max_logit_rows = scheduler.max_logit_rows;
    executor_ = std::make_unique<ReferenceExecutor>(*runner_, ops_, device_, stream_, late, setup.seed);
    core_ = std::make_unique<EngineCore>(scheduler, *executor_);
    context_.vocab_size = context_.sampled_vocab = config->vocab_size;
    context_.max_seq_len = scheduler.max_seq_len;
  }

  /// Adds all requests, then steps until the core is idle.
  std::vector<Answer> run(const std::vector<GenerateRequest>& requests) {
    std::vector<Answer> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Answer& answer = answers[i];
      auto created = Request::create(
          requests[i],
          [&answer](const RequestOutput& output) {
            answer.ids.insert(answer.ids.end(), output.token_ids.begin(), output.token_ids.end());
            answer.logprobs.insert(answer.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
            if (output.finish == FinishReason::none) return;
            answer.finish = output.finish;
            answer.prompt_logprobs = output.prompt_logprobs;
            answer.last_logits = output.last_logits;
          },
          context_);
      EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
      created->front()->set_id(i);
      core_->add(std::move(created->front()));
    }
    while (!core_->idle()) {
      core_->step([] {});
      EXPECT_TRUE(core_->scheduler().consistent());
    }
    EXPECT_EQ(core_->scheduler().pages_in_use(), 0);
    return answers;
  }

  const ReferenceExecutor& executor() const { return *executor_; }
  EngineStats stats() const { return core_->stats(); }

 private:
  ThreadPool pool_;
  Stream stream_;
  GuardedDevice device_;  // outlives all members that have its memory
  ReferenceOps ops_{device_};
  BackendRegistry own_registry_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<ReferenceExecutor> executor_;
  RequestContext context_;
  std::unique_ptr<EngineCore> core_;
};

constexpr Overlap kOneByOne{1, false}, kAhead{2, true}, kWaits{2, false};

/// Greedy and sampled requests, some with log probabilities; long prompts take several chunks.
std::vector<GenerateRequest> mixed_requests() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 7; ++i) {
    GenerateRequest request;
    for (int t = 0; t < 5 + 13 * i; ++t)
      request.prompt_ids.push_back((t * 7 + i * 31) % 250);
    request.sampling.max_tokens = 30 + i;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i % 2 ? 0.9f : 0.0f;
    request.sampling.top_p = i % 3 ? 1.0f : 0.8f;
    request.sampling.top_k = i == 3 ? 20 : 0;
    request.sampling.min_p = i == 5 ? 0.02f : 0.0f;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 2) request.sampling.logprobs = 3;
    if (i == 2) request.prompt_logprobs = 1;
    request.last_logits = i == 4;
    requests.push_back(std::move(request));
  }
  return requests;
}

class ReferenceEngine : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceEngine, GreedyAnswersAreTransformers) {
  std::ifstream file(fixture(GetParam()) + "/golden.json");
  const json golden = json::parse(file);
  std::vector<GenerateRequest> requests;
  std::vector<json> prompts;
  for (const json& prompt : golden.at("prompts")) {
    GenerateRequest request;
    request.prompt_ids = prompt.at("ids").get<Tokens>();
    if (request.prompt_ids.size() > 200) continue;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = static_cast<int>(prompt.at("greedy").size());
    requests.push_back(std::move(request));
    prompts.push_back(prompt);
  }
  ASSERT_GT(requests.size(), 5u);
  DeviceEngine engine(GetParam(), {{kAhead}});
  const auto answers = engine.run(requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Tokens greedy = prompts[i].at("greedy").get<Tokens>();
    const auto gaps = prompts[i].at("gaps").get<std::vector<float>>();
    ASSERT_EQ(answers[i].ids.size(), greedy.size());
    for (size_t t = 0; t < greedy.size() && gaps[t] > kDecidedGap; ++t)
      ASSERT_EQ(answers[i].ids[t], greedy[t]) << "prompt " << i << ", answer " << t;
  }
  EXPECT_GT(engine.executor().overlapped, 10);
  EXPECT_GT(engine.executor().future_tokens, 20);
}

TEST_P(ReferenceEngine, AnswersDoNotDependOnWhenStepsRun) {
  const auto requests = mixed_requests();
  DeviceEngine one_by_one(GetParam(), {.executor = {kOneByOne}});
  const auto want = one_by_one.run(requests);
  EXPECT_EQ(one_by_one.executor().overlapped, 0);
  for (const Answer& answer : want)
    EXPECT_EQ(answer.finish, FinishReason::length);
  int64_t preemptions = 0;
  for (const EngineSetup& setup : {EngineSetup{{kAhead}}, EngineSetup{{kAhead, true}}, EngineSetup{{kWaits}},
                                   EngineSetup{{{3, true}}, 17, 400, 1}, EngineSetup{{kAhead}, 64, 30, 2},
                                   EngineSetup{{kAhead, true}, 9, 30}}) {
    DeviceEngine engine(GetParam(), setup);
    const auto got = engine.run(requests);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "request " << i << ", " << setup.max_batched_tokens << " rows, "
                                 << setup.num_pages << " pages";
    EXPECT_GT(engine.executor().overlapped, 0);
    EXPECT_EQ(engine.executor().future_tokens > 0, setup.executor.overlap.future_tokens);
    preemptions += engine.stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceEngine, testing::Values(kLlama, kExperts),
                         [](const auto& fixture) { return std::string(fixture.param).substr(0, 7); });

/// A backend that reads one of the step's lengths on the host, as a CPU backend may.
class ReadsOnTheHost final : public ReferenceBackend {
 public:
  using ReferenceBackend::ReferenceBackend;
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& spec, const AttentionLimits& limits,
                                     const BatchMeta& meta, Workspace workspace, Stream& stream) override {
    if (*static_cast<const volatile int32_t*>(meta.kv_lens.data()) < 0) return invalid("a negative length");
    return ReferenceBackend::plan(spec, limits, meta, workspace, stream);
  }
};

TEST(ReferenceEngine, AReadOnTheHostFaults) {
  GuardedDevice device;
  BackendRegistry registry = builtin_backends();
  registry.add(ReferenceBackend::row(), [&] { return std::make_unique<ReadsOnTheHost>(device); });
  EXPECT_DEATH(
      {
        DeviceEngine engine(kLlama, {{kAhead}}, &registry);
        engine.run(mixed_requests());
      },
      "");
}

}  // namespace
}  // namespace fovea
