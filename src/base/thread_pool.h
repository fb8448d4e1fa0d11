#pragma once
// A fixed set of threads that execute one job at a time. The caller is worker 0. Workers spin briefly between
// jobs (a decode step has hundreds of them, microseconds apart) and then sleep.
//
// CPUs may be shared with other processes: a job never waits for a worker that has not started (the others
// take its tasks), and if workers lose their CPUs in the middle of tasks, fewer of them take part
// (team_size.h).
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/team_size.h"

namespace fovea {

/// A non-owning reference to a callable; cheaper than std::function in hot loops.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// Estimated ns of a whole job on one core; affects how many workers take part, never the result. 0 =
/// unknown. Estimates need not be accurate, but should be off by the same factor for all kinds of jobs.
struct Work {
  double ns = 0;
};

class ThreadPool {
 public:
  /// `threads` >= 1, the caller included; 0 = one per CPU that this process may use. Throws std::system_error
  /// if thread creation fails.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  /// Calls fn(worker) once on every worker, worker in [0, size()), and returns when all are done. This and
  /// the two functions below are not reentrant: only one thread may use the pool at a time, and fn must not
  /// call it (both are checked as internal errors). fn must not throw.
  void run(FunctionRef<void(int)> fn);

  /// Calls fn(task, worker) for every task in [0, tasks), handed out one at a time in ascending order. Tasks
  /// must not wait for each other: one worker may execute them all.
  void parallel_tasks(int64_t tasks, FunctionRef<void(int64_t, int)> fn, Work work = {});

  /// Splits [0, n) into contiguous ranges, cut at multiples of `align`, at most a few for each worker, and
  /// calls fn(begin, end, worker).
  void parallel_ranges(int64_t n, int64_t align, FunctionRef<void(int64_t, int64_t, int)> fn, Work work = {});

 private:
  class Exclusive;
  using Tasks = FunctionRef<void(int64_t, int)>;

  struct Taken {
    uint32_t count = 0, of = 0;  // tasks done by this worker, of the tasks in the job
  };

  void worker_loop(int worker);
  void wait_for_job(int worker, uint32_t& seen);
  Taken take_tasks(int worker);
  void set_active(int workers);
  void start(uint32_t tasks, const Tasks& fn, int invited, bool one_each);
  double wait_for_others(uint32_t tasks, uint32_t mine);  // returns seconds waited after spinning
  void share(int64_t tasks, const Tasks& fn, Work work);
  void stop();

  int size_, spins_;
  TeamSize team_;
  std::vector<std::thread> threads_;
  const Tasks* job_ = nullptr;  // read only by workers that hold one of its tasks, so never while it changes
  bool one_each_ = false;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // incremented to start a job
  std::atomic<int> active_{0};                  // workers with this index or above sleep until it changes
  std::atomic<int> invited_{0};                 // workers with this index or above skip the job
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint64_t> tickets_{0};  // number of tasks << 32 | next task; taken by fetch_add(1)
  alignas(64) std::atomic<uint32_t> done_{0};     // completed tasks of the job
  std::atomic<bool> busy_{false};
};

}  // namespace fovea
