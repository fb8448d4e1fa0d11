#pragma once
// Worker threads for work that would block an I/O thread: large bodies, embeddings.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace fovea::server {

class WorkQueue {
 public:
  explicit WorkQueue(int threads);
  /// Waits for running work; queued work is dropped.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Round-robin over clients, first in, first out within one. `work` must not throw. The queue has no limit;
  /// callers bound it (Admission).
  void add(const std::string& client, std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, std::deque<std::function<void()>>> waiting_;  // by client in turns_
  std::deque<std::string> turns_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fovea::server
