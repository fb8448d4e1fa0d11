#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

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
      EXPECT_LE(calls, 4 * pool.size());
      ASSERT_EQ(covered, std::vector<int>(static_cast<size_t>(n), 1)) << n << " " << align;
    }
}

// A task's writes are visible to the caller and to the next task without atomics (checked by TSan).
TEST_P(ThreadPoolOfSize, TasksAreOrderedByRun) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> slots(static_cast<size_t>(pool.size()), 0);
  int64_t total = 0;
  for (int round = 0; round < 500; ++round) {
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

std::atomic<bool> thaw{false};
std::atomic<int> frozen{0};

/// Blocks a pool's threads in a signal handler to simulate loss of their CPUs.
class Frozen {
 public:
  explicit Frozen(ThreadPool& pool) {
    thaw = false;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      ++frozen;
      while (!thaw)
        usleep(100);
      --frozen;
    };
    sigaction(SIGUSR1, &action, &before_);
    std::vector<std::atomic<pid_t>> threads(static_cast<size_t>(pool.size()));
    pool.run(
        [&](int worker) { threads[static_cast<size_t>(worker)] = static_cast<pid_t>(syscall(SYS_gettid)); });
    for (size_t w = 1; w < threads.size(); ++w)
      syscall(SYS_tgkill, getpid(), threads[w].load(), SIGUSR1);
    wait_for(pool.size() - 1);
  }
  ~Frozen() {
    thaw = true;
    wait_for(0);
    sigaction(SIGUSR1, &before_, nullptr);
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  static void wait_for(int count) {
    while (frozen != count)
      usleep(100);
  }
  struct sigaction before_;
};

// A worker without a CPU has started nothing: the others do all work, and it finds none on its return.
TEST_P(ThreadPoolOfSize, DoesNotWaitForWorkersThatHaveNotStarted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer keeps signals back from threads that wait";
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "the thread sanitizer keeps signals back from threads that wait";
#endif
#endif
  ThreadPool pool(GetParam());
  int64_t done = 0, elements = 0;  // not atomic: only the caller accesses them while the others are blocked
  for (int round = 0; round < 3; ++round) {
    const Frozen held(pool);
    for (int job = 0; job < 100; ++job) {
      pool.parallel_tasks(7, [&](int64_t, int worker) { done += worker == 0; }, Work{1e6});
      pool.parallel_ranges(1000, 8, [&](int64_t begin, int64_t end, int) { elements += end - begin; });
    }
  }
  EXPECT_EQ(done, 3 * 100 * 7);
  EXPECT_EQ(elements, 3 * 100 * 1000);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  EXPECT_EQ(calls, pool.size());
}

// Back-to-back jobs without pauses, while workers come and go.
TEST_P(ThreadPoolOfSize, JobsOfAllKindsFollowEachOther) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 2000; ++round) {
    const int64_t tasks = 1 + round % 23;
    std::vector<std::atomic<int>> calls(static_cast<size_t>(tasks));
    const Work work{round % 3 * 1e4};
    pool.parallel_tasks(tasks, [&](int64_t task, int) { ++calls[static_cast<size_t>(task)]; }, work);
    for (const auto& count : calls)
      ASSERT_EQ(count, 1);
    if (round % 5 == 0) {
      std::atomic<int> workers{0};
      pool.run([&](int) { ++workers; });
      ASSERT_EQ(workers, pool.size());
    }
  }
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
