#pragma once
// The way back to one client, with what every answer has: CORS headers, a count, a line in the log.
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/core.h"

namespace fovea::server {

openai::ApiError error_of(const Error& error);
/// Full queues and a stopping server, with the time after which to try again.
openai::ApiError overloaded(Admission::Verdict verdict);
openai::ApiError shutting_down();
openai::ApiError out_of_memory();
http::Response error_response(const openai::ApiError& error);

/// CORS headers for a request; none unless its origin is allowed.
http::Headers cors_headers(const ServiceConfig& config, const http::Request& request);

/// Counts as in flight until it is answered, or its client is gone. Thread-safe; what comes after the end of
/// an answer is ignored.
class Reply : public std::enable_shared_from_this<Reply> {
 public:
  static std::shared_ptr<Reply> create(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange);
  Reply(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange);
  ~Reply();
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  const http::Request& request() const { return exchange_->request(); }
  http::Exchange& exchange() { return *exchange_; }
  Core& core() { return *core_; }

  /// Of an answer that is not begun yet; by the one who is about to begin it.
  void add_header(std::string name, std::string value);
  /// No-op when there is an answer already.
  void respond(http::Response response);
  void error(const openai::ApiError& error) { respond(error_response(error)); }
  /// False when there is an answer already.
  bool start_stream();
  bool streaming() const { return state_.load() == State::streaming; }
  bool done() const { return state_.load() == State::done; }
  bool write(std::string bytes) { return exchange_->write(std::move(bytes)); }
  void end();
  /// What to do when the client hangs up before it has its answer; at once if it has already. One at a time.
  void on_drop(std::function<void()> dropped);

 private:
  enum class State : uint8_t { open, streaming, done };
  void drop();
  void finish(int status);

  std::shared_ptr<Core> core_;
  std::shared_ptr<http::Exchange> exchange_;
  const Clock::time_point arrival_ = Clock::now();
  std::atomic<State> state_{State::open};
  http::Headers headers_;  // of add_header()
  std::mutex mutex_;       // of these two
  bool dropped_ = false;
  std::function<void()> on_drop_;
};

/// Runs `work`; out of memory is a 503 for this request alone.
template <class F>
void guarded(const std::shared_ptr<Reply>& reply, F work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    if (reply->streaming())
      reply->exchange().abort();
    else
      reply->error(out_of_memory());
  }
}

}  // namespace fovea::server
