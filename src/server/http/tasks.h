#pragma once
// The queue of work for an I/O thread: functions, and answers to flush. It outlives the thread, so that
// holders of an exchange may call it at any time.
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fovea::http {

class Flushable {
 public:
  virtual ~Flushable() = default;
  /// Sends available bytes; called on the I/O thread.
  virtual void flush() = 0;
};

class TaskQueue {
 public:
  /// `wake` schedules run() on the I/O thread; it must not call run() itself.
  explicit TaskQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// False after close(): the work is dropped.
  bool post(std::function<void()> work);
  /// Callers ensure that at most one flush of an answer is queued.
  void flush(std::shared_ptr<Flushable> answer);
  /// Runs the functions posted before the call, then all queued flushes, including those from these
  /// functions.
  void run();
  /// Drops queued work and rejects new work; `wake` is not called any more.
  void close();

 private:
  void schedule();  // with mutex_ held

  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::function<void()>> work_;
  std::vector<std::shared_ptr<Flushable>> flushes_;
  bool scheduled_ = false;
  bool closed_ = false;
};

}  // namespace fovea::http
