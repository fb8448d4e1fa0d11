#pragma once
// An exchange without a network: it records the service's answer, and its client can disconnect.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/http/server.h"

namespace fovea::http {

/// The I/O thread of all fake connections.
class FakeLoop {
 public:
  FakeLoop() : thread_([this] { run(); }) {}
  ~FakeLoop() { stop(); }
  /// Runs the queued work first.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    work_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stop_ = false;
  std::thread thread_;
};

class FakeExchange final : public Exchange {
 public:
  /// What the client has received so far.
  struct Seen {
    int status = 0;
    Headers headers;
    std::string body, content_type;
    bool stream = false, ended = false, aborted = false;

    std::string header(std::string_view name) const {
      for (const auto& [key, value] : headers)
        if (key == name) return value;
      return "";
    }
    bool over() const { return ended || aborted; }
  };

  FakeExchange(FakeLoop& loop, Request request) : loop_(loop), request_(std::move(request)) {}

  const Request& request() const override { return request_; }
  void respond(Response response) override {
    change([&] {
      misused_ |= seen_.status != 0;
      seen_.status = response.status;
      seen_.headers = std::move(response.headers);
      seen_.body = std::move(response.body);
      seen_.content_type = std::move(response.content_type);
      seen_.ended = true;
    });
  }
  void start_stream(int status, std::string_view content_type, const Headers& headers) override {
    change([&] {
      misused_ |= seen_.status != 0;
      seen_.status = status;
      seen_.headers = headers;
      seen_.content_type = content_type;
      seen_.stream = true;
    });
  }
  bool write(std::string bytes) override {
    bool taken = false;
    change([&] {
      misused_ |= !seen_.stream || seen_.ended;
      taken = !closed_;
      if (taken) seen_.body += bytes;
    });
    return taken;
  }
  void end() override {
    change([&] {
      misused_ |= !seen_.stream || seen_.over();
      seen_.ended = true;
    });
  }
  void abort() override {
    change([&] { seen_.aborted = true; });
    hang_up();
  }
  size_t buffered() const override { return 0; }
  void on_close(std::function<void()> closed) override {
    bool now = false;
    change([&] {
      now = closed_;
      if (!now) on_close_ = std::move(closed);
    });
    if (now) closed();
  }
  void post(std::function<void()> work) override { loop_.post(std::move(work)); }

  /// The client disconnects.
  void hang_up() {
    std::function<void()> closed;
    change([&] {
      closed_ = true;
      if (!seen_.ended) closed.swap(on_close_);
    });
    if (closed) loop_.post(std::move(closed));
  }

  Seen seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  /// Waits up to 20 s until `condition` is true; false on a timeout.
  bool wait(const std::function<bool(const Seen&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return condition(seen_); });
  }
  /// Waits for the end of the answer and returns it.
  Seen answer() {
    if (!wait([](const Seen& seen) { return seen.over(); })) return {};
    return seen();
  }
  /// Whether a call violated the interface of Exchange.
  bool misused() const {
    const std::lock_guard lock(mutex_);
    return misused_;
  }

 private:
  template <class F>
  void change(F f) {
    {
      const std::lock_guard lock(mutex_);
      f();
    }
    changed_.notify_all();
  }

  FakeLoop& loop_;
  const Request request_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Seen seen_;
  bool closed_ = false, misused_ = false;
  std::function<void()> on_close_;
};

}  // namespace fovea::http
