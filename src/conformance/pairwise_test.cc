#include "conformance/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace fovea::conformance {
namespace {

using Pair = std::tuple<int, int, int, int>;  // factor, level, factor, level

std::set<Pair> pairs_of(const std::vector<Levels>& rows) {
  std::set<Pair> pairs;
  for (const Levels& row : rows)
    for (int a = 0; a < static_cast<int>(row.size()); ++a)
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b)
        pairs.insert({a, row[a], b, row[b]});
  return pairs;
}

/// Every allowed row, by exhaustive enumeration.
std::vector<Levels> all_rows(const std::vector<int>& num_levels, const Allowed& allowed) {
  std::vector<Levels> rows = {{}};
  for (const int n : num_levels) {
    std::vector<Levels> longer;
    for (const Levels& row : rows)
      for (int level = 0; level < n; ++level) {
        longer.push_back(row);
        longer.back().push_back(level);
      }
    rows = std::move(longer);
  }
  std::erase_if(rows, [&](const Levels& row) { return !allowed(row); });
  return rows;
}

TEST(Pairwise, EveryPairIsInFewRows) {
  const std::vector<int> levels = {9, 7, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2};
  const Allowed any = [](const Levels&) { return true; };
  const auto rows = pairwise_rows(levels, any, 1);
  size_t expected = 0;
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = a + 1; b < levels.size(); ++b)
      expected += static_cast<size_t>(levels[a]) * levels[b];
  EXPECT_EQ(pairs_of(rows).size(), expected);
  EXPECT_GE(rows.size(), 63u);
  EXPECT_LE(rows.size(), 80u);
  EXPECT_EQ(rows, pairwise_rows(levels, any, 1));
  EXPECT_NE(rows, pairwise_rows(levels, any, 2));
}

TEST(Pairwise, KeepsToConstraintsAndCoversAllThatTheyLeave) {
  const std::vector<int> levels = {5, 4, 3, 2, 3};
  const auto set = [](int level) { return level != kUnset; };
  // Two levels that exclude each other, one that requires another, and a constraint on three factors that
  // needs backtracking: their sum must be 4.
  const Allowed allowed = [&](const Levels& row) {
    if (row[0] == 1 && row[1] == 2) return false;
    if (row[3] == 1 && set(row[4]) && row[4] != 2) return false;
    return !set(row[0]) || !set(row[1]) || !set(row[2]) || row[0] + row[1] + row[2] == 4;
  };
  std::vector<Levels> unmet;
  const auto rows = pairwise_rows(levels, allowed, 3, {}, &unmet);
  for (const Levels& row : rows)
    EXPECT_TRUE(allowed(row));
  const auto possible = pairs_of(all_rows(levels, allowed));
  EXPECT_EQ(pairs_of(rows), possible);
  size_t all = 0;
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = a + 1; b < levels.size(); ++b)
      all += static_cast<size_t>(levels[a]) * levels[b];
  EXPECT_EQ(unmet.size(), all - possible.size());
}

TEST(Pairwise, FixedLevelsAreInEveryRow) {
  const std::vector<int> levels = {3, 3, 2, 4};
  const auto rows = pairwise_rows(levels, [](const Levels&) { return true; }, 1, {kUnset, 2});
  ASSERT_FALSE(rows.empty());
  for (const Levels& row : rows)
    EXPECT_EQ(row[1], 2);
  // Pairs of factor 1 with the others: 3 + 2 + 4; pairs among the others: 3 x 2 + 3 x 4 + 2 x 4.
  EXPECT_EQ(pairs_of(rows).size(), 9u + 26u);
}

TEST(Pairwise, HintsGiveLevelsWeightAndLoseNoPair) {
  const std::vector<int> levels = {12, 8, 4, 4, 3, 2};
  const Allowed allowed = [](const Levels& row) { return row[4] != 2 || row[5] != 1; };
  const auto without = pairwise_rows(levels, allowed, 1);
  const auto rows = pairwise_rows(levels, allowed, 1, {}, nullptr, {{kUnset, kUnset, 0, 0, 0}, {}});
  EXPECT_EQ(pairs_of(rows), pairs_of(without));
  const auto plain = [](const Levels& row) { return row[2] == 0 && row[3] == 0 && row[4] == 0; };
  EXPECT_GE(3 * std::count_if(rows.begin(), rows.end(), plain), static_cast<int>(rows.size()));
  EXPECT_LE(rows.size(), without.size() + without.size() / 4);
}

TEST(Pairwise, FewFactors) {
  const Allowed any = [](const Levels&) { return true; };
  EXPECT_TRUE(pairwise_rows({}, any, 1).empty());
  const std::vector<int> one = {3};
  EXPECT_EQ(pairwise_rows(one, any, 1).size(), 3u);
  const std::vector<int> two = {1, 1};
  EXPECT_EQ(pairwise_rows(two, any, 1).size(), 1u);
  const std::vector<int> none_allowed = {2, 2};
  EXPECT_TRUE(pairwise_rows(none_allowed, [](const Levels&) { return false; }, 1).empty());
}

}  // namespace
}  // namespace fovea::conformance
