// The executor of devices on one whose memory the host cannot access and whose operations run late: answers
// do not depend on overlap, graphs, chunks, pages or time, and failures end what they must and nothing else.
#include "engine/device_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "engine/graph_buckets.h"
#include "engine/token_constraint_test_support.h"
#include "speculative/ngram_drafter.h"
#include "tests/engine/adapter_fixture.h"
#include "tests/engine/device_engine.h"
#include "tests/engine/fixture.h"
#include "tests/engine/recorded_drafter.h"
#include "tests/engine/watched_drafts.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

using testing::HasSubstr;
using Answer = test::DeviceAnswer;
using Config = test::DeviceConfig;
using test::DeviceEngine;

/// Greedy and sampled requests, some with log probabilities; long prompts take several chunks.
std::vector<GenerateRequest> mixed_requests() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 8; ++i) {
    GenerateRequest request;
    for (int t = 0; t < 5 + 11 * i; ++t)
      request.prompt_ids.push_back((t * 7 + i * 31) % 250);
    request.sampling.max_tokens = 30 + i;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i % 2 ? 0.9f : 0.0f;
    request.sampling.top_p = i % 3 ? 1.0f : 0.8f;
    request.sampling.top_k = i == 3 ? 20 : 0;
    request.sampling.min_p = i == 5 ? 0.02f : 0.0f;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 2) request.sampling.logprobs = i == 7 ? 40 : 3;  // more than the device's sampler reports
    if (i == 2) request.prompt_logprobs = 1;
    request.last_logits = i == 4;
    requests.push_back(std::move(request));
  }
  return requests;
}

constexpr Overlap kOneByOne{1, false}, kAhead{2, true}, kWaits{2, false};

TEST(DeviceExecutor, AnswersDependNeitherOnOverlapNorGraphsNorTime) {
  const auto requests = mixed_requests();
  DeviceEngine plain(Config{kOneByOne, {}});
  const auto want = plain.run(requests);
  EXPECT_EQ(plain.executor().counts().overlapped, 0);
  EXPECT_EQ(plain.executor().counts().replays, 0);
  for (const Answer& answer : want)
    EXPECT_EQ(answer.finish, FinishReason::length) << answer.error;
  EXPECT_EQ(want[7].logprobs.front().top.size(), 40u);
  EXPECT_EQ(want[2].prompt_logprobs.size(), requests[2].prompt_ids.size() - 1);
  EXPECT_FALSE(want[4].last_logits.empty());

  int64_t preemptions = 0;
  for (const Config& setup :
       {Config{}, Config{kAhead, {}}, Config{kOneByOne}, Config{kWaits}, Config{kAhead, {3}, 17, 400, true},
        Config{{3, true}, {1, 2, 4, 6}, 17, 400, false, 60, 1}, Config{kAhead, {2, 6}, 64, 30, false, 60, 2},
        Config{kAhead, {1, 2, 4, 6}, 9, 30, true}}) {
    DeviceEngine engine(setup);
    const auto got = engine.run(requests);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "request " << i << ", " << setup.max_batched_tokens << " rows, "
                                 << setup.num_pages << " pages, " << setup.buckets.size() << " graphs";
    EXPECT_EQ(engine.executor().counts().overlapped > 0, setup.overlap.open_steps > 1);
    EXPECT_EQ(engine.executor().counts().future_tokens > 0, setup.overlap.future_tokens);
    EXPECT_EQ(engine.executor().counts().replays > 5, !setup.buckets.empty());
    preemptions += engine.core().stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST(DeviceExecutor, TheFirstGraphsAreCapturedBeforeAnyStepAndOthersWhenNeeded) {
  DeviceEngine engine(Config{kAhead, {1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(engine.executor().graphs(), kFirstBuckets);
  std::vector<GenerateRequest> requests = mixed_requests();
  engine.run({requests[0]});
  EXPECT_EQ(engine.executor().graphs(), kFirstBuckets);
  engine.run(requests);
  EXPECT_GT(engine.executor().graphs(), kFirstBuckets);
}

TEST(DeviceExecutor, WithoutFurtherGraphsWhereACaptureIsRefused) {
  const auto requests = mixed_requests();
  DeviceEngine plain(Config{kOneByOne, {}}), refusing(Config{kAhead, {1, 2, 3, 4, 5, 6}});
  refusing.queue().refuses_graphs = true;
  EXPECT_EQ(refusing.run(requests), plain.run(requests));
  EXPECT_EQ(refusing.executor().graphs(), kFirstBuckets);
}

/// Requests with biases among them: the host samples for those, though a slot would hold them.
TEST(DeviceExecutor, DraftsChangeNoAnswer) {
  std::vector<GenerateRequest> requests = mixed_requests();
  for (const size_t i : {1, 4})
    for (int32_t token = 0; token < 256; ++token)
      requests[i].sampling.logit_bias.push_back({token, static_cast<float>(token % 3)});
  DeviceEngine plain(Config{kOneByOne, {}});
  const auto want = plain.run(requests);
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].prompt_ids);
    texts.back().insert(texts.back().end(), want[i].ids.begin(), want[i].ids.end());
  }
  int64_t preemptions = 0, replays = 0, overlapped = 0;
  for (const double right : test::cases({1.0, 0.8, 0.0}, 2))
    for (const Config& base : {Config{kOneByOne, {}}, Config{kOneByOne, {1, 2, 3, 4, 5, 6, 8, 16, 24}},
                               Config{kWaits, {3, 6}, 17, 400, true}, Config{kOneByOne, {2, 6, 29}, 64, 30},
                               Config{kAhead, {2, 4, 6}, 17, 40, true}}) {
      Config setup = base;
      setup.drafts = right == 1 ? 15 : 4;
      if (base.overlap.future_tokens)
        setup.with_model.by_batch = {{1, 2, setup.drafts}, {4, 5, 2}, {3, 6, 0}};
      setup.drafter = [&] { return std::make_unique<test::RecordedDrafter>(texts, right, 1); };
      // Rows of a sequence that are one sequence of the batch, in the last case some of them.
      const bool few = right < 1 && !base.buckets.empty();
      for (const auto& [differ, rows] :
           test::cases({std::pair{false, 1}, {true, 1}, {true, few ? 3 : 16}}, 1)) {
        if (base.overlap.future_tokens && differ && rows == 1) continue;
        setup.phases_differ = differ;
        setup.decode_rows = rows;
        DeviceEngine engine(setup);
        EXPECT_EQ(engine.run(requests), want) << "right " << right << ", " << setup.max_batched_tokens;
        EXPECT_GT(engine.executor().counts().host_sampled, 5);
        const SpeculativeCounts counts = engine.core().stats().speculative;
        EXPECT_GT(counts.draft_tokens, 20);
        if (right > 0) {
          EXPECT_GT(counts.accepted_tokens, 10);
        }
        overlapped += engine.executor().counts().future_tokens;
        preemptions += engine.core().stats().preemptions;
        replays += engine.executor().counts().replays;
      }
    }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(replays, 20);
  EXPECT_GT(overlapped, 10);
}

std::string head_folder(const char* head) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/draft_heads/" + head;
}

/// Some of the requests repeat themselves.
std::vector<GenerateRequest> repeating_requests() {
  std::vector<GenerateRequest> requests = mixed_requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t>& prompt = requests[i].prompt_ids;
    for (size_t t = 0; i % 4 < 2 && t < prompt.size(); ++t)
      prompt[t] = static_cast<int32_t>(t % (i + 2));
    requests[i].sampling.max_tokens = 60;
    if (i % 3 == 0) requests[i].sampling.temperature = 0;  // which repeats itself soon
  }
  return requests;
}

/// The device looks n-gram drafts up, and steps that verify them are open two at a time. The same drafts as
/// the host's are verified.
TEST(DeviceDrafts, OfNgramsChangeNoAnswer) {
  const std::vector<GenerateRequest> requests = repeating_requests();
  DeviceEngine plain(Config{kOneByOne, {}});
  const auto want = plain.run(requests);
  int64_t preemptions = 0, replays = 0, overlapped = 0, placed = 0, accepted = 0;
  struct Case {
    int drafts, min, max;
    bool differ, adaptive;
    int rows;  // Config::decode_rows
  };
  const auto cases = test::cases<Case>(
      {{4, 1, 3, false, false, 2}, {15, 2, 60, true, false, 16}, {4, 1, 2, true, true, 1}}, 1);
  for (const auto& [drafts, min, max, differ, adaptive, rows] : cases)
    for (const Config& base : {Config{kOneByOne, {}}, Config{kAhead, {1, 2, 3, 4, 5, 6, 8, 16, 24}, 64},
                               Config{kAhead, {3, 6}, 17, 40, true, 60, 3}}) {
      Config setup = base;
      setup.drafts = drafts;
      setup.with_model.method = DraftMethod::ngram;
      setup.with_model.adaptive = adaptive;
      setup.phases_differ = differ;
      setup.decode_rows = rows;
      setup.ngram = {min, max};
      DeviceEngine engine(setup);
      EXPECT_EQ(engine.run(requests), want) << drafts << " drafts, " << setup.max_batched_tokens << " rows, "
                                            << setup.num_pages << " pages, " << differ << rows;
      const SpeculativeCounts counts = engine.core().stats().speculative;
      if (setup.overlap.open_steps == 1 && !adaptive) {  // else rows without a draft leave others no place
        Config host = setup;
        host.ngram.reset();
        host.drafter = [least = min, most = max] { return std::make_unique<NgramDrafter>(least, most); };
        DeviceEngine by_host(host);
        EXPECT_EQ(by_host.run(requests), want);
        const SpeculativeCounts expected = by_host.core().stats().speculative;
        EXPECT_EQ(counts.draft_tokens, expected.draft_tokens);
        EXPECT_EQ(counts.accepted_by_position, expected.accepted_by_position);
      }
      const EngineStats stats = engine.core().stats();
      preemptions += stats.preemptions;
      replays += engine.executor().counts().replays;
      overlapped += engine.executor().counts().overlapped;
      placed += engine.executor().counts().placed;
      accepted += counts.accepted_tokens;
      if (HasFailure()) return;
    }
  EXPECT_GT(preemptions, 2);
  EXPECT_GT(replays, 10);
  EXPECT_GT(overlapped, 50);
  EXPECT_GT(placed, 100);
  EXPECT_GT(accepted, 20);
}

/// Dice see the same drafts, whether or not steps overlap.
TEST(DeviceDrafts, OfNgramsFallAsTheDice) {
  std::vector<GenerateRequest> requests = repeating_requests();
  requests = {requests[1]};
  requests[0].sampling.max_tokens = 200;
  std::vector<Answer> want;
  for (const Overlap overlap : {kOneByOne, kAhead}) {
    Config setup{overlap};
    setup.drafts = 3;
    setup.ngram = {2, 4};
    setup.with_model.method = DraftMethod::ngram;
    setup.with_model.synthetic_rates = {0.8, 0.5, 0.4};
    DeviceEngine engine(setup);
    const auto got = engine.run(requests);
    const SpeculativeCounts counts = engine.core().stats().speculative;
    EXPECT_NEAR(counts.mean_acceptance_length(), 2.7, 0.3);
    if (want.empty()) want = got;
    // At the end fewer drafts are verified where it is not known how many are left.
    ASSERT_EQ(got[0].ids.size(), want[0].ids.size());
    EXPECT_TRUE(std::equal(got[0].ids.begin(), got[0].ids.end() - 10, want[0].ids.begin()));
  }
}

/// Drafters with models, whose drafts stay on the device until all of them are made.
TEST(DeviceDrafts, OfModelsAndHeadsChangeNoAnswer) {
  auto requests = mixed_requests();
  requests.resize(5);
  DeviceEngine plain(Config{kOneByOne, {}});
  const auto want = plain.run(requests);
  std::vector<SpeculativeConfig> drafters(1);
  drafters[0].method = DraftMethod::draft_model;
  drafters[0].model = std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/llama3_gqa4_d16_bf16";
  for (const test::HeadCase& head : test::kLlamaHeads) {
    SpeculativeConfig& config = drafters.emplace_back();
    config.method = head.method;
    config.model = head_folder(head.head);
  }
  int64_t preemptions = 0, overlapped = 0;
  for (const SpeculativeConfig& drafter : drafters)
    for (const Config& base :
         {Config{kOneByOne, {2, 6, 17}, 17, 30, true}, Config{kWaits, {}, 9, 60, false, 60, 3},
          Config{kAhead, {2, 6}, 17, 40, true}}) {
      Config setup = base;
      setup.with_model = drafter;
      setup.drafts = setup.max_batched_tokens == 17 ? 15 : 4;
      if (base.overlap.future_tokens) setup.with_model.by_batch = {{1, 2, 4}, {4, 4, 2}, {3, 6, 0}};
      DeviceEngine engine(setup);
      EXPECT_EQ(engine.run(requests), want) << drafter.model << ", " << setup.max_batched_tokens << " rows";
      const EngineStats stats = engine.core().stats();
      EXPECT_GT(stats.speculative.draft_tokens, 20) << drafter.model;
      // The model itself is right where nothing is drawn.
      if (drafter.method == DraftMethod::draft_model) {
        EXPECT_GT(stats.speculative.accepted_tokens, base.overlap.future_tokens ? 10 : 60);
      }
      preemptions += stats.preemptions;
      overlapped += engine.executor().counts().future_tokens;
    }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(overlapped, 40);
}

TEST(DeviceDrafts, AreThoseOfTheFormulas) {
  constexpr double kTolerance = 2e-3;  // of the gap between the best two logits
  for (const test::HeadCase& head : test::kLlamaHeads) {
    test::ComparedDrafts compared;
    const auto golden = test::read_drafts(head_folder(head.head));
    for (const auto& text : golden["texts"]) {
      GenerateRequest request;
      request.prompt_ids = text["ids"].get<std::vector<int32_t>>();
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 16;
      request.sampling.ignore_eos = true;
      DeviceEngine plain(Config{kOneByOne, {}});
      const auto want = plain.run({request});
      std::vector<int32_t> whole = request.prompt_ids;
      whole.insert(whole.end(), want[0].ids.begin(), want[0].ids.end());
      for (const bool accepts : {false, true})
        for (const size_t every : {size_t{0}, accepts ? size_t{20} : size_t{3}}) {
          if (every > 0 && &head != test::kLlamaHeads) continue;
          test::Watched::Proposals proposals;
          test::Watched* newest = nullptr;
          Config setup{every == 0 ? kOneByOne : kAhead, {1, 2, 3, 4, 5, 6}};
          setup.latest = every == 3;
          setup.with_model.method = head.method;
          setup.with_model.model = head_folder(head.head);
          setup.with_model.adaptive = false;
          setup.drafts = 4;
          setup.watch = [&](std::unique_ptr<Drafter> drafter) {
            auto watched = std::make_unique<test::Watched>(std::move(drafter), proposals,
                                                           accepts ? whole : std::vector<int32_t>());
            watched->draft_every(every);
            watched->watch(request.prompt_ids);
            newest = watched.get();
            return watched;
          };
          DeviceEngine engine(setup);
          for (int round = 0; round < 2; ++round) {  // the second one behind a cached prefix
            proposals.clear();
            EXPECT_EQ(engine.run({request}), want);
            test::compare_drafts(proposals, text, compared);
          }
          EXPECT_EQ(engine.executor().counts().future_tokens > 0, every > 0);
          if (every != 20) continue;
          // And behind an answer that has ended beside another: its rows of the head waited for drafts.
          DeviceEngine turns(setup);
          GenerateRequest begun = request, next = request;
          begun.sampling.max_tokens = 10;
          next.prompt_ids.assign(whole.begin(), whole.end() - 6);
          next.sampling.max_tokens = 6;
          GenerateRequest other = request;
          other.prompt_ids = {3, 1, 4, 1, 5, 9, 2, 6};
          other.sampling.max_tokens = 20;
          turns.run({other, begun});
          newest->draft_every(0);
          proposals.clear();
          EXPECT_EQ(turns.run({next})[0].ids, std::vector<int32_t>(whole.end() - 6, whole.end()));
          test::compare_drafts(proposals, text, compared);
          if (HasFailure()) return;
        }
    }
    EXPECT_GT(compared.equal, 100) << head.head;
    EXPECT_LT(compared.gap, kTolerance) << head.head;
  }
}

/// A list of biases that is too long for a slot: the host samples, and the sequence's next row waits for it.
TEST(DeviceExecutor, SamplesOnTheHostWhatTheDeviceHasNoRoomFor) {
  std::vector<GenerateRequest> requests = mixed_requests();
  for (const size_t i : {1, 4})
    for (int32_t token = 0; token < 256; ++token)
      requests[i].sampling.logit_bias.push_back({token, static_cast<float>(token % 3)});
  DeviceEngine plain(Config{kOneByOne, {}}), ahead((Config()));
  const auto want = plain.run(requests);
  EXPECT_GT(plain.executor().counts().host_sampled, 60);
  EXPECT_NE(want[1].ids, plain.run(mixed_requests())[1].ids);
  EXPECT_EQ(ahead.run(requests), want);
  EXPECT_GT(ahead.executor().counts().host_sampled, 60);
  EXPECT_GT(ahead.executor().counts().future_tokens, 60);
}

/// Masks are filled on the host; the device draws, also from rows whose mask follows their forward pass.
TEST(DeviceExecutor, ConstraintsMaskRowsAndLeaveOthersAlone) {
  auto requests = mixed_requests();
  requests[6].sampling.ignore_eos = false;
  const auto constraint = [](size_t i) -> std::unique_ptr<TokenConstraint> {
    if (i % 2 == 0) return std::make_unique<test::HashConstraint>(i, 5, i == 6 ? 9 : -1);
    return nullptr;
  };
  Config host{{3, true}, {1, 2, 4, 6}};  // with three open steps the host draws
  host.constraint = constraint;
  DeviceEngine plain((Config())), on_host(host);
  const auto free = plain.run(requests), want = on_host.run(requests);
  EXPECT_GT(on_host.executor().counts().host_sampled, 60);
  EXPECT_EQ(on_host.executor().counts().masked, 0);
  EXPECT_NE(want[0].ids, free[0].ids);
  EXPECT_EQ(want[1], free[1]);
  for (size_t i = 0; i < want.size(); i += 2) {
    const auto rule = constraint(i);
    for (size_t t = 0; t < want[i].ids.size(); ++t)
      EXPECT_TRUE(rule->advance(want[i].ids[t]) || (i == 6 && t + 1 == want[i].ids.size())) << i << ", " << t;
  }
  int64_t preemptions = 0;
  for (const Config& base :
       {Config{}, Config{kAhead, {}}, Config{kOneByOne}, Config{kWaits}, Config{kAhead, {3}, 17, 400, true},
        Config{kAhead, {2, 6}, 64, 30, false, 60, 2}, Config{kAhead, {1, 2, 4, 6}, 9, 30, true}}) {
    Config setup = base;
    setup.constraint = constraint;
    DeviceEngine engine(setup);
    const auto got = engine.run(requests);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "request " << i << ", " << setup.max_batched_tokens << " rows, "
                                 << setup.num_pages << " pages, " << setup.buckets.size() << " graphs";
    const DeviceExecutor::Counts& counts = engine.executor().counts();
    EXPECT_EQ(counts.host_sampled, 0);
    EXPECT_GT(counts.masked, 60);
    EXPECT_EQ(counts.deferred > 30, setup.overlap.future_tokens);
    preemptions += engine.core().stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

/// Adapters "a", "b" and "c" of the model, of different ranks and modules.
std::map<std::string, std::shared_ptr<LoraAdapter>> adapters(const std::string& model,
                                                             const test::TempDir& temp) {
  const auto weights = test::weights_of(test::fixture_dir(model));
  const auto config = load_model_config(test::fixture_dir(model));
  FOVEA_CHECK(config.ok());
  std::map<std::string, std::shared_ptr<LoraAdapter>> out;
  const auto add = [&](const std::string& name, std::vector<std::string> modules,
                       test::AdapterOptions options) {
    options.targets = nlohmann::json(modules).dump();
    (void)test::write_adapter(temp, name, test::modules_of(weights, modules), options);
    auto adapter = read_lora_adapter(temp.path() + "/" + name, lora_shape(*config), 16);
    EXPECT_TRUE(adapter.ok()) << (adapter.ok() ? "" : adapter.error().message);
    out[name] = std::make_shared<LoraAdapter>(*std::move(adapter));
  };
  add("a", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}, {.rank = 5});
  add("b", {"q_proj", "v_proj"}, {.rank = 16, .dtype = DType::bf16, .seed = 2});
  add("c", {"down_proj", "up_proj", "k_proj"}, {.rank = 8, .seed = 3});
  return out;
}

/// The answers of requests alone, with logits that are those of the CPU's engine. `setup` has the adapters.
std::vector<Answer> adapted_alone(const std::string& model, const Config& setup, const test::TempDir& temp,
                                  const std::vector<GenerateRequest>& requests) {
  EngineConfig host = test::fixture_config(model, "CPU_ATTN");
  host.max_logprobs = -1;
  host.kv_cache_dtype = KvCacheDType::float32;
  for (const auto& [name, adapter] : setup.adapters)
    host.lora.modules.push_back({name, temp.path() + "/" + name});
  const auto cpu = test::make_engine(host);
  std::vector<Answer> out;
  if (!cpu) return out;
  for (const GenerateRequest& request : requests) {
    DeviceEngine engine(setup, model);
    out.push_back(engine.run({request})[0]);
    GenerateRequest scored = request;
    scored.sampling.max_tokens = 1;
    scored.last_logits = true;
    const std::vector<float> there = engine.run({scored})[0].last_logits;
    const std::vector<float> here = test::run_one(*cpu, scored).last.last_logits;
    EXPECT_EQ(there.size(), here.size());
    for (size_t i = 0; i < std::min(here.size(), there.size()); ++i)
      EXPECT_NEAR(there[i], here[i], 1e-4) << request.lora << ", token " << i;
    if (testing::Test::HasFailure()) break;
  }
  return out;
}

TEST(DeviceExecutor, AdaptersInSlotsAreThoseOfTheCpu) {
  auto requests = mixed_requests();
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].lora = std::array{"", "a", "b", "c"}[i % 4];
  const std::string model = "llama3_gqa4_d16_bf16";
  const test::TempDir temp;
  const auto all = adapters(model, temp);
  Config alone{kOneByOne, {}};
  alone.adapters = all;
  alone.lora_slots = 1;
  const std::vector<Answer> want = adapted_alone(model, alone, temp, requests);
  ASSERT_FALSE(HasFailure());
  DeviceEngine plain((Config()));
  const auto free = plain.run(requests = [&] {
    auto without = requests;
    for (GenerateRequest& request : without)
      request.lora.clear();
    return without;
  }());
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].lora = std::array{"", "a", "b", "c"}[i % 4];
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(want[i] == free[i], i % 4 == 0) << i;

  int64_t preemptions = 0;
  for (const Config& base :
       {Config{}, Config{kAhead, {}}, Config{kOneByOne}, Config{kAhead, {3}, 17, 400, true},
        Config{kAhead, {2, 6}, 64, 30, false, 60, 2}, Config{kAhead, {1, 2, 4, 6}, 9, 30, true}})
    for (const int slots : test::cases({1, 5, 2}, 1)) {
      Config setup = base;
      setup.adapters = all;
      setup.lora_slots = slots;
      setup.lora_block_rows = slots == 2 ? 64 : 7;
      DeviceEngine engine(setup);
      const auto got = engine.run(requests);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(got[i], want[i]) << "request " << i << ", " << slots << " slots, "
                                   << setup.max_batched_tokens << " rows, " << setup.buckets.size()
                                   << " graphs";
      // Requests whose adapter has a slot overtake others, so that each adapter may be copied once only.
      EXPECT_GE(engine.lora_slots().copies(), 3);
      if (slots == 2) {
        EXPECT_EQ(engine.run(requests), want);
        EXPECT_GT(engine.lora_slots().copies(), 3);
      }
      if (slots == 5) {
        EXPECT_EQ(engine.lora_slots().copies(), 3);
      }
      preemptions += engine.core().stats().preemptions;
    }
  EXPECT_GT(preemptions, 0);
}

TEST(DeviceExecutor, AdaptersOfExpertsInSlotsAreThoseOfTheCpu) {
  auto requests = mixed_requests();
  requests.resize(5);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].lora = std::array{"a", "", "c", "b", "a"}[i];
  const std::string model = "qwen3moe_gqa2_d16_bf16";
  const test::TempDir temp;
  Config setup{kOneByOne, {}};
  setup.adapters = adapters(model, temp);
  setup.lora_slots = 1;
  const std::vector<Answer> want = adapted_alone(model, setup, temp, requests);
  ASSERT_FALSE(HasFailure());
  setup = Config{kAhead, {2, 6}, 17, 400, true};
  setup.adapters = adapters(model, temp);
  setup.lora_slots = 2;
  DeviceEngine engine(setup, model);
  EXPECT_EQ(engine.run(requests), want);
  for (GenerateRequest& request : requests)
    request.lora.clear();
  const auto free = engine.run(requests);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(want[i] == free[i], i == 1) << i;
}

TEST(DeviceExecutor, UnusableLogitsFailTheirRequestAlone) {
  const auto requests = mixed_requests();
  DeviceEngine good((Config())), bad((Config()));
  const auto want = good.run(requests);
  const auto got =
      bad.run(requests, [&](int step) { bad.queue().unusable_seed = step < 12 ? UINT64_MAX : 1; });
  EXPECT_EQ(got[1].finish, FinishReason::error);
  EXPECT_THAT(got[1].error, HasSubstr("not numbers"));
  EXPECT_GT(got[1].ids.size(), 3u);
  for (size_t i = 0; i < want.size(); ++i)
    if (i != 1) {
      EXPECT_EQ(got[i], want[i]) << i;
    }
  EXPECT_FALSE(bad.executor().failure());
}

TEST(DeviceExecutor, AStepThatNeverEndsFailsEverythingWithItsPlace) {
  DeviceEngine engine(Config{kAhead, {1, 2, 4, 6}, 33, 400, false, 0.05});
  const auto answers =
      engine.run(mixed_requests(), [&](int step) { engine.queue().stands_still = step >= 4; });
  ASSERT_TRUE(engine.executor().failure());
  EXPECT_THAT(engine.executor().failure()->message, HasSubstr("the device stands still"));
  EXPECT_THAT(engine.executor().failure()->message, HasSubstr("prompt rows"));
  EXPECT_THAT(engine.executor().failure()->message, HasSubstr(", in the copy of its arrays)"));
  for (const Answer& answer : answers)
    EXPECT_EQ(answer.finish, FinishReason::error);
  engine.queue().stands_still = false;
  (void)engine.queue().device().synchronize(engine.queue().stream());
  engine.run({mixed_requests()[0]});  // refused at once, and the core is idle again
}

TEST(DeviceExecutor, ABrokenDeviceFailsEverythingWithItsReason) {
  DeviceEngine engine((Config()));
  const auto answers = engine.run(mixed_requests(), [&](int step) {
    if (step == 5) engine.queue().breaks = Error{ErrorCode::internal, "an illegal access"};
  });
  ASSERT_TRUE(engine.executor().failure());
  EXPECT_THAT(engine.executor().failure()->message, HasSubstr("failed: an illegal access"));
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.finish, FinishReason::error);
    EXPECT_THAT(answer.error, HasSubstr("an illegal access"));
  }
  (void)engine.queue().device().synchronize(engine.queue().stream());
}

}  // namespace
}  // namespace fovea
