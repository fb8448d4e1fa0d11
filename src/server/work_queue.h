#pragma once
// Threads for work that would keep an I/O thread from its other connections: large bodies, embeddings.
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
  /// Waits for what is under way; what was not begun is dropped.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// One of each client in turn, in order of its calls. `work` must not throw. How much waits is its callers'
  /// affair (Admission).
  void add(const std::string& client, std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, std::deque<std::function<void()>>> waiting_;  // of clients in turns_
  std::deque<std::string> turns_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fovea::server
