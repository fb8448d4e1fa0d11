#include "server/reply.h"

#include <algorithm>

#include "base/log.h"
#include "server/openai/response.h"
#include "server/text.h"

namespace fovea::server {
namespace {

/// The field that caused the error; the engine's messages begin with it.
std::string_view param_of(std::string_view message) {
  constexpr std::string_view kFields[] = {"temperature",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "repetition_penalty",
                                          "frequency_penalty",
                                          "presence_penalty",
                                          "logit_bias",
                                          "allowed_token_ids",
                                          "bad_words",
                                          "seed",
                                          "n",
                                          "max_tokens",
                                          "min_tokens",
                                          "stop",
                                          "stop_token_ids",
                                          "logprobs",
                                          "prompt_logprobs",
                                          "priority",
                                          "prompt"};
  const std::string_view first = message.substr(0, message.find_first_of(" [:"));
  return std::ranges::find(kFields, first) != std::end(kFields) ? first : "";
}

}  // namespace

openai::ApiError error_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return openai::bad_request(error.message, std::string(param_of(error.message)));
    case ErrorCode::cancelled: return shutting_down();
    case ErrorCode::out_of_memory: return out_of_memory();
    case ErrorCode::not_found:
    case ErrorCode::io:
    case ErrorCode::internal: break;
  }
  FOVEA_LOG(error) << "request failed: " << escaped(error.message, 1000);
  return {500, "the server failed to compute this answer; see the server log", "", "internal_error"};
}

openai::ApiError overloaded(Admission::Verdict verdict) {
  return {503,
          verdict == Admission::Verdict::too_many_tokens
              ? "the limit of queued prompt tokens is reached; try again later, or send a shorter prompt"
              : "the queue of requests is full; try again later, or ask for fewer answers",
          "", "server_overloaded", 1};
}

openai::ApiError shutting_down() {
  return {503, "the server is shutting down; send the request to another one, or try again later", "",
          "shutting_down", 5};
}

openai::ApiError out_of_memory() {
  return {503, "the server is out of memory for this request; send a smaller one, or try again", "",
          "out_of_memory", 1};
}

openai::ApiError answers_full() {
  return {503, "the memory limit for answers in flight is reached; try again later", "", "server_overloaded",
          1};
}

openai::ApiError answer_too_large(const Core& core, int64_t bytes, const std::string& what,
                                  const std::string& param) {
  return openai::bad_request("the answer would have about " + std::to_string(bytes) + " bytes (" + what +
                                 "); at most " + std::to_string(core.config.max_answer_bytes) +
                                 " are allowed; ask for fewer prompts, answers, tokens or log probabilities"
                                 " at a time",
                             param, "answer_too_large");
}

http::Response error_response(const openai::ApiError& error, ApiStyle style, std::string_view id) {
  http::Response response{error.status, "application/json", error_body(style, error, id)};
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

http::Headers cors_headers(const ServiceConfig& config, const http::Request& request) {
  if (config.cors_origins.empty()) return {};
  const std::string_view origin = request.header("origin");
  http::Headers headers = {{"Vary", "Origin"}};
  const bool any = std::ranges::find(config.cors_origins, "*") != config.cors_origins.end();
  if (origin.empty() || (!any && std::ranges::find(config.cors_origins, origin) == config.cors_origins.end()))
    return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after, x-ignored-fields");
  return headers;
}

std::shared_ptr<Reply> Reply::create(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange) {
  auto reply = std::make_shared<Reply>(std::move(core), std::move(exchange));
  reply->exchange_->on_close([weak = std::weak_ptr(reply)] {
    if (const auto alive = weak.lock()) alive->drop();
  });
  return reply;
}

Reply::Reply(std::shared_ptr<Core> core, std::shared_ptr<http::Exchange> exchange)
    : core_(std::move(core)),
      exchange_(std::move(exchange)),
      client_(core_->client_of(exchange_->request())),
      style_(api_style(exchange_->request().path)) {
  core_->in_flight.fetch_add(1);
}

Reply::~Reply() {
  if (deadlines_) core_->remove(this);
  if (state_.load() == State::done) return;
  if (state_.load() == State::streaming) exchange_->abort();
  finish(500);
}

void Reply::finish(int status) {
  core_->in_flight.fetch_sub(1);
  if (core_->metrics) core_->metrics->http_response(status);
  const std::chrono::duration<double, std::milli> taken = Clock::now() - arrival_;
  if (log_level() > LogLevel::info) return;
  const auto cut = [](const std::string& text) { return std::string_view(text).substr(0, 200); };
  const LogField fields[] = {{"remote", cut(request().remote)}, {"id", cut(request().id)},
                             {"method", cut(request().method)}, {"path", cut(request().path)},
                             {"status", int64_t{status}},       {"ms", taken.count()}};
  write_log_line(LogLevel::info, "request", fields);
}

void Reply::add_header(std::string name, std::string value) {
  headers_.emplace_back(std::move(name), std::move(value));
}

void Reply::respond(http::Response response) {
  State open = State::open;
  if (!state_.compare_exchange_strong(open, State::done)) return;
  std::ranges::move(headers_, std::back_inserter(response.headers));
  if (style_ == ApiStyle::anthropic) response.headers.emplace_back("request-id", request().id);
  for (auto& header : cors_headers(core_->config, request()))
    response.headers.push_back(std::move(header));
  const int status = response.status;
  exchange_->respond(std::move(response));
  finish(status);
}

bool Reply::start_stream(std::string_view content_type) {
  State open = State::open;
  if (!state_.compare_exchange_strong(open, State::streaming)) return false;
  // These headers stop proxies from caching and buffering events.
  http::Headers headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  std::ranges::move(headers_, std::back_inserter(headers));
  if (style_ == ApiStyle::anthropic) headers.emplace_back("request-id", request().id);
  for (auto& header : cors_headers(core_->config, request()))
    headers.push_back(std::move(header));
  exchange_->start_stream(200, content_type, headers);
  return true;
}

void Reply::end() {
  State streaming = State::streaming;
  if (!state_.compare_exchange_strong(streaming, State::done)) return;
  exchange_->end();
  finish(200);
}

bool Reply::write(std::string bytes) {
  if (exchange_->write(std::move(bytes))) return true;
  drop();
  return false;
}

void Reply::abort_stream() {
  State streaming = State::streaming;
  if (!state_.compare_exchange_strong(streaming, State::done)) return;
  exchange_->abort();
  finish(500);
}

void Reply::set_deadlines(const Deadlines& deadlines) {
  deadlines_ = deadlines;
  core_->add(shared_from_this());
}

void Reply::tick(Clock::time_point now) {
  if (done() || !deadlines_) return;
  if (const auto ran_out = deadlines_->ran_out(now - arrival_, started_.load())) expire(*ran_out);
}

void Reply::expire(Timeout which) {
  if (expired_.exchange(true)) return;
  // On the connection's thread, after writes in progress there.
  exchange_->post([self = shared_from_this(), which] {
    if (self->done()) return;
    if (self->core_->metrics) self->core_->metrics->timed_out(which);
    const openai::ApiError error = self->deadlines_->error(which);
    if (self->streaming()) {
      self->write(stream_error(self->style_, error));
      self->end();
    } else {
      self->error(error);
    }
    self->give_up();
  });
}

void Reply::drop() {
  // No answer is delivered; 499 is nginx's status for a client disconnect.
  if (state_.exchange(State::done) != State::done) finish(499);
  give_up();
}

void Reply::give_up() {
  std::function<void()> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
    dropped.swap(on_drop_);
  }
  if (dropped) dropped();
}

void Reply::on_drop(std::function<void()> dropped) {
  {
    const std::lock_guard lock(mutex_);
    if (!dropped_) {
      on_drop_ = std::move(dropped);
      return;
    }
  }
  dropped();
}

}  // namespace fovea::server
