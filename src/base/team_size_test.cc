#include "base/team_size.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace fovea {
namespace {

/// Runs jobs of 0.1 ms of one core for `seconds` of tasks; rate(threads) is the number of cores that this
/// many threads get. `late(threads, job)`: whether threads are late.
struct Machine {
  std::function<double(int)> rate;
  std::function<bool(int, int)> late = [](int, int) { return false; };

  /// Share of all work done with each number of threads.
  std::map<int, double> run(TeamSize& team, double seconds) const {
    constexpr double kWorkNs = 1e5;
    std::map<int, double> work;
    double total = 0;
    int job = 0;
    for (double time = 0; time < seconds; ++job) {
      const int threads = team.threads();
      const double took = kWorkNs * 1e-9 / rate(threads);
      work[threads] += kWorkNs;
      total += kWorkNs;
      time += took;
      if (!team.quiet())
        team.add(kWorkNs, took, late(threads, job));
      else if (late(threads, job))
        team.late(time);
    }
    for (auto& [threads, part] : work)
      part /= total;
    return work;
  }
};

TEST(TeamSize, KeepsAllThreadsWhileNoneIsLate) {
  TeamSize team(8);
  // Slower with all threads, but none is late: not caused by other processes, so no trial runs.
  const auto work = Machine{[](int threads) { return threads == 8 ? 1.0 : 5.0; }}.run(team, 10);
  EXPECT_EQ(work.size(), 1u);
  EXPECT_EQ(team.threads(), 8);
}

TEST(TeamSize, IgnoresOccasionalLateThreads) {
  TeamSize team(2);
  const Machine hiccups{[](int threads) { return threads; },
                        [](int, int job) { return job % 1500 == 0; }};  // every 75 ms
  EXPECT_EQ(hiccups.run(team, 10).size(), 1u);
}

TEST(TeamSize, StalledTeamWorksAlone) {
  TeamSize team(2);
  const Machine crowded{[](int threads) { return threads == 1 ? 0.95 : 0.05; },
                        [](int threads, int) { return threads == 2; }};
  const auto work = crowded.run(team, 10);
  EXPECT_EQ(team.threads(), 1);
  EXPECT_GT(work.at(1), 0.95);
}

TEST(TeamSize, LateButFasterTogetherStaysTogether) {
  TeamSize team(2);
  const Machine both{[](int threads) { return threads == 1 ? 0.5 : 0.9; },
                     [](int threads, int) { return threads == 2; }};
  EXPECT_GT(both.run(team, 10).at(2), 0.9);
}

TEST(TeamSize, OneBusyCpuOfManyCostsOneThread) {
  TeamSize team(64);
  // 63 threads get a CPU each; the 64th delays all by a time slice.
  const Machine crowded{[](int threads) { return threads == 64 ? 10.0 : threads * 0.98; },
                        [](int threads, int) { return threads == 64; }};
  const auto work = crowded.run(team, 20);
  EXPECT_GT(work.at(63), 0.9);
}

TEST(TeamSize, FewOfManyAreFoundInSteps) {
  TeamSize team(64);
  const Machine crowded{[](int threads) { return threads > 16 ? 200.0 / threads : threads * 1.0; },
                        [](int threads, int) { return threads > 16; }};
  crowded.run(team, 5);
  EXPECT_EQ(team.threads(), 16);
}

TEST(TeamSize, AllComeBackWhenTheNeighboursAreGone) {
  for (const int threads : {2, 3, 16, 64}) {
    TeamSize team(threads);
    Machine{[](int n) { return n == 1 ? 1.0 : 0.1; }, [](int n, int) { return n > 1; }}.run(team, 10);
    ASSERT_EQ(team.threads(), 1);
    Machine{[](int n) { return n; }}.run(team, 12);
    EXPECT_EQ(team.threads(), threads);
    // Quiet again: no trial runs.
    EXPECT_EQ(Machine{[](int n) { return n; }}.run(team, 10).size(), 1u) << threads;
  }
}

TEST(TeamSize, OneThreadHasNoChoice) {
  TeamSize team(1);
  Machine{[](int) { return 0.5; }, [](int, int) { return true; }}.run(team, 1);
  EXPECT_EQ(team.threads(), 1);
}

}  // namespace
}  // namespace fovea
