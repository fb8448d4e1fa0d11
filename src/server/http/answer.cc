#include "server/http/answer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "server/http/head.h"

namespace fovea::http {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

/// IMF-fixdate of RFC 9110, 5.6.7, formatted at most once a second.
std::string_view date() {
  thread_local std::time_t second = -1;
  thread_local std::array<char, 64> text;
  const std::time_t now = std::time(nullptr);
  if (now != second) {
    std::tm utc{};
    gmtime_r(&now, &utc);
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::snprintf(text.data(), text.size(), "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                  utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
    second = now;
  }
  return text.data();
}

/// Replaces control characters in `value`, which prevents header injection.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value)
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  out += "\r\n";
}

bool has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

class ExchangeHandle final : public Exchange {
 public:
  ExchangeHandle(Request request, std::shared_ptr<Answer> answer)
      : request_(std::move(request)), answer_(std::move(answer)) {}
  ~ExchangeHandle() override { answer_->drop(); }

  const Request& request() const override { return request_; }
  void respond(Response response) override {
    response.headers.emplace_back("X-Request-Id", request_.id);
    answer_->respond(std::move(response));
  }
  void start_stream(int status, std::string_view content_type, const Headers& headers) override {
    Headers all = headers;
    all.emplace_back("X-Request-Id", request_.id);
    answer_->start_stream(status, content_type, all);
  }
  bool write(std::string bytes) override { return answer_->write(std::move(bytes)); }
  void end() override { answer_->end(); }
  void abort() override { answer_->abort(); }
  size_t buffered() const override { return answer_->buffered(); }
  void on_close(std::function<void()> closed) override { answer_->on_close(std::move(closed)); }
  void post(std::function<void()> work) override { answer_->post(std::move(work)); }

 private:
  const Request request_;
  const std::shared_ptr<Answer> answer_;
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(Request request, std::shared_ptr<Answer> answer) {
  return std::make_shared<ExchangeHandle>(std::move(request), std::move(answer));
}

Answer::Answer(std::shared_ptr<Site> site, std::shared_ptr<TaskQueue> tasks, std::weak_ptr<Flushable> sink,
               Framing framing)
    : site_(std::move(site)), tasks_(std::move(tasks)), sink_(std::move(sink)), framing_(framing) {}

std::string Answer::head(int status, std::string_view content_type, const Headers& headers,
                         std::string_view framing) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
  out.append(reason(status)).append("\r\n");
  append_header(out, "Server", site_->config.server_name);
  append_header(out, "Date", date());
  if (!content_type.empty()) append_header(out, "Content-Type", content_type);
  for (const auto& [name, value] : headers)
    append_header(out, name, value);
  append_header(out, "Connection", keep_alive_ ? "keep-alive" : "close");
  return out.append(framing).append("\r\n");
}

void Answer::wake(bool idle) {
  if (idle) tasks_->flush(shared_from_this());
}

void Answer::respond(Response response) {
  std::function<void()> unused;  // destroyed after the lock is released
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::waiting) return;
    keep_alive_ = framing_.keep_alive && !site_->draining;
    const bool body = has_body(response.status);
    const std::string length =
        body ? "Content-Length: " + std::to_string(response.body.size()) + "\r\n" : std::string();
    head_ = head(response.status, body ? response.content_type : std::string(), response.headers, length);
    if (body && !framing_.is_head) pending_ = std::move(response.body);
    held_ = std::move(response.held);
    state_ = State::whole;
    unused.swap(on_close_);
    wanted = !std::exchange(flush_queued_, true);
  }
  wake(wanted);
}

void Answer::start_stream(int status, std::string_view content_type, const Headers& headers) {
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::waiting) return;
    keep_alive_ = framing_.keep_alive && framing_.chunked && !site_->draining;
    body_in_chunks_ = framing_.chunked;
    head_ = head(status, content_type, headers, framing_.chunked ? "Transfer-Encoding: chunked\r\n" : "");
    state_ = State::streaming;
    wanted = !std::exchange(flush_queued_, true);
  }
  wake(wanted);
}

bool Answer::write(std::string bytes) {
  bool wanted = false;
  bool taken = true;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::streaming) return false;
    if (framing_.is_head || bytes.empty()) return true;
    const size_t waiting = pending_.size() + in_flight_;
    // A single piece may exceed the limit: it is already in memory.
    if (waiting > 0 && bytes.size() > site_->config.limits.stream_buffer -
                                          std::min(waiting, site_->config.limits.stream_buffer)) {
      die();
      taken = false;
    } else if (pending_.empty()) {
      pending_ = std::move(bytes);
    } else {
      pending_ += bytes;
    }
    wanted = !std::exchange(flush_queued_, true);
  }
  wake(wanted);
  return taken;
}

void Answer::end() {
  std::function<void()> unused;
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::streaming) return;
    state_ = State::whole;
    unused.swap(on_close_);
    wanted = !std::exchange(flush_queued_, true);
  }
  wake(wanted);
}

void Answer::abort() {
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::whole || state_ == State::dead) return;
    die();
    wanted = !std::exchange(flush_queued_, true);
  }
  wake(wanted);
}

void Answer::die() {
  state_ = State::dead;
  pending_.clear();
  pending_.shrink_to_fit();
  held_.reset();
}

size_t Answer::buffered() const {
  const std::lock_guard lock(mutex_);
  return pending_.size() + in_flight_;
}

void Answer::on_close(std::function<void()> closed) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::whole) return;
    if (!closed_) {
      on_close_ = std::move(closed);
      return;
    }
  }
  // After stop() there is no I/O thread: call it here.
  if (!tasks_->post(closed)) closed();
}

void Answer::post(std::function<void()> work) {
  tasks_->post(std::move(work));
}

void Answer::drop() {
  bool waiting = false;
  {
    const std::lock_guard lock(mutex_);
    waiting = state_ == State::waiting;
  }
  if (!waiting) return abort();  // no-op when the answer is complete
  tasks_->post([self = shared_from_this()] {
    self->respond(self->site_->error_page(500, "the request was not answered"));
  });
}

void Answer::flush() {
  {
    const std::lock_guard lock(mutex_);
    flush_queued_ = false;
  }
  if (const auto sink = sink_.lock()) sink->flush();
}

bool Answer::take(Piece& piece) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::dead || final_taken_) return false;
  const bool ends = state_ == State::whole;
  if (head_.empty() && pending_.empty() && !ends) return false;
  piece.prefix = std::move(head_);
  head_.clear();
  piece.suffix.clear();
  if (body_in_chunks_ && !framing_.is_head) {
    if (!pending_.empty()) {
      std::array<char, 24> size;
      std::snprintf(size.data(), size.size(), "%zx\r\n", pending_.size());
      piece.prefix += size.data();
      piece.suffix = "\r\n";
    }
    if (ends) piece.suffix += "0\r\n\r\n";
  }
  piece.body = std::move(pending_);
  pending_.clear();
  piece.held = std::move(held_);
  final_taken_ = ends;
  return !(piece.prefix.empty() && piece.body.empty() && piece.suffix.empty());
}

bool Answer::is_whole() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::whole;
}

bool Answer::is_sent() const {
  const std::lock_guard lock(mutex_);
  return final_taken_;
}

bool Answer::is_aborted() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::dead;
}

bool Answer::keeps_connection() const {
  const std::lock_guard lock(mutex_);
  return keep_alive_;
}

void Answer::close() {
  std::function<void()> closed;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (state_ == State::whole) return;
    die();
    closed.swap(on_close_);
  }
  if (closed) closed();
}

}  // namespace fovea::http
