// The engine on a device whose results come late: steps are submitted before earlier ones are done.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <span>

#include "engine/core.h"
#include "engine/overlap_test_support.h"
#include "engine/scheduler_test_support.h"

namespace fovea {
namespace {

using test::Answer;
using test::config_of;
using test::Harness;
using test::kVocab;
using test::LateDevice;
using test::next_token;
using test::Tokens;

constexpr Overlap kAhead{2, true};

/// A prompt whose answer stops at `stop` after some tokens, but not at once.
Tokens prompt_that_stops(int32_t stop, int max_tokens) {
  for (int32_t salt = 0;; ++salt) {
    Tokens all = {salt % kVocab, salt / kVocab % kVocab, salt / kVocab / kVocab % kVocab, 1};
    const Tokens prompt = all;
    for (int i = 0; i < max_tokens; ++i) {
      const int32_t token = next_token(all);
      if (token == stop && i > 1) return prompt;
      if (token == stop) break;
      all.push_back(token);
    }
  }
}

TEST(Overlap, ADecodeIsSubmittedBeforeItsTokenIsKnown) {
  Harness h(config_of(2, 8, 2, 32), {.overlap = kAhead, .latest = true});
  h.add({1, 2, 3}, 5);
  h.step();
  EXPECT_EQ(h.device.submitted, 2u);  // the prefill, and the decode of the token that it samples
  EXPECT_EQ(h.device.open(), 1u);
  EXPECT_EQ(h.device.future_tokens, 1);
  h.finish();
  EXPECT_EQ(h.device.submitted, 5u);  // no step after the last token allowed by max_tokens
  EXPECT_EQ(h.device.overlapped, 4);
}

TEST(Overlap, OneOpenStepIsSubmittedAndWaitedFor) {
  Harness h(config_of(2, 8, 2, 32), {.overlap = {}, .latest = true});
  h.add({1, 2, 3}, 5);
  for (uint64_t i = 1; i <= 5; ++i) {
    h.step();
    EXPECT_EQ(h.device.submitted, i);
    EXPECT_EQ(h.device.open(), 0u);
  }
  h.finish();
  EXPECT_EQ(h.device.overlapped + h.device.future_tokens, 0);
}

TEST(Overlap, WithoutFutureTokensOnlyIndependentRowsAreSubmittedAhead) {
  Harness h(config_of(4, 4, 2, 64), {.overlap = {2, false}, .latest = true});
  h.add({1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}, 3);  // chunks of 4, 4 and 3: independent of results
  h.step();
  EXPECT_EQ(h.device.submitted, 2u);
  h.step();
  EXPECT_EQ(h.device.submitted, 3u);
  h.step();  // the third step samples the first token, which the fourth needs
  EXPECT_EQ(h.device.submitted, 3u);
  h.finish();
  EXPECT_EQ(h.device.submitted, 5u);
  EXPECT_EQ(h.device.future_tokens, 0);
}

TEST(Overlap, AStoppedSequenceKeepsItsPagesUntilItsRowsAreDone) {
  Harness h(config_of(2, 8, 2, 32, false), {.overlap = kAhead, .latest = true});
  const Answer& answer = h.add(prompt_that_stops(3, 10), 20, 3);
  while (answer.ends == 0)
    h.step();
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(h.core.live(), 0u);
  EXPECT_EQ(h.device.open(), 1u);  // it has a row after the stop token
  EXPECT_FALSE(h.core.idle());
  EXPECT_GT(h.core.scheduler().pages_in_use(), 0);
  h.step();
  EXPECT_TRUE(h.core.idle());
  EXPECT_EQ(h.core.scheduler().pages_in_use(), 0);
  h.finish();
}

TEST(Overlap, ACancelledSequenceEndsAtOnceAndKeepsItsPagesUntilItsRowsAreDone) {
  Harness h(config_of(2, 8, 2, 32, false), {.overlap = kAhead, .latest = true});
  const Answer& cancelled = h.add({1, 2, 3}, 10);
  h.add({2, 2, 3}, 10);
  h.step();
  h.step();
  h.core.cancel(0);
  EXPECT_EQ(cancelled.finish, FinishReason::cancelled);
  EXPECT_EQ(h.core.live(), 1u);
  const int64_t before = h.core.scheduler().pages_in_use();
  h.step();
  EXPECT_LT(h.core.scheduler().pages_in_use(), before);
  h.finish();
}

TEST(Overlap, WithAllCancelledItWaitsForOpenSteps) {
  Harness h(config_of(4, 8, 2, 32), {.overlap = {3, true}, .latest = true});
  for (int32_t i = 0; i < 4; ++i)
    h.add({i, 2, 3}, 10);
  h.step();
  EXPECT_GT(h.device.open(), 0u);
  h.core.cancel_all();
  EXPECT_TRUE(h.core.idle());
  h.finish();
  for (const auto& answer : h.answers)
    EXPECT_EQ(answer->finish, FinishReason::cancelled);
}

TEST(Overlap, AFailedStepEndsItsSequencesAndNoOthers) {
  // The first sequence fills steps 1 and 2. Step 3 has rows of both sequences, and is submitted before the
  // failure of step 2 is known.
  Harness h(config_of(4, 4, 2, 64), {.overlap = kAhead, .latest = true, .fails = 2});
  const Answer& failed = h.add({1, 2, 3, 4, 0, 1, 2, 3}, 6);
  h.step();
  const Answer& other = h.add({2, 2, 2}, 6);
  h.finish();
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_EQ(failed.error, "the device failed");
  EXPECT_TRUE(failed.ids.empty());
  EXPECT_EQ(other.finish, FinishReason::length);
}

TEST(Overlap, SequencesWithRowsInFlightAreNotPreempted) {
  // 8 pages of 2 tokens: the two sequences need 2 + 2 pages at first and 7 each at the end.
  for (const Overlap overlap : {Overlap{2, true}, Overlap{3, true}, Overlap{2, false}}) {
    Harness h(config_of(4, 16, 2, 8), {.overlap = overlap, .latest = true});
    h.add({0, 1, 2, 0}, 9);
    h.add({2, 1, 0, 1}, 9);
    h.finish();  // consistent() checks that a waiting sequence has nothing in flight
    EXPECT_GT(h.core.stats().preemptions, 0);
    EXPECT_LE(h.core.stats().preemptions, 9);
  }
}

TEST(Overlap, AResultMayHaveSeveralTokens) {
  for (const int tokens : {2, 3}) {
    Harness h(config_of(4, 16, 2, 32), {.overlap = {2, false}, .tokens_per_result = tokens});
    h.add({0, 1, 2, 0}, 10);
    h.add(prompt_that_stops(3, 12), 12, 3);
    h.add({2, 1, 0, 1, 1}, 10);
    h.finish();
    EXPECT_LT(h.core.stats().steps, 8);  // 12 tokens at most
  }
}

class AnyOverlap : public testing::TestWithParam<bool> {};

/// Random arrivals, cancels, lengths, stop tokens, windows and delays in small pools: every answer equals
/// that of the request run alone, and all pages are released.
TEST_P(AnyOverlap, AnswersDoNotDependOnIt) {
  int64_t preemptions = 0, hits = 0, overlapped = 0, future_tokens = 0;
  int stopped = 0, cancelled = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
    constexpr int kLongest = 40;
    auto config = config_of(below(6) + 1, std::array{1, 3, 7, 64}[static_cast<size_t>(below(4))],
                            std::array{1, 2, 3, 16}[seed % 4], 1, below(4) != 0);
    config.max_seq_len = kLongest;
    config.watermark = std::array{1, 4, 32}[static_cast<size_t>(below(3))];
    if (below(3) == 0) config.window = below(12) + 1;
    config.num_pages = longest_sequence_pages(config) + below(3) * below(10);
    config.phases_differ = GetParam();
    LateDevice::Options options;
    options.overlap = {below(3) + 1, below(3) != 0};
    if (!options.overlap.future_tokens) options.tokens_per_result = below(3) + 1;
    Harness h(config, options, seed);
    int to_arrive = 20;
    for (int step = 0; !h.core.idle() || to_arrive > 0; ++step) {
      ASSERT_LT(step, 20000) << "no progress";
      while (to_arrive > 0 && below(3) == 0) {
        --to_arrive;
        Tokens prompt(static_cast<size_t>(below(30)) + 1);
        for (int32_t& token : prompt)
          token = below(10) == 0;
        const int room = kLongest - static_cast<int>(prompt.size());
        h.add(std::move(prompt), below(room) + 1, below(2) ? 4 : -1, below(5) == 0);
      }
      if (!h.answers.empty() && below(40) == 0)
        h.core.cancel(static_cast<uint64_t>(below(static_cast<int>(h.answers.size()))));
      h.step();
      if (testing::Test::HasFailure()) return;
    }
    h.finish();
    if (testing::Test::HasFailure()) return;
    const EngineStats stats = h.core.stats();
    preemptions += stats.preemptions;
    hits += stats.prefix_hits;
    overlapped += h.device.overlapped;
    future_tokens += h.device.future_tokens;
    for (const auto& answer : h.answers) {
      stopped += answer->finish == FinishReason::stop;
      cancelled += answer->finish == FinishReason::cancelled;
    }
  }
  // The runs exercised what they are meant to test.
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(hits, 100);
  EXPECT_GT(overlapped, 1000);
  EXPECT_GT(future_tokens, 500);
  EXPECT_GT(stopped, 100);
  EXPECT_GT(cancelled, 30);
}

INSTANTIATE_TEST_SUITE_P(Phases, AnyOverlap, testing::Bool(),
                         [](const auto& p) { return p.param ? "differ" : "alike"; });

}  // namespace
}  // namespace fovea
