#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <random>
#include <utility>

#include "base/log.h"

namespace fovea::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

constexpr size_t kHeadRead = 4 << 10;
constexpr size_t kBodyRead = 64 << 10;
// After a refusal: how long the client may continue to send, how long it may pause, and how much it may send.
// Many clients (Python's) read the answer only after they have sent a whole body of announced length.
constexpr milliseconds kLinger{30'000};
constexpr milliseconds kLingerSilence{2000};
constexpr size_t kLingerBytes = size_t{8} << 20;
constexpr size_t kLingerBody = size_t{256} << 20;
/// The time limit for a whole body is this many times body_timeout, plus 1 ms a byte. It bounds clients that
/// send a byte just before each body_timeout.
constexpr int kBodyTimeouts = 10;

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = "req-";
  for (int word = 0; word < 2; ++word)
    for (uint64_t bits = random(), i = 0; i < 16; ++i, bits >>= 4)
      id += kDigits[bits & 15];
  return id;
}

size_t size_of(const Piece& piece) {
  return piece.prefix.size() + piece.body.size() + piece.suffix.size();
}

/// The buffers of a piece without its first `sent` bytes.
std::array<asio::const_buffer, 3> rest_of(const Piece& piece, size_t sent) {
  std::array<asio::const_buffer, 3> out{asio::buffer(piece.prefix), asio::buffer(piece.body),
                                        asio::buffer(piece.suffix)};
  for (auto& buffer : out) {
    const size_t skipped = std::min(sent, buffer.size());
    buffer += skipped;
    sent -= skipped;
  }
  return out;
}

/// The share of one body in Site::body_bytes.
class BodyShare {
 public:
  explicit BodyShare(std::atomic<size_t>& all) : all_(all) {}
  ~BodyShare() { all_ -= mine_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  /// Sets the size of this body to `bytes`; returns the total size of all bodies.
  size_t grow(size_t bytes) {
    const size_t more = bytes - std::exchange(mine_, bytes);
    return all_ += more;
  }

 private:
  std::atomic<size_t>& all_;
  size_t mine_ = 0;
};

}  // namespace

Connection::Connection(Socket socket, std::string remote, std::unique_ptr<Places::Place> place,
                       std::shared_ptr<Site> site, std::shared_ptr<TaskQueue> tasks)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      remote_(std::move(remote)),
      site_(std::move(site)),
      place_(std::move(place)),
      tasks_(std::move(tasks)),
      limits_(site_->config.limits) {
  error_code ec;
  socket_.non_blocking(true, ec);
  if (ec) kill();
}

asio::awaitable<void> Connection::run() {
  try {
    for (bool goes_on = true; goes_on && !dead_;)
      goes_on = co_await serve_one();
    if (!dead_ && answer_) co_await finish_answer();  // the error page of a refusal
    if (!dead_) co_await linger();
  } catch (const std::exception& error) {
    FOVEA_LOG(error) << "http: a connection ends: " << error.what();
  }
  kill();
}

bool Connection::refuse(const Refusal& refusal) {
  answer_ = std::make_shared<Answer>(site_, tasks_, weak_from_this(), Framing{is_head_, true, false});
  answer_->respond(site_->error_page(refusal.status, refusal.message));
  return false;
}

void Connection::notify() {
  notified_ = true;
  timer_.cancel();
}

asio::awaitable<bool> Connection::wait(Clock::time_point deadline) {
  start_read();
  if (!notified_) {
    timer_.expires_at(deadline);
    error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return std::exchange(notified_, false);
}

void Connection::start_read() {
  if (reading_ || eof_ || dead_ || in_.size() > limits_.header_bytes) return;
  reading_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](error_code) { self->read_ready(); });
}

void Connection::read_ready() {
  reading_ = false;
  if (dead_) return;
  const size_t before = in_.size();
  in_.resize(before + read_bytes_);
  error_code ec;
  const size_t got = socket_.read_some(asio::buffer(in_.data() + before, read_bytes_), ec);
  in_.resize(before + got);
  if (ec == asio::error::would_block || ec == asio::error::interrupted) return start_read();
  if (ec == asio::error::eof) {
    eof_ = true;
  } else if (ec) {
    return kill();
  }
  notify();
}

asio::awaitable<bool> Connection::serve_one() {
  std::string head;
  if (!co_await read_head(head)) co_return false;
  is_head_ = head.rfind("HEAD ", 0) == 0;
  auto refusal = check_head(head, limits_);
  RequestParser parser(limits_);
  if (!refusal) refusal = parser.take_head(head);
  if (refusal) {
    if (refusal->status == 413) most_dropped_ = kLingerBody;
    co_return refuse(*refusal);
  }
  if (!co_await read_body(parser)) co_return false;
  if (in_.empty() && in_.capacity() > 2 * kBodyRead) in_.shrink_to_fit();
  if (site_->stopped) co_return false;
  handle(parser);
  co_return co_await finish_answer();
}

asio::awaitable<bool> Connection::read_head(std::string& head) {
  read_bytes_ = kHeadRead;
  auto deadline = Clock::now() + limits_.keep_alive_timeout;
  bool started = false;
  bool skipped = false;
  size_t checked = 0;
  while (!dead_) {
    // RFC 9112, 2.2: ignore one empty line before a request.
    if (checked == 0 && !skipped && in_.rfind("\r\n", 0) == 0) {
      in_.erase(0, 2);
      skipped = true;
    }
    if (!in_.empty() && !started) {
      started = true;
      place_->set_idle(weak_from_this());  // again: now the most recently active
      deadline = Clock::now() + limits_.header_timeout;
    }
    const size_t end = in_.find("\r\n\r\n", checked < 3 ? 0 : checked - 3);
    const size_t size = end == std::string::npos ? in_.size() : end + 4;
    if (auto refusal = check_partial_head(std::string_view(in_).substr(0, size), checked))
      co_return refuse(*refusal);
    checked = size;
    if (size > limits_.header_bytes) {
      const bool in_line = in_.find("\r\n") > limits_.header_bytes;
      co_return refuse({in_line ? 414 : 431,
                        std::string("the request ") + (in_line ? "line has" : "line and headers have") +
                            " more than the allowed " + std::to_string(limits_.header_bytes) + " bytes"});
    }
    if (end != std::string::npos) {
      if (!place_->set_busy()) co_return false;
      head = in_.substr(0, size);
      in_.erase(0, size);
      co_return true;
    }
    if (eof_ || (draining() && !started)) co_return false;
    if (!started) place_->set_idle(weak_from_this());
    if (!co_await wait(deadline)) {
      if (!started) co_return false;
      co_return refuse({408, "the request's head did not arrive in time"});
    }
  }
  co_return false;
}

asio::awaitable<bool> Connection::read_body(RequestParser& parser) {
  if (parser.is_done()) co_return true;
  read_bytes_ = kBodyRead;
  if (parser.expects_continue() && in_.empty()) send_continue();
  const auto start = Clock::now();
  auto deadline = start + limits_.body_timeout;
  BodyShare share(site_->body_bytes);
  while (!dead_) {
    if (!in_.empty()) {
      std::optional<Refusal> refusal;
      in_.erase(0, parser.take_body(in_, refusal));
      if (refusal) co_return refuse(*refusal);
      if (parser.is_done()) co_return true;
      if (share.grow(parser.request().body.size()) > limits_.all_bodies_bytes)
        co_return refuse({503, "the limit of request bytes being received is reached; try again later"});
    }
    if (eof_) co_return false;
    if (!co_await wait(deadline)) co_return refuse({408, "the request's body did not arrive in time"});
    deadline = std::min(Clock::now() + limits_.body_timeout, start + kBodyTimeouts * limits_.body_timeout +
                                                                 milliseconds(parser.request().body.size()));
  }
  co_return false;
}

void Connection::send_continue() {
  out_.prefix = "HTTP/1.1 100 Continue\r\n\r\n";
  flush();
}

void Connection::handle(RequestParser& parser) {
  Request request = std::move(parser.request());
  request.remote = remote_;
  const std::string_view given = request.header("x-request-id");
  request.id = is_harmless_id(given) ? std::string(given) : new_id();
  answer_ = std::make_shared<Answer>(site_, tasks_, weak_from_this(),
                                     Framing{request.method == "HEAD", parser.is_1_1(), parser.keep_alive()});
  try {
    site_->handler(make_exchange(std::move(request), answer_));
  } catch (const std::exception& error) {  // the released exchange answers with 500
    FOVEA_LOG(error) << "http: a handler failed: " << error.what();
  }
}

asio::awaitable<bool> Connection::finish_answer() {
  read_bytes_ = kHeadRead;
  while (!dead_) {
    if (answer_->is_sent() && size_of(out_) == 0) break;
    // After EOF an incomplete answer is dropped; a complete one is sent, as the client may still read.
    if (eof_ && !answer_->is_whole()) kill();
    if (dead_) break;
    const auto deadline = blocked_ ? progress_ + limits_.write_timeout : Clock::time_point::max();
    if (!co_await wait(deadline) && blocked_ && Clock::now() >= progress_ + limits_.write_timeout) kill();
  }
  if (dead_) co_return false;
  const bool goes_on = answer_->keeps_connection();
  answer_.reset();
  co_return goes_on;
}

asio::awaitable<void> Connection::linger() {
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  const auto end = Clock::now() + kLinger;
  read_bytes_ = kBodyRead;
  place_->set_idle(weak_from_this());
  size_t dropped = 0;
  while (!dead_ && !eof_ && !site_->stopped && dropped <= std::max(most_dropped_, kLingerBytes)) {
    dropped += in_.size();
    in_.clear();
    if (!co_await wait(std::min(end, Clock::now() + kLingerSilence))) break;
  }
}

void Connection::flush() {
  if (dead_ || blocked_) return;
  if (answer_ && answer_->is_aborted()) return kill();
  for (;;) {
    if (size_of(out_) == 0 && (!answer_ || !answer_->take(out_))) break;
    error_code ec;
    const size_t sent = socket_.write_some(rest_of(out_, out_sent_), ec);
    if (sent > 0 || !ec) progress_ = Clock::now();
    out_sent_ += sent;
    if (out_sent_ == size_of(out_)) {
      out_ = {};
      out_sent_ = 0;
    }
    if (answer_) answer_->set_in_flight(size_of(out_) - out_sent_);
    if (ec == asio::error::would_block) {
      progress_ = Clock::now();
      blocked_ = true;
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](error_code) {
        self->blocked_ = false;
        self->flush();
      });
      return notify();  // wait() must apply write_timeout
    }
    if (ec && ec != asio::error::interrupted) return kill();
  }
  if (answer_ && answer_->is_sent()) notify();
}

void Connection::kill() {
  if (!dead_) {
    dead_ = true;
    error_code ec;
    socket_.close(ec);
    place_.reset();
    if (const auto answer = answer_) answer->close();
  }
  notify();
}

void Connection::evict() {
  tasks_->post([self = shared_from_this()] { self->kill(); });
}

}  // namespace fovea::http
