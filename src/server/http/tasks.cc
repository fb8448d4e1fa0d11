#include "server/http/tasks.h"

#include <exception>

#include "base/log.h"

namespace fovea::http {

void TaskQueue::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  wake_();
}

bool TaskQueue::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  work_.push_back(std::move(work));
  schedule();
  return true;
}

void TaskQueue::flush(std::shared_ptr<Flushable> answer) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  flushes_.push_back(std::move(answer));
  schedule();
}

void TaskQueue::run() {
  std::vector<std::function<void()>> work;
  std::vector<std::shared_ptr<Flushable>> flushes;
  {
    const std::lock_guard lock(mutex_);
    work.swap(work_);
  }
  for (auto& each : work) {
    try {
      each();
    } catch (const std::exception& error) {
      FOVEA_LOG(error) << "http: work on an I/O thread failed: " << error.what();
    }
    each = nullptr;  // released here, so that an exchange that it drops is flushed below
  }
  {
    const std::lock_guard lock(mutex_);
    flushes.swap(flushes_);
  }
  for (const auto& each : flushes)
    each->flush();
  const std::lock_guard lock(mutex_);
  scheduled_ = false;
  if (!closed_ && (!work_.empty() || !flushes_.empty())) schedule();
}

void TaskQueue::close() {
  std::vector<std::function<void()>> work;
  std::vector<std::shared_ptr<Flushable>> flushes;
  const std::lock_guard lock(mutex_);  // released before the dropped work, whose destructors may call back
  closed_ = true;
  work.swap(work_);
  flushes.swap(flushes_);
}

}  // namespace fovea::http
