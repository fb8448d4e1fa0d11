#include "speculative/draft_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
    const int drafts = fixed >= 0 ? fixed : table.choose(decodes, most).drafts;
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
    table.add(decodes, {drafts}, step % 97 == 0 ? 30 * seconds : seconds, tokens);  // a graph is captured
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

/// 32 sequences and a draft model that computes up to 1000 tokens of each in a step with drafts: 1000 of one
/// take as long as a step.
struct Lagging {
  DraftTable table;
  std::array<int, 32> lag{};
  double time = 0;
  int with = 0, all = 0;  // steps with drafts; of all sequences

  explicit Lagging(bool one_finds_out) : table(one_finds_out) { lag.fill(1000); }

  void run(int count, bool right) {
    time = with = all = 0;
    for (int step = 0; step < count; ++step) {
      const DraftTable::Choice choice = table.choose(32, 5);
      const int drafts = choice.drafts;
      with += drafts > 0;
      all += drafts > 0 && !choice.alone;
      double seconds = 1 + (choice.alone ? 0.1 : 0.02) * drafts;
      int tokens = 32;
      for (size_t b = 0; b < lag.size(); ++b) {
        if (drafts > 0 && (b == 0 || !choice.alone)) {
          seconds += 0.001 * lag[b];
          lag[b] = 0;
          tokens += right ? drafts : 0;
          table.count(drafts, right ? drafts : 0);
        }
        lag[b] = std::min(lag[b] + 1, 1000);
      }
      time += seconds;
      table.add(32, choice, seconds, tokens);
    }
  }
};

/// When drafts become right, it is found out all the same.
TEST(DraftTable, FindingOutTakesLittleTime) {
  for (const bool one : {false, true}) {
    Lagging model(one);
    model.run(2000, false);
    model.run(20000, false);
    EXPECT_LT(model.time, 1.01 * 20000);
    EXPECT_GT(model.with, 4);
    if (one) {
      EXPECT_EQ(model.all, 0);
    }
    model.run(20000, true);
    EXPECT_GT(model.all, 10000);
  }
}

/// From the start: no batch of 256 steps takes 2 % longer than without drafts, but the first, in which all of
/// them are tried.
TEST(DraftTable, NoBatchPaysForFindingOut) {
  Lagging model(true);
  model.run(16, false);
  double most = 0;
  for (int batch = 0; batch < 100; ++batch) {
    model.lag.fill(1000);  // new prompts
    model.run(256, false);
    most = std::max(most, model.time);
  }
  EXPECT_LT(most, 1.02 * 256);
}

TEST(DraftTable, FollowsWhatChanges) {
  DraftTable table;
  for (int step = 0; step < 300; ++step) {
    const int drafts = table.choose(8, 4).drafts;
    for (int b = 0; b < 8; ++b)
      table.count(drafts, drafts);
    table.add(8, {drafts}, 1, 8 * (1 + drafts));
  }
  EXPECT_EQ(table.choose(8, 4).drafts, 4);
  for (int step = 0; step < 600; ++step) {  // from now on none is accepted and rows cost
    const int drafts = table.choose(8, 4).drafts;
    for (int b = 0; b < 8; ++b)
      table.count(drafts, 0);
    table.add(8, {drafts}, 1 + drafts, 8);
  }
  EXPECT_LE(table.choose(8, 4).drafts, 1);
}

/// Steps of 32 sequences in which drafts are accepted or not; returns those that had drafts.
int steps_with_drafts(DraftTable& table, int steps, bool accepted) {
  int with = 0;
  for (int step = 0; step < steps; ++step) {
    const int drafts = table.choose(32, 5).drafts;
    with += drafts > 0;
    for (int b = 0; b < 32; ++b)
      table.count(drafts, accepted ? drafts : 0);
    table.add(32, {drafts}, 1 + 0.05 * drafts, 32 * (1 + (accepted ? drafts : 0)));
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
