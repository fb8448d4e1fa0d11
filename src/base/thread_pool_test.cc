#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <set>

namespace fovea {
namespace {

class ThreadPoolOfSize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, testing::Range(1, 9));

TEST_P(ThreadPoolOfSize, RunCallsEveryWorkerOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int round = 0; round < 200; ++round) {
    std::vector<int> calls(static_cast<size_t>(pool.size()));
    std::vector<std::thread::id> ids(calls.size());
    pool.run([&](int worker) {
      ++calls[static_cast<size_t>(worker)];
      ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
    });
    ASSERT_EQ(calls, std::vector<int>(calls.size(), 1));
    ASSERT_EQ(ids[0], std::this_thread::get_id());
    ASSERT_EQ(std::set(ids.begin(), ids.end()).size(), ids.size());
  }
}

TEST_P(ThreadPoolOfSize, EveryTaskRunsExactlyOnce) {
  ThreadPool pool(GetParam());
  for (int64_t tasks : {0, 1, 2, 3, 7, 8, 9, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(tasks) + 1);
    std::atomic<bool> bad_worker{false};
    pool.parallel_tasks(tasks, [&](int64_t task, int worker) {
      ++calls[static_cast<size_t>(task)];
      if (worker < 0 || worker >= pool.size()) bad_worker = true;
    });
    EXPECT_FALSE(bad_worker);
    for (int64_t t = 0; t < tasks; ++t)
      ASSERT_EQ(calls[static_cast<size_t>(t)], 1) << t;
    EXPECT_EQ(calls.back(), 0);
  }
}

TEST_P(ThreadPoolOfSize, RangesCoverAndAreCutAtMultiples) {
  ThreadPool pool(GetParam());
  for (int64_t n : {0, 1, 5, 31, 32, 33, 100, 1000})
    for (int64_t align : {1, 7, 32}) {
      std::vector<int> covered(static_cast<size_t>(n));  // ranges are disjoint, so plain ints do
      std::atomic<int> calls{0}, unaligned{0};
      pool.parallel_ranges(n, align, [&](int64_t begin, int64_t end, int) {
        ++calls;
        if (begin % align != 0 || (end % align != 0 && end != n) || begin >= end) ++unaligned;
        for (int64_t i = begin; i < end; ++i)
          ++covered[static_cast<size_t>(i)];
      });
      EXPECT_EQ(unaligned, 0);
      EXPECT_LE(calls, pool.size());
      ASSERT_EQ(covered, std::vector<int>(static_cast<size_t>(n), 1)) << n << " " << align;
    }
}

// What a task wrote is seen by the caller and by the next task, without atomics (TSan watches this one).
TEST_P(ThreadPoolOfSize, TasksAreOrderedByRun) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> slots(static_cast<size_t>(pool.size()), 0);
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    pool.run([&](int worker) {
      const auto w = static_cast<size_t>(worker);
      slots[w] = total + worker;
    });
    total = std::accumulate(slots.begin(), slots.end(), int64_t{0}) % 1000003;
    for (int w = 1; w < pool.size(); ++w)
      ASSERT_EQ(slots[static_cast<size_t>(w)] - slots[0], w);
  }
}

TEST_P(ThreadPoolOfSize, WakesAfterSleepAndIsDestroyedWhileIdle) {
  auto pool = std::make_unique<ThreadPool>(GetParam());
  std::atomic<int> calls{0};
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far longer than the workers spin
    pool->run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 3 * GetParam());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pool.reset();
}

TEST(ThreadPool, MayBeDestroyedAtOnce) {
  for (int i = 0; i < 50; ++i)
    ThreadPool pool(1 + i % 8);
}

TEST(ThreadPool, MayBeUsedByOneThreadAfterAnother) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> calls{0};
    std::thread user([&] { pool.parallel_tasks(100, [&](int64_t, int) { ++calls; }); });
    user.join();
    ASSERT_EQ(calls, 100);
  }
}

TEST(ThreadPool, ZeroMeansOneThreadPerUsableCpu) {
  EXPECT_GE(ThreadPool(0).size(), 1);
}

TEST(ThreadPoolDeathTest, NestedUseIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.run([&](int) { pool.run([](int) {}); });
      },
      "internal error");
}

}  // namespace
}  // namespace fovea
