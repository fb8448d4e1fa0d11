#pragma once
// A fixed team of threads that share one task at a time. The caller is worker 0. Workers spin briefly between
// tasks (a decode step has hundreds of them, microseconds apart) and then sleep.
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

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

class ThreadPool {
 public:
  /// `threads` >= 1, the caller included; 0 = one per CPU that this process may use. Throws std::system_error
  /// when the system has no more threads.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  /// Calls fn(worker) once on every worker, worker in [0, size()), and returns when all are done.
  /// Neither this nor the two below is reentrant: only one thread may be in the pool at a time, and fn must
  /// not call back into it (checked: either is an internal error). fn must not throw.
  void run(FunctionRef<void(int)> fn);

  /// Calls fn(task, worker) for every task in [0, tasks), handed out one at a time in ascending order.
  void parallel_tasks(int64_t tasks, FunctionRef<void(int64_t, int)> fn);

  /// Splits [0, n) into size() contiguous ranges, cut at multiples of `align`, and calls fn(begin, end,
  /// worker).
  void parallel_ranges(int64_t n, int64_t align, FunctionRef<void(int64_t, int64_t, int)> fn);

 private:
  class Exclusive;
  void worker_loop(int worker);
  void stop();
  void share(FunctionRef<void(int)> fn);

  int size_, spins_;
  std::vector<std::thread> threads_;
  const FunctionRef<void(int)>* task_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // bumped to start a task
  alignas(64) std::atomic<int> pending_{0};     // workers that have not finished it
  alignas(64) std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};
};

}  // namespace fovea
