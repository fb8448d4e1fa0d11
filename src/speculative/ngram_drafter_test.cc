#include "speculative/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fovea {
namespace {

using Tokens = std::vector<int32_t>;

/// The rule by definition: all suffixes, all places.
Tokens by_definition(const Tokens& tokens, int min, int max, int most) {
  const auto size = static_cast<int>(tokens.size());
  for (int n = std::min(max, size - 1); n >= min; --n)
    for (int end = n; end < size; ++end)
      if (std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n))
        return {tokens.begin() + end, tokens.begin() + std::min(end + most, size)};
  return {};
}

TEST(HashTable, KeepsTheFirstNumberOfEachKey) {
  HashTable table;
  EXPECT_EQ(table.find(7), 0U);
  std::mt19937_64 rng(2);
  std::vector<uint64_t> keys = {0};
  for (int i = 0; i < 3000; ++i)
    keys.push_back(i % 3 == 0 ? rng() : static_cast<uint64_t>(i) << 40);
  for (const uint32_t number : {1U, 5U}) {
    uint32_t at = 0;
    for (const uint64_t key : keys)
      table.add(key, number + at++);
  }
  for (size_t i = 0; i < keys.size(); ++i)
    ASSERT_EQ(table.find(keys[i]), i + 1);
  EXPECT_EQ(table.find(3), 0U);
}

TEST(NgramIndex, FindsWhatTheDefinitionFindsAfterEveryToken) {
  std::mt19937 rng(1);
  int found = 0, will_not = 0;
  for (int round = 0; round < 300; ++round) {
    const int symbols = 1 + static_cast<int>(rng() % 4), min = 1 + static_cast<int>(rng() % 4);
    const int max = min + static_cast<int>(rng() % 4), most = 1 + static_cast<int>(rng() % 6);
    NgramIndex index(min, max);
    Tokens tokens;
    bool may_find = true;
    for (int i = 0; i < 60; ++i) {
      const auto more = 1 + rng() % 3;
      for (size_t token = 0; token < more; ++token)
        tokens.push_back((static_cast<int32_t>(rng()) & 0x7fffffff) % symbols);
      const auto got = index.find(tokens, most);
      ASSERT_TRUE(may_find || more > 1 || got.empty());
      ASSERT_EQ(Tokens(got.begin(), got.end()), by_definition(tokens, min, max, most));
      found += !got.empty();
      may_find = rng() % 2 == 0 || index.may_find_next(tokens);
      will_not += !may_find;
    }
  }
  EXPECT_GT(found, 5000);
  EXPECT_GT(will_not, 300);
}

TEST(NgramDrafter, SequencesAreIndependentAndForgotten) {
  NgramDrafter drafter(2, 3);
  const Tokens a = {1, 2, 3, 4, 1, 2}, b = {1, 2, 9, 1, 2};
  std::vector<DraftJob> jobs = {{7, a, 4, "", 2, {}}, {8, b, 4, "", 5, {}}};
  drafter.propose(jobs);
  EXPECT_EQ(jobs[0].drafts, (Tokens{3, 4}));
  EXPECT_EQ(jobs[1].drafts, (Tokens{9, 1, 2}));
  drafter.end(7, a, 4, "");
  jobs = {{7, b, 4, "", 1, {}}};
  drafter.propose(jobs);
  EXPECT_EQ(jobs[0].drafts, (Tokens{9}));
}

}  // namespace
}  // namespace fovea
