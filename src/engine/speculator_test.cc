// Steps that verify drafts: answers are those without drafts, whatever the drafter proposes, and every page
// is accounted for.
#include "engine/speculator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>

#include "engine/overlap_test_support.h"
#include "engine/scheduler_test_support.h"
#include "speculative/ngram_drafter.h"

namespace fovea {
namespace {

using test::Answer;
using test::config_of;
using test::Harness;
using test::kDecoded;
using test::kVocab;
using test::next_token;
using test::Tokens;

/// Proposes the right tokens, each with a probability, and wrong ones in their places.
class Oracle final : public Drafter {
 public:
  /// `seldom`: it may have none for most lengths.
  Oracle(const SchedulerConfig& config, double right, uint32_t seed = 0, bool seldom = false)
      : config_(config), right_(right), seldom_(seldom), rng_(seed) {}

  bool may_draft(const DraftJob& job) override { return !seldom_ || job.tokens.size() % 4 == 0; }

  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      Tokens keys(job.tokens.begin(), job.tokens.end());
      for (size_t i = static_cast<size_t>(job.prompt_len); i < keys.size(); ++i)
        keys[i] += mark();
      const auto count = std::uniform_int_distribution<int>(right_ == 1 ? job.most : 0, job.most)(rng_);
      for (int i = 0; i < count; ++i) {
        int32_t token = next_token(keys, config_.window);
        keys.push_back(token + mark());
        if (std::bernoulli_distribution(1 - right_)(rng_)) token = (token + 1) % kVocab;
        job.drafts.push_back(token);
      }
    }
  }
  void settle(std::span<const HiddenRows> sequences) override {
    for (const HiddenRows& rows : sequences)
      settled.push_back(rows.id);
  }
  void end(uint64_t, std::span<const int32_t>, int, std::string_view) override { ++ended; }

  int ended = 0;
  std::vector<uint64_t> settled;

 private:
  int32_t mark() const { return config_.phases_differ ? kDecoded : 0; }
  SchedulerConfig config_;
  double right_;
  bool seldom_;
  std::mt19937 rng_;
};

SpeculativeConfig drafts(int k) {
  SpeculativeConfig config;
  config.method = DraftMethod::ngram;
  config.num_tokens = k;
  return config;
}

std::unique_ptr<Speculator> oracle(const SchedulerConfig& config, int k, double right, uint32_t seed = 0,
                                   bool seldom = false) {
  return std::make_unique<Speculator>(drafts(k), std::make_unique<Oracle>(config, right, seed, seldom),
                                      kVocab);
}

/// Two sequences, and logits for every row.
SchedulerConfig wide() {
  SchedulerConfig config = config_of(2, 16, 2, 32);
  config.max_logit_rows = config.max_batched_tokens;
  return config;
}

TEST(Speculator, RightDraftsSaveTheirSteps) {
  const SchedulerConfig config = wide();
  Harness h(config, {}, 0, oracle(config, 3, 1));
  h.add({1, 2, 3}, 9);  // the prefill samples one, then 4, then 4
  h.finish();
  EXPECT_EQ(h.device.submitted, 3u);
  EXPECT_EQ(h.device.drafts, 6);
  const SpeculativeCounts counts = h.core.stats().speculative;
  EXPECT_EQ(counts.drafts, 2);
  EXPECT_EQ(counts.draft_tokens, 6);
  EXPECT_EQ(counts.accepted_tokens, 6);
  EXPECT_EQ(counts.accepted_by_position, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(h.core.stats().generated_tokens, 9);
}

TEST(Speculator, WrongDraftsCostNoStep) {
  const SchedulerConfig config = wide();
  Harness h(config, {}, 0, oracle(config, 15, 0, 5));
  h.add({1, 2, 3}, 12);
  h.finish();
  EXPECT_EQ(h.device.submitted, 12u);
  EXPECT_GT(h.device.drafts, 20);
  EXPECT_EQ(h.core.stats().speculative.accepted_tokens, 0);
}

TEST(Speculator, NoDraftIsVerifiedBeyondMaxTokens) {
  const SchedulerConfig config = config_of(2, 16, 2, 32);
  Harness h(config, {}, 0, oracle(config, 7, 1));
  h.add({1, 2, 3}, 3);
  h.finish();
  EXPECT_EQ(h.device.drafts, 1);  // tokens 2 and 3 in one step
  EXPECT_EQ(h.device.submitted, 2u);
}

TEST(Speculator, DraftsTakeNoRowFromPrompts) {
  SchedulerConfig config = config_of(4, 6, 2, 64, false);
  Harness h(config, {}, 0, oracle(config, 5, 1));
  h.add({1, 2, 3}, 30);
  h.step();
  EXPECT_EQ(h.device.drafts, 0);
  h.step();                       // alone: the whole budget
  EXPECT_EQ(h.device.drafts, 3);  // max_logit_rows is 4
  h.add({1, 2, 3, 4, 0, 1, 2, 3, 4, 1, 1, 2, 3}, 3);
  h.step();
  EXPECT_EQ(h.device.drafts, 3);  // the prompt takes all rows that are left
  h.finish();
  EXPECT_GT(h.device.drafts, 8);
}

TEST(Speculator, TheTableSaysHowManyDraftsABatchGets) {
  const SchedulerConfig config = config_of(4, 64, 2, 64);
  SpeculativeConfig rules = drafts(6);
  rules.by_batch = {{1, 1, 2}, {2, 8, 0}};
  Harness h(config, {}, 0, std::make_unique<Speculator>(rules, std::make_unique<Oracle>(config, 1), kVocab));
  h.add({1, 2, 3}, 20);
  h.step();
  h.step();
  EXPECT_EQ(h.device.drafts, 2);
  h.add({3, 3, 3}, 2);
  h.step();  // one decodes, and one prompt
  EXPECT_EQ(h.device.drafts, 4);
  h.step();
  EXPECT_EQ(h.device.drafts, 4);
  h.finish();
}

TEST(Speculator, RejectedDraftsBecomeRare) {
  SchedulerConfig config = wide();
  config.num_pages = 200;
  config.max_seq_len = 400;
  for (const bool adaptive : {false, true}) {
    SpeculativeConfig speculative = drafts(4);
    speculative.adaptive = adaptive;
    Harness h(config, {}, 0,
              std::make_unique<Speculator>(speculative, std::make_unique<Oracle>(config, 0, 3), kVocab));
    h.add({1, 2, 3}, 300);
    h.finish();
    const int64_t verified = h.core.stats().speculative.draft_tokens;
    EXPECT_EQ(verified < 200, adaptive) << verified;
    EXPECT_GT(verified, 20) << "it never stops trying";
  }
}

/// Heads compute the rows that wait of all answers of a request before their pages are found by others.
TEST(Speculator, ACancelSettlesAllAnswersOfARequest) {
  const SchedulerConfig config = config_of(4, 16, 2, 64);
  auto drafter = std::make_unique<Oracle>(config, 1);
  const Oracle& watched = *drafter;
  Harness h(config, {}, 0, std::make_unique<Speculator>(drafts(2), std::move(drafter), kVocab));
  h.add_group({1, 2, 3}, 20, 3);
  h.step();
  h.step();
  h.step();
  h.core.cancel(0);
  EXPECT_EQ(watched.settled, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(watched.ended, 3);
  h.core.step([] {});
  EXPECT_TRUE(h.core.idle());
}

/// Drafts of any quality, random arrivals and cancels, small pools: preemptions, prefix hits, windows.
TEST(Speculator, AnswersAreThoseWithoutDraftsInAStorm) {
  int64_t preemptions = 0, accepted = 0, drafted = 0, hits = 0, overlapped = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 rng(seed);
    const auto random = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    const int running = random(1, 5), page = random(1, 4);
    SchedulerConfig config = config_of(running, random(running, 24), page, random(20, 40), seed % 3 != 0);
    config.max_logit_rows = random(running, 24);
    config.max_seq_len = 30;
    config.phases_differ = seed % 2 == 0;
    if (seed % 5 == 0) config.window = random(1, 9);
    config.num_pages = std::max<int64_t>(longest_sequence_pages(config), random(8, 40));
    const double right = std::array{0.0, 0.5, 0.9, 1.0}[seed % 4];
    auto speculator = seed % 7 == 0 ? std::make_unique<Speculator>(
                                          drafts(random(1, 15)), std::make_unique<NgramDrafter>(1, 3), kVocab)
                                    : oracle(config, random(1, 15), right, seed, random(0, 2) == 0);
    test::LateDevice::Options device;
    if (seed % 3 == 1) device.overlap = {2, true};
    device.latest = seed % 11 == 0;
    Harness h(config, device, seed, std::move(speculator));
    for (int steps = 0, asked = 0; asked < 12 || !h.core.idle(); ++steps) {
      ASSERT_LT(steps, 5000);
      if (asked < 12 && random(0, 2) == 0) {
        Tokens prompt(static_cast<size_t>(random(1, 12)));
        for (int32_t& token : prompt)
          token = random(0, 1);
        h.add(std::move(prompt), random(1, 18), random(0, 3) == 0 ? random(0, kVocab - 1) : -1,
              random(0, 4) == 0);
        ++asked;
      }
      if (random(0, 40) == 0 && asked > 0) h.core.cancel(static_cast<uint64_t>(random(0, asked - 1)));
      h.step();
      if (HasFailure()) FAIL() << "seed " << seed;
    }
    h.finish();
    if (HasFailure()) FAIL() << "seed " << seed;
    const EngineStats stats = h.core.stats();
    preemptions += stats.preemptions;
    overlapped += h.device.future_tokens;
    hits += stats.prefix_hits;
    accepted += stats.speculative.accepted_tokens;
    drafted += stats.speculative.draft_tokens;
  }
  EXPECT_GT(overlapped, 500);
  EXPECT_GT(preemptions, 200);
  EXPECT_GT(hits, 500);
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(drafted - accepted, 2000);
}

}  // namespace
}  // namespace fovea
