#include "speculative/draft_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace fovea {
namespace {

using Cost = std::function<double(int)>;

/// Tokens a second over 2000 steps of `decodes` sequences, of which each draft is accepted with probability
/// `rate` and a step of `rows` rows takes cost(rows). `fixed`: drafts of all steps; below 0: the table's
/// choice.
double rate_of(int decodes, int most, double rate, const Cost& cost, int fixed) {
  DraftTable table;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> dice;
  double time = 0, all = 0;
  for (int step = 0; step < 2000; ++step) {
    const int drafts = fixed >= 0 ? fixed : table.choose(decodes, most);
    int tokens = 0;
    for (int b = 0; b < decodes; ++b) {
      int accepted = 0;
      while (accepted < drafts && dice(random) < rate)
        ++accepted;
      table.count(drafts, accepted);
      tokens += 1 + accepted;
    }
    const double seconds = cost(decodes * (1 + drafts));
    time += seconds, all += tokens;
    table.add(decodes, drafts, step % 97 == 0 ? 30 * seconds : seconds, tokens);  // a graph is captured
  }
  return all / time;
}

/// The table's rate, relative to that of the best number of drafts.
double of_best(int decodes, int most, double rate, const Cost& cost) {
  double best = 0;
  for (int drafts = 0; drafts <= most; ++drafts)
    best = std::max(best, rate_of(decodes, most, rate, cost, drafts));
  return rate_of(decodes, most, rate, cost, -1) / best;
}

TEST(DraftTable, TakesAllDraftsWhereRowsCostNothing) {
  EXPECT_GT(of_best(1, 5, 0.7, [](int rows) { return 5 + 0.01 * rows; }), 0.95);
}

TEST(DraftTable, TakesFewWhereRowsCost) {
  EXPECT_GT(of_best(32, 5, 0.7, [](int rows) { return rows <= 64 ? 5.0 : 5.0 * rows / 64; }), 0.93);
  EXPECT_GT(of_best(4, 15, 0.8, [](int rows) { return 5 + 0.2 * rows; }), 0.96);
}

TEST(DraftTable, TakesNoneWhereTheyLose) {
  EXPECT_GT(of_best(64, 5, 0.3, [](int rows) { return 0.1 * rows; }), 0.975);
  EXPECT_GT(of_best(16, 15, 0.0, [](int rows) { return 5 + 0.05 * rows; }), 0.98);
}

/// Steps that find out are few where a draft model has to compute up to 500 tokens of each sequence in them.
/// When its drafts become right, it is found out all the same.
TEST(DraftTable, FindingOutTakesLittleTime) {
  DraftTable table;
  double time = 0;
  int steps = 0, lag = 500, with = 0;
  const auto run = [&](int count, bool right) {
    time = with = steps = 0;
    for (; steps < count; ++steps) {
      const int drafts = table.choose(32, 5);
      with += drafts > 0;
      const double seconds = 1 + 0.02 * drafts + (drafts > 0 ? 0.05 * lag : 0);
      lag = drafts > 0 ? 0 : std::min(lag + 1, 500);
      for (int b = 0; b < 32; ++b)
        table.count(drafts, right ? drafts : 0);
      time += seconds;
      table.add(32, drafts, seconds, 32 * (1 + (right ? drafts : 0)));
    }
  };
  run(2000, false);
  run(20000, false);
  EXPECT_LT(time, 1.01 * steps);
  EXPECT_GT(with, 4);
  run(20000, true);
  EXPECT_GT(with, 10000);
}

TEST(DraftTable, FollowsWhatChanges) {
  DraftTable table;
  for (int step = 0; step < 300; ++step) {
    const int drafts = table.choose(8, 4);
    for (int b = 0; b < 8; ++b)
      table.count(drafts, drafts);
    table.add(8, drafts, 1, 8 * (1 + drafts));
  }
  EXPECT_EQ(table.choose(8, 4), 4);
  for (int step = 0; step < 600; ++step) {  // from now on none is accepted and rows cost
    const int drafts = table.choose(8, 4);
    for (int b = 0; b < 8; ++b)
      table.count(drafts, 0);
    table.add(8, drafts, 1 + drafts, 8);
  }
  EXPECT_LE(table.choose(8, 4), 1);
}

/// Steps of 32 sequences in which drafts are accepted or not; returns those that had drafts.
int steps_with_drafts(DraftTable& table, int steps, bool accepted) {
  int with = 0;
  for (int step = 0; step < steps; ++step) {
    const int drafts = table.choose(32, 5);
    with += drafts > 0;
    for (int b = 0; b < 32; ++b)
      table.count(drafts, accepted ? drafts : 0);
    table.add(32, drafts, 1 + 0.05 * drafts, 32 * (1 + (accepted ? drafts : 0)));
  }
  return with;
}

TEST(DraftTable, SeldomTriesWhatStaysWorseAndComesBack) {
  DraftTable table;
  steps_with_drafts(table, 1000, false);
  EXPECT_LE(steps_with_drafts(table, 4096, false), 16);
  EXPECT_GE(steps_with_drafts(table, 4096, false), 1);
  EXPECT_GT(steps_with_drafts(table, 2000, true), 1000);
}

}  // namespace
}  // namespace fovea
