#include "server/work_queue.h"

namespace fovea::server {

WorkQueue::WorkQueue(int threads) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this] { run(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    thread.join();
}

void WorkQueue::add(const std::string& client, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    auto& own = waiting_[client];
    if (own.empty()) turns_.push_back(client);
    own.push_back(std::move(work));
  }
  changed_.notify_one();
}

void WorkQueue::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !turns_.empty(); });
      if (stop_) return;
      std::string client = std::move(turns_.front());
      turns_.pop_front();
      const auto own = waiting_.find(client);
      work = std::move(own->second.front());
      own->second.pop_front();
      if (own->second.empty())
        waiting_.erase(own);
      else
        turns_.push_back(std::move(client));
    }
    work();
  }
}

}  // namespace fovea::server
