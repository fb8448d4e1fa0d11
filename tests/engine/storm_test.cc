// Prefill and decode on backends whose bits differ: 200 prompts alone, and the same 200 in storms of random
// arrivals, cancels, preemptions and chunks, with pages of 1, 16 and 64 tokens, with and without a prefix
// cache. Tokens, log probabilities and logits are compared as bytes. Everything runs on one thread in an
// order that the seed decides, so that a failure repeats.
#include <algorithm>
#include <cstring>
#include <random>

#include "engine/core.h"
#include "engine/cpu_executor.h"
#include "engine/engine_setup.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::prompt_of;

constexpr char kPair[] = "CPU_ATTN,TORCH_NATIVE";
constexpr int kLongest = 256;
constexpr int kPrompts = 200;

void append(std::string& bytes, const void* data, size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

void append(std::string& bytes, const TokenLogprobs& logprobs) {
  const auto one = [&](const TokenLogprob& t) {
    append(bytes, &t.token_id, sizeof t.token_id);
    append(bytes, &t.logprob, sizeof t.logprob);
    append(bytes, &t.rank, sizeof t.rank);
  };
  one(logprobs.token);
  for (const TokenLogprob& t : logprobs.top)
    one(t);
}

/// What a caller got of one answer.
struct Answer {
  std::vector<int32_t> ids;
  std::string bytes;  // of ids' log probabilities, those of the prompt, and the last row of logits
  bool ended = false;
};
using Answers = std::vector<Answer>;  // the n of a request

/// An engine without its thread.
class Core {
 public:
  explicit Core(const EngineConfig& config, bool rules = true) {
    const Status status = setup_.open(config);
    if (!status) throw std::runtime_error(status.error().message);
    setup_.scheduler.num_pages = setup_.kv->num_pages(0);
    EXPECT_EQ(setup_.scheduler.phases_differ, config.attention.backend == kPair);
    if (!rules) setup_.scheduler.phases_differ = false;
    executor_ = std::make_unique<CpuExecutor>(*setup_.runner, *setup_.stream);
    core_ = std::make_unique<EngineCore>(setup_.scheduler, *executor_);
  }

  /// Returns the id; answers arrive in `out`.
  uint64_t add(const GenerateRequest& request, std::shared_ptr<Answers> out) {
    out->resize(static_cast<size_t>(request.sampling.n));
    auto made = Request::create(
        request,
        [out](const RequestOutput& output) {
          Answer& answer = (*out)[static_cast<size_t>(output.index)];
          EXPECT_NE(output.finish, FinishReason::error) << output.error.message;
          answer.ids.insert(answer.ids.end(), output.token_ids.begin(), output.token_ids.end());
          for (const auto* list : {&output.logprobs, &output.prompt_logprobs})
            for (const TokenLogprobs& logprobs : *list)
              append(answer.bytes, logprobs);
          append(answer.bytes, output.last_logits.data(), output.last_logits.size() * sizeof(float));
          answer.ended = answer.ended || output.finish == FinishReason::length;
        },
        setup_.context);
    if (!made) throw std::runtime_error(made.error().message);
    const uint64_t id = next_id_;
    next_id_ += made->size();
    for (auto& one : *made) {
      one->set_id(id);
      core_->add(std::move(one));
    }
    return id;
  }

  void step() {
    core_->step([] {});
  }
  EngineCore& operator*() { return *core_; }
  EngineCore* operator->() { return core_.get(); }

  Answers run(const GenerateRequest& request) {
    const auto answers = std::make_shared<Answers>();
    add(request, answers);
    while (!core_->idle())
      step();
    return *answers;
  }

 private:
  EngineSetup setup_;
  std::unique_ptr<CpuExecutor> executor_;
  std::unique_ptr<EngineCore> core_;
  uint64_t next_id_ = 1;
};

struct Setting {
  int page_size = 16;
  bool prefix_cache = false;
  int chunk = 512;  // rows of a step
  int running = 16;
  int64_t pages = 0;  // 0 = room for all
  int threads = 1;
};

EngineConfig config_of(const Setting& s, const std::string& backend = kPair) {
  EngineConfig config = test::fixture_config(test::kLlama, backend);
  config.kv_cache_dtype = KvCacheDType::float32;  // bf16 would round most differences away
  config.attention.page_size = s.page_size;
  config.prefix_cache = s.prefix_cache;
  config.max_batched_tokens = s.chunk;
  config.max_running_requests = s.running;
  config.max_seq_len = kLongest;
  config.num_pages = s.pages > 0 ? s.pages : int64_t{s.running} * (kLongest / s.page_size);
  config.threads = s.threads;
  return config;
}

struct Case {
  GenerateRequest request;
  Answers alone;
};

/// Half of the prompts are new, some with a common beginning; a quarter are earlier ones once more (a full
/// prefix hit), a quarter an earlier one with its answer and something after it (the next turn of a chat).
std::vector<Case> cases(int count, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Core alone(config_of({}));
  std::vector<Case> all;
  for (int i = 0; i < count; ++i) {
    const int kind = i < 8 ? 0 : i % 4;
    std::vector<int32_t> prompt;
    if (kind <= 1) {
      if (below(2)) prompt = prompt_of(below(2) ? 32 : 64, 1000);
      const auto own =
          prompt_of(below(3) ? below(50) + 1 : 64 - below(2) * 32, seed + static_cast<uint32_t>(i));
      prompt.insert(prompt.end(), own.begin(), own.end());
    } else {
      const Case* earlier = &all[static_cast<size_t>(below(i))];
      for (; earlier->request.prompt_ids.size() > 150; --earlier) {
      }
      prompt = earlier->request.prompt_ids;
      if (kind == 3) {
        prompt.insert(prompt.end(), earlier->alone[0].ids.begin(), earlier->alone[0].ids.end());
        const auto more = prompt_of(below(10) + 1, static_cast<uint32_t>(i));
        prompt.insert(prompt.end(), more.begin(), more.end());
      }
    }
    Case c;
    c.request = test::greedy(std::move(prompt), below(40) + 1);
    c.request.sampling.logprobs = 2;
    if (below(2)) {
      c.request.sampling.temperature = 1;
      c.request.sampling.seed = static_cast<uint64_t>(i);
      if (below(4) == 0) c.request.sampling.n = 2;
    }
    if (below(6) == 0) c.request.prompt_logprobs = 1;
    c.request.last_logits = below(3) == 0;
    c.alone = alone.run(c.request);
    all.push_back(std::move(c));
  }
  return all;
}

/// A prompt that continues the answer of a sequence that waits after a preemption, while its pages are
/// cached; empty = there is none.
std::vector<int32_t> continuation(const Scheduler& scheduler) {
  for (const Sequence* s : scheduler.first_in_order(64))
    if (s->preemptions > 0 && s->pages.empty() && s->num_tokens() > s->prompt_len + 1 &&
        s->num_tokens() < 200) {
      std::vector<int32_t> prompt = s->tokens;
      prompt.push_back(7);
      return prompt;
    }
  return {};
}

struct Seen {
  int64_t differ = 0, hits = 0, preemptions = 0, cancelled = 0;
};

/// All cases in one storm; counts answers that differ from those alone.
Seen storm(const std::vector<Case>& all, const Setting& setting, uint32_t seed, bool rules = true) {
  std::mt19937 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Core core(config_of(setting), rules);
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::ranges::shuffle(order, rng);
  std::vector<std::shared_ptr<Answers>> got(all.size());
  std::vector<uint64_t> doomed;
  Seen seen;
  std::vector<std::pair<GenerateRequest, std::shared_ptr<Answers>>> continued;
  for (size_t next = 0; next < order.size() || !core->idle();) {
    for (; next < order.size() && below(4) == 0; ++next) {
      const size_t i = order[next];
      core.add(all[i].request, got[i] = std::make_shared<Answers>());
      // Company that will be cancelled, often in the middle.
      if (below(3) == 0) {
        GenerateRequest other = all[static_cast<size_t>(below(static_cast<int>(all.size())))].request;
        other.client = below(2) ? "another" : "";
        doomed.push_back(core.add(other, std::make_shared<Answers>()));
      }
    }
    if (!doomed.empty() && below(20) == 0) {
      std::swap(doomed[static_cast<size_t>(below(static_cast<int>(doomed.size())))], doomed.back());
      const size_t before = core->live();
      core->cancel(doomed.back());
      seen.cancelled += core->live() < before;
      doomed.pop_back();
    }
    core.step();
    if (setting.prefix_cache && continued.size() < 20)
      if (auto prompt = continuation(core->scheduler()); !prompt.empty()) {
        GenerateRequest request = test::greedy(std::move(prompt), 5);
        request.sampling.logprobs = 2;
        request.client = "next";  // its turn is soon
        continued.emplace_back(request, std::make_shared<Answers>());
        core.add(request, continued.back().second);
      }
  }
  Core alone(config_of({}));
  for (const auto& [request, answers] : continued) {
    const bool same = alone.run(request)[0].bytes == answers->front().bytes;
    seen.differ += !same;
    if (rules) {
      EXPECT_TRUE(same) << "a prompt of " << request.prompt_ids.size()
                        << " that continues a preempted answer";
    }
  }
  EXPECT_TRUE(core->scheduler().consistent());
  EXPECT_EQ(core->stats().pages_in_use, 0);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t n = 0; n < all[i].alone.size(); ++n) {
      const Answer &answer = (*got[i])[n], &want = all[i].alone[n];
      EXPECT_TRUE(answer.ended && want.ended);
      const bool same = answer.ids == want.ids && answer.bytes == want.bytes;
      seen.differ += !same;
      if (rules) {
        EXPECT_TRUE(same) << "prompt " << i << ", answer " << n;
      }
    }
  seen.hits = core->stats().prefix_hits;
  seen.preemptions = core->stats().preemptions;
  return seen;
}

TEST(Storm, AnswersHaveTheBitsOfAPromptAlone) {
  const std::vector<Case> all = cases(kPrompts, 7);
  // The longest sequence's pages and some more, so that answers are preempted.
  const Setting settings[] = {{1, true, 37, 12, 300},  {1, false, 16, 8, 300, 2}, {16, true, 64, 16, 20},
                              {16, false, 37, 12, 20}, {64, true, 512, 8, 6, 2},  {64, false, 100, 16, 7},
                              {16, true, 3, 2, 0}};
  Seen sum;
  uint32_t seed = 0;
  for (const Setting& s : settings) {
    SCOPED_TRACE(testing::Message() << "pages of " << s.page_size << ", cache " << s.prefix_cache
                                    << ", steps of " << s.chunk << ", " << s.running << " at a time");
    const Seen seen = storm(all, s, ++seed);
    if (s.pages > 0) {
      EXPECT_GT(seen.preemptions, 10);
    }
    if (s.prefix_cache) {
      EXPECT_GT(seen.hits, 100);
    }
    sum.cancelled += seen.cancelled;
  }
  EXPECT_GT(sum.cancelled, 50);
}

// The storm can fail: without the rules, answers change for each reason alone.

TEST(Storm, ThePairsBitsDiffer) {
  Core pair(config_of({})), one(config_of({}, "CPU_ATTN"));
  GenerateRequest request = test::greedy(prompt_of(40, 3), 20);
  request.sampling.logprobs = 2;
  EXPECT_NE(pair.run(request)[0].bytes, one.run(request)[0].bytes);
}

TEST(Storm, WithoutTheRulesPreemptionChangesAnswers) {
  EXPECT_GT(storm(cases(60, 11), {16, false, 37, 12, 20}, 1, false).differ, 0);
}

TEST(Storm, WithoutTheRulesGeneratedPagesChangeTheNextTurn) {
  Core core(config_of({16, true}), false);
  int differ = 0;
  for (const Case& c : cases(60, 12)) {
    const Answers got = core.run(c.request);
    differ += got[0].bytes != c.alone[0].bytes;
  }
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace fovea
