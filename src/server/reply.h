#pragma once
// The way back to one client, with what every answer has: CORS headers, a count, a line in the log.
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/core.h"
#include "server/deadlines.h"

namespace fovea::server {

openai::ApiError error_of(const Error& error);
/// Full queues and a stopping server, with the time after which to try again.
openai::ApiError overloaded(Admission::Verdict verdict);
openai::ApiError shutting_down();
openai::ApiError out_of_memory();
openai::ApiError answers_full();
/// An answer of about `bytes`, and the numbers that this follows from.
openai::ApiError answer_too_large(const Core& core, int64_t bytes, const std::string& what,
                                  const std::string& param);
http::Response error_response(const openai::ApiError& error);

/// CORS headers for a request; none unless its origin is allowed.
http::Headers cors_headers(const ServiceConfig& config, const http::Request& request);

/// Counts as in flight until it is answered, or its client is gone. Thread-safe; what comes after the end of
/// an answer is ignored.
class Reply final : public Job, public std::enable_shared_from_this<Reply> {
 public:
  static std::shared_ptr<Reply> create(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange);
  Reply(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange);
  ~Reply() override;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  const http::Request& request() const { return exchange_->request(); }
  http::Exchange& exchange() { return *exchange_; }
  Core& core() { return *core_; }
  const Core& core() const { return *core_; }
  const std::string& client() const { return client_; }

  /// Of an answer that is not begun yet; by the one who is about to begin it.
  void add_header(std::string name, std::string value);
  /// No-op when there is an answer already.
  void respond(http::Response response);
  void error(const openai::ApiError& error) { respond(error_response(error)); }
  /// False when there is an answer already.
  bool start_stream();
  bool streaming() const { return state_.load() == State::streaming; }
  bool done() const { return state_.load() == State::done; }
  /// False when the client will not get it: then the request is over, and counted as one that its client
  /// left.
  bool write(std::string bytes);
  void end();
  /// A stream that cannot go on through our own fault: the client sees that it is not whole.
  void abort_stream();
  /// It gets an error when its time is up: see tick(). Once, before anything is done for it.
  void set_deadlines(const Deadlines& deadlines);
  /// What it asks for is being computed: it does not wait any more.
  void set_started() { started_.store(true); }
  void abort() override {}  // whoever computes the answer says it
  void tick(Clock::time_point now) override;
  /// What to do when the client hangs up before it has its answer; at once if it has already. One at a time.
  void on_drop(std::function<void()> dropped);

 private:
  enum class State : uint8_t { open, streaming, done };
  void drop();
  void give_up();
  void expire(Timeout which);
  void finish(int status);

  std::shared_ptr<Core> core_;
  std::shared_ptr<http::Exchange> exchange_;
  const Clock::time_point arrival_ = Clock::now();
  const std::string client_;
  std::atomic<State> state_{State::open};
  std::atomic<bool> started_{false}, expired_{false};
  std::optional<Deadlines> deadlines_;
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
      reply->abort_stream();
    else
      reply->error(out_of_memory());
  }
}

}  // namespace fovea::server
