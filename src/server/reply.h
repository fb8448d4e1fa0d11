#pragma once
// The reply to one client, with what every answer has: CORS headers, metrics, a log line.
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/api_style.h"
#include "server/core.h"
#include "server/deadlines.h"

namespace fovea::server {

openai::ApiError error_of(const Error& error);
/// Errors for full queues and a stopping server, with a Retry-After.
openai::ApiError overloaded(Admission::Verdict verdict);
openai::ApiError shutting_down();
openai::ApiError out_of_memory();
openai::ApiError answers_full();
/// `bytes`: the estimated size of the answer; `what`: the numbers that it follows from.
openai::ApiError answer_too_large(const Core& core, int64_t bytes, const std::string& what,
                                  const std::string& param);
http::Response error_response(const openai::ApiError& error, ApiStyle style = ApiStyle::openai,
                              std::string_view id = {});

/// The CORS headers for a request; no Access-Control-* headers unless its origin is allowed.
http::Headers cors_headers(const ServiceConfig& config, const http::Request& request);

/// Counts as in flight until it is answered or its client has disconnected. Thread-safe; calls after the end
/// of an answer are ignored.
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
  ApiStyle style() const { return style_; }

  /// Call before the answer begins, only on the thread that begins it.
  void add_header(std::string name, std::string value);
  /// No-op when the answer has already begun.
  void respond(http::Response response);
  void error(const openai::ApiError& error) { respond(error_response(error, style_, request().id)); }
  /// False when the answer has already begun.
  bool start_stream(std::string_view content_type);
  bool streaming() const { return state_.load() == State::streaming; }
  bool done() const { return state_.load() == State::done; }
  /// False when the bytes will not be delivered; the request then ends and is counted as a client disconnect.
  bool write(std::string bytes);
  void end();
  /// Closes a stream after an internal failure, so that the client detects the truncation.
  void abort_stream();
  /// tick() ends the request with an error after a deadline. Call once, before the request is processed.
  void set_deadlines(const Deadlines& deadlines);
  /// Keeps `share` until the answer has been sent: the memory of a body that stays until then.
  void hold(std::shared_ptr<AnswerShare> share) { share_ = std::move(share); }
  const std::shared_ptr<AnswerShare>& share() const { return share_; }
  /// The engine has started the request: the queue timeout no longer applies.
  void set_started() { started_.store(true); }
  void abort() override {}  // the job that computes the answer reports the error
  void tick(Clock::time_point now) override;
  /// Sets the callback for a disconnect or timeout before the answer has ended; called at once if that has
  /// already happened. A new callback replaces the previous one.
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
  const ApiStyle style_;
  std::atomic<State> state_{State::open};
  std::atomic<bool> started_{false}, expired_{false};
  std::optional<Deadlines> deadlines_;
  http::Headers headers_;  // from add_header()
  std::shared_ptr<AnswerShare> share_;
  std::mutex mutex_;  // guards the two members below
  bool dropped_ = false;
  std::function<void()> on_drop_;
};

/// Runs `work`; on std::bad_alloc only this request fails, with a 503.
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
