#include "conformance/complete_row.h"

#include <gtest/gtest.h>

namespace fovea::conformance {
namespace {

const std::vector<int> kCounts = {3, 2, 4};

/// Level 2 of the last factor requires level 1 of the second.
bool allowed(const Levels& row) {
  return row[2] != 2 || row[1] == kUnset || row[1] == 1;
}

TEST(CompleteRow, KeepsWhatIsGivenAndPrefersTheRest) {
  EXPECT_EQ(complete_row(kCounts, allowed, {kUnset, kUnset, kUnset}, {2, 0, 3}), (Levels{2, 0, 3}));
  EXPECT_EQ(complete_row(kCounts, allowed, {kUnset, kUnset, 2}, {0, 0, 3}), (Levels{0, 1, 2}));
  EXPECT_EQ(complete_row(kCounts, allowed, {kUnset, 0, 2}, {0, 0, 3}), std::nullopt);
}

TEST(CoverLevels, MeetsEachLevelTheGivenNumberOfTimes) {
  for (const int times : {1, 2, 5}) {
    const auto rows = cover_levels(kCounts, allowed, {1, kUnset, kUnset}, times);
    std::vector<std::vector<int>> seen = {{0, 0, 0}, {0, 0}, {0, 0, 0, 0}};
    for (const Levels& row : rows) {
      EXPECT_TRUE(allowed(row));
      EXPECT_EQ(row[0], 1);
      for (size_t f = 0; f < row.size(); ++f)
        ++seen[f][row[f]];
    }
    for (size_t f = 1; f < seen.size(); ++f)
      for (const int n : seen[f])
        EXPECT_GE(n, times);
    EXPECT_LE(rows.size(), static_cast<size_t>(4 * times + 2));
  }
}

TEST(CoverLevels, LeavesOutWhatNoRowHas) {
  const auto rows = cover_levels(kCounts, allowed, {kUnset, 0, kUnset}, 1);
  for (const Levels& row : rows)
    EXPECT_NE(row[2], 2);
}

}  // namespace
}  // namespace fovea::conformance
