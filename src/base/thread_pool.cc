#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace fovea {
namespace {

// 20 to 100 us of pauses: longer than the gap between two layers' tasks, far shorter than a scheduler tick.
// Not at all where threads outnumber CPUs: there the one spun for may be waiting for this very CPU.
constexpr int kSpins = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
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
    : size_(threads > 0 ? threads : usable_cpus()), spins_(size_ <= usable_cpus() ? kSpins : 0) {
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
  for (auto& t : threads_)
    t.join();
}

void ThreadPool::worker_loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; now == seen && spin < spins_; ++spin) {
      pause_cpu();
      now = epoch_.load(std::memory_order_acquire);
    }
    while (now == seen) {
      epoch_.wait(seen, std::memory_order_acquire);
      now = epoch_.load(std::memory_order_acquire);
    }
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    (*task_)(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int)> fn) {
  const Exclusive exclusive(*this);
  share(fn);
}

void ThreadPool::share(FunctionRef<void(int)> fn) {
  if (size_ == 1) return fn(0);
  task_ = &fn;
  pending_.store(size_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  fn(0);
  int left = pending_.load(std::memory_order_acquire);
  for (int spin = 0; left != 0 && spin < spins_; ++spin) {
    pause_cpu();
    left = pending_.load(std::memory_order_acquire);
  }
  while (left != 0) {
    pending_.wait(left, std::memory_order_acquire);
    left = pending_.load(std::memory_order_acquire);
  }
}

void ThreadPool::parallel_tasks(int64_t tasks, FunctionRef<void(int64_t, int)> fn) {
  if (tasks <= 0) return;
  const Exclusive exclusive(*this);
  if (tasks == 1 || size_ == 1) {
    for (int64_t t = 0; t < tasks; ++t)
      fn(t, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  share([&](int worker) {
    for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
      fn(t, worker);
  });
}

void ThreadPool::parallel_ranges(int64_t n, int64_t align, FunctionRef<void(int64_t, int64_t, int)> fn) {
  if (n <= 0) return;
  const Exclusive exclusive(*this);
  const int64_t blocks = (n + align - 1) / align;
  if (blocks == 1 || size_ == 1) return fn(0, n, 0);
  share([&](int worker) {
    const int64_t begin = std::min(n, blocks * worker / size_ * align);
    const int64_t end = std::min(n, blocks * (worker + 1) / size_ * align);
    if (begin < end) fn(begin, end, worker);
  });
}

}  // namespace fovea
