// Prefill and decode on backends whose bits differ: 200 prompts alone, and the same 200 in storms of random
// arrivals, cancels, preemptions and chunks, with pages of 1, 16 and 64 tokens, with and without a prefix
// cache. Tokens, log probabilities and logits are compared as bytes. Everything runs on one thread in an
// order that the seed decides, so that a failure repeats.
#include <algorithm>
#include <random>

#include "base/thread_pool.h"
#include "tests/engine/storm.h"

namespace fovea {
namespace {

using test::Answers;
using test::Case;
using test::cases;
using test::config_of;
using test::Core;
using test::prompt_of;
using test::Setting;
using test::StormAnswer;

constexpr int kPrompts = 200;

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
      const StormAnswer &answer = (*got[i])[n], &want = all[i].alone[n];
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
