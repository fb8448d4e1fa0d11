#pragma once
// What other threads want done on an I/O thread: functions, and answers whose bytes shall go out. It outlives
// the thread, so that whoever still holds an exchange may call it at any time.
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fovea::http {

class Flushable {
 public:
  virtual ~Flushable() = default;
  /// Sends what there is; on the I/O thread.
  virtual void flush() = 0;
};

class TaskQueue {
 public:
  /// `wake` has run() called soon on the I/O thread, and must not call it itself.
  explicit TaskQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// False after close(): the work is dropped.
  bool post(std::function<void()> work);
  /// At most one entry for an answer should be under way: the callers see to it.
  void flush(std::shared_ptr<Flushable> answer);
  /// Runs what was posted before the call, then flushes what that wrote too, in one go.
  void run();
  /// From now on nothing is taken, and `wake` is not called any more.
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
