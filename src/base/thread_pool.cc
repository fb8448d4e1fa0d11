#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <climits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/usable_cpus.h"

namespace fovea {
namespace {

// 20 to 100 us of pauses: longer than the gap between two layers' tasks, far shorter than a scheduler tick.
// No spinning if threads outnumber CPUs: the awaited thread may need this CPU.
constexpr int kSpins = 2000;

// Minimum work per worker: less is finished before the next worker wakes up.
constexpr double kShareNs = 2000;
// Ranges per worker, so that others can take those of a late worker. A short job has one per worker, as
// tickets would cost more.
constexpr int64_t kPartsOfWorker = 4;
constexpr double kLongJobNs = 50e3;
// A worker that is awaited for more than this and eight times the estimated task time has lost its CPU: a
// time slice is 3 ms.
constexpr double kLateSeconds = 2e-4;
constexpr double kLateTasks = 8;

using Clock = std::chrono::steady_clock;

double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

// Marks the pool as busy: nested or concurrent use would overwrite the running task.
class ThreadPool::Exclusive {
 public:
  explicit Exclusive(ThreadPool& pool) : busy_(pool.busy_) {
    FOVEA_CHECK(!busy_.exchange(true, std::memory_order_acquire));
  }
  ~Exclusive() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& busy_;
};

ThreadPool::ThreadPool(int threads)
    : size_(threads > 0 ? threads : usable_cpus()),
      spins_(size_ <= usable_cpus() ? kSpins : 0),
      team_(size_) {
  active_.store(size_, std::memory_order_relaxed);
  try {
    for (int w = 1; w < size_; ++w)
      threads_.emplace_back([this, w] { worker_loop(w); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  set_active(INT_MAX);
  for (auto& t : threads_)
    t.join();
}

void ThreadPool::set_active(int workers) {
  if (active_.load(std::memory_order_relaxed) == workers) return;  // common case; a store would cost more
  if (active_.exchange(workers, std::memory_order_release) < workers) active_.notify_all();
}

void ThreadPool::worker_loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    wait_for_job(worker, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (worker >= invited_.load(std::memory_order_relaxed)) continue;
    const Taken taken = take_tasks(worker);
    if (taken.count == 0) continue;
    if (done_.fetch_add(taken.count, std::memory_order_acq_rel) + taken.count == taken.of) done_.notify_one();
  }
}

void ThreadPool::wait_for_job(int worker, uint32_t& seen) {
  for (;;) {
    const int active = active_.load(std::memory_order_acquire);
    if (worker >= active) {
      active_.wait(active, std::memory_order_acquire);
      continue;
    }
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; now == seen && spin < spins_; ++spin) {
      pause_cpu();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now != seen) {
      seen = now;
      return;
    }
    epoch_.wait(seen, std::memory_order_acquire);
  }
}

// A valid ticket keeps its job from ending, so job_ and one_each_ are stable until the task is counted in
// done_. An invalid one (all tasks are taken) has only changed the counter, which the next job resets.
ThreadPool::Taken ThreadPool::take_tasks(int worker) {
  Taken taken;
  for (;;) {
    const uint64_t ticket = tickets_.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t task = static_cast<uint32_t>(ticket), tasks = ticket >> 32;
    if (task >= tasks) return taken;
    (*job_)(static_cast<int64_t>(task), worker);
    ++taken.count;
    taken.of = static_cast<uint32_t>(tasks);
    if (one_each_) return taken;
  }
}

void ThreadPool::start(uint32_t tasks, const Tasks& fn, int invited, bool one_each) {
  job_ = &fn;
  one_each_ = one_each;
  done_.store(0, std::memory_order_relaxed);
  invited_.store(invited, std::memory_order_relaxed);
  tickets_.store(uint64_t{tasks} << 32, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
}

double ThreadPool::wait_for_others(uint32_t tasks, uint32_t mine) {
  uint32_t done = done_.fetch_add(mine, std::memory_order_acq_rel) + mine;
  for (int spin = 0; done != tasks && spin < spins_; ++spin) {
    pause_cpu();
    done = done_.load(std::memory_order_acquire);
  }
  if (done == tasks) return 0;
  const double begin = now();
  while (done != tasks) {
    done_.wait(done, std::memory_order_acquire);
    done = done_.load(std::memory_order_acquire);
  }
  return now() - begin;
}

void ThreadPool::share(int64_t tasks, const Tasks& fn, Work work) {
  FOVEA_CHECK(tasks < INT_MAX);
  if (tasks == 1 || size_ == 1) {
    for (int64_t t = 0; t < tasks; ++t)
      fn(t, 0);
    return;
  }
  const bool timed = work.ns > 0 && !team_.quiet();
  const double begin = timed ? now() : 0;
  const int active = team_.threads();
  const int threads =
      work.ns > 0 ? static_cast<int>(std::min<double>(active, 1 + work.ns / kShareNs)) : active;
  bool late = false;
  if (threads == 1) {
    for (int64_t t = 0; t < tasks; ++t)
      fn(t, 0);
  } else {
    set_active(active);
    start(static_cast<uint32_t>(tasks), fn, threads, false);
    const double waited = wait_for_others(static_cast<uint32_t>(tasks), take_tasks(0).count);
    late = work.ns > 0 && waited > kLateSeconds + kLateTasks * 1e-9 * work.ns / static_cast<double>(tasks);
  }
  if (timed)
    team_.add(work.ns, now() - begin, late);
  else if (late)
    team_.late(now());
}

void ThreadPool::run(FunctionRef<void(int)> fn) {
  const Exclusive exclusive(*this);
  if (size_ == 1) return fn(0);
  const auto one = [&](int64_t, int worker) { fn(worker); };
  const Tasks tasks(one);
  set_active(size_);
  start(static_cast<uint32_t>(size_), tasks, size_, true);
  wait_for_others(static_cast<uint32_t>(size_), take_tasks(0).count);
}

void ThreadPool::parallel_tasks(int64_t tasks, FunctionRef<void(int64_t, int)> fn, Work work) {
  if (tasks <= 0) return;
  const Exclusive exclusive(*this);
  share(tasks, fn, work);
}

void ThreadPool::parallel_ranges(int64_t n, int64_t align, FunctionRef<void(int64_t, int64_t, int)> fn,
                                 Work work) {
  if (n <= 0) return;
  const Exclusive exclusive(*this);
  const int64_t blocks = (n + align - 1) / align;
  if (size_ == 1) return fn(0, n, 0);
  const bool is_short = work.ns > 0 && work.ns < kLongJobNs;
  const int64_t parts = std::min<int64_t>(blocks, (is_short ? 1 : kPartsOfWorker) * size_);
  const auto part = [&](int64_t index, int worker) {
    fn(blocks * index / parts * align, std::min(n, blocks * (index + 1) / parts * align), worker);
  };
  share(parts, Tasks(part), work);
}

}  // namespace fovea
