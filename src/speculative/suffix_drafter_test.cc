#include "speculative/suffix_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fovea {
namespace {

using Tokens = std::vector<int32_t>;

SpeculativeConfig suffix(int cached = 0) {
  SpeculativeConfig config;
  config.method = DraftMethod::suffix;
  config.num_tokens = 15;
  config.suffix_max_cached_requests = cached;
  return config;
}

Tokens propose(SuffixDrafter& drafter, uint64_t id, const Tokens& tokens, int most = 15,
               std::string_view client = "") {
  std::vector<DraftJob> jobs = {{id, tokens, 1, client, most, {}}};
  drafter.propose(jobs);
  return jobs[0].drafts;
}

TEST(SuffixIndex, FindsTheLongestMatchOfTheDefinition) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    SuffixIndex index;
    Tokens tokens;
    for (int i = 0; i < 80; ++i) {
      tokens.push_back(static_cast<int32_t>(rng() % 4));
      index.push(tokens.back());
      if (i < 3) continue;
      const auto match = index.find(tokens, 10, tokens.size());
      int longest = 0;
      for (size_t end = 2; end < tokens.size(); ++end) {
        int length = 0;
        while (length < 10 && static_cast<size_t>(length) < end &&
               tokens[end - 1 - static_cast<size_t>(length)] ==
                   tokens[tokens.size() - 1 - static_cast<size_t>(length)])
          ++length;
        longest = std::max(longest, length);
      }
      if (longest < 2) longest = 0;
      ASSERT_LE(match.length, longest);
      if (i < SuffixIndex::kPlaces) {
        ASSERT_EQ(match.length, longest);
      }
      for (const size_t end : match.ends)
        for (int k = 0; k < match.length; ++k)
          ASSERT_EQ(index.at(end - 1 - static_cast<size_t>(k)),
                    tokens[tokens.size() - 1 - static_cast<size_t>(k)]);
    }
  }
}

TEST(SuffixDrafter, DraftsAreAsLongAsTheMatchAndAsFrequentAsAsked) {
  SuffixDrafter drafter(suffix());
  EXPECT_EQ(propose(drafter, 1, {1, 2, 3, 4, 5, 6, 9, 2, 3}), (Tokens{4, 5}));  // a match of 2 tokens
  EXPECT_EQ(propose(drafter, 2, {7, 1, 2, 3, 4, 5, 7, 1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(propose(drafter, 3, {1, 2, 3}), Tokens{});
  // After 1 2 it was 5 twice and 6 once: the last, 6, is newer, but 5 is more frequent.
  EXPECT_EQ(propose(drafter, 4, {1, 2, 5, 0, 1, 2, 5, 8, 1, 2, 6, 9, 1, 2})[0], 5);
}

/// A match that is as deep as the tree counts in part: else one draft at most would follow it.
TEST(SuffixDrafter, LongMatchesLeaveRoomForDrafts) {
  SuffixDrafter drafter(suffix());
  Tokens twice;
  for (int i = 0; i < 100; ++i)
    twice.push_back(i % 50);
  EXPECT_EQ(propose(drafter, 1, twice).size(), 12u);
  EXPECT_EQ(propose(drafter, 2, twice, 5), (Tokens{0, 1, 2, 3, 4}));
}

TEST(SuffixDrafter, OtherAnswersServeTheSameClientAlone) {
  SuffixDrafter drafter(suffix(2)), off(suffix());
  const Tokens answer = {99, 1, 2, 3, 4, 5};
  for (SuffixDrafter* each : {&drafter, &off})
    each->end(1, answer, 1, "a");
  EXPECT_EQ(propose(drafter, 2, {8, 1, 2}, 15, "a"), (Tokens{3, 4}));
  EXPECT_EQ(propose(drafter, 3, {8, 1, 2}, 15, "b"), Tokens{});
  EXPECT_EQ(propose(off, 2, {8, 1, 2}, 15, "a"), Tokens{});
  EXPECT_EQ(propose(drafter, 4, {8, 99, 1}, 15, "a"), Tokens{}) << "prompts are not kept";
  drafter.end(5, Tokens{0, 6, 7}, 1, "b");
  drafter.end(6, Tokens{0, 6, 8}, 1, "b");  // the third: the first is dropped
  EXPECT_EQ(propose(drafter, 7, {8, 1, 2}, 15, "a"), Tokens{});
}

TEST(SuffixDrafter, DroppingKeepsTheIndexRight) {
  std::mt19937 rng(5);
  SuffixDrafter drafter(suffix(5));
  std::deque<Tokens> kept;
  for (uint64_t id = 0; id < 300; ++id) {
    Tokens answer = {0};
    for (int i = 0; i < 12; ++i)
      answer.push_back(static_cast<int32_t>(rng() % 6));
    drafter.end(id, answer, 1, "");
    kept.push_back(answer);
    if (kept.size() > 5) kept.pop_front();
    const Tokens last = {50, static_cast<int32_t>(rng() % 6), static_cast<int32_t>(rng() % 6)};
    const Tokens drafts = propose(drafter, 1000 + id, last);
    const bool known = std::ranges::any_of(kept, [&](const Tokens& text) {
      return std::search(text.begin() + 1, text.end() - 1, last.begin() + 1, last.end()) < text.end() - 2;
    });
    EXPECT_EQ(!drafts.empty(), known) << id;
  }
}

}  // namespace
}  // namespace fovea
