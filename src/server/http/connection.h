#pragma once
// One connection: serves its requests in sequence on its I/O thread.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/http/answer.h"
#include "server/http/head.h"
#include "server/http/parser.h"

namespace fovea::http {

using Socket = boost::asio::generic::stream_protocol::socket;

class Connection final : public Flushable, public Evictable, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, std::string remote, std::unique_ptr<Places::Place> place,
             std::shared_ptr<Site> site, std::shared_ptr<TaskQueue> tasks);

  /// Serves requests until the connection ends.
  boost::asio::awaitable<void> run();
  /// Sends what the current answer has available.
  void flush() override;
  /// Closes the connection at once.
  void kill();
  void evict() override;
  /// Called when the server drains: an idle connection ends.
  void wake() { notify(); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Waits for bytes, the end of the answer or connection, or `deadline`; false at the deadline.
  boost::asio::awaitable<bool> wait(Clock::time_point deadline);
  /// Each returns whether the connection continues with the next step.
  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> read_head(std::string& head);
  boost::asio::awaitable<bool> read_body(RequestParser& parser);
  boost::asio::awaitable<bool> finish_answer();
  /// Reads and drops what the client still sends, for a limited time: a close with unread bytes would reset
  /// the connection, and the client could lose the answer.
  boost::asio::awaitable<void> linger();

  /// Answers with the error page. Returns false: the connection does not continue.
  bool refuse(const Refusal& refusal);
  void handle(RequestParser& parser);
  void start_read();
  void read_ready();
  void send_continue();
  void notify();
  bool draining() const { return site_->draining; }

  Socket socket_;
  boost::asio::steady_timer timer_;
  const std::string remote_;
  const std::shared_ptr<Site> site_;
  std::unique_ptr<Places::Place> place_;  // null once the socket is closed
  const std::shared_ptr<TaskQueue> tasks_;
  const Limits& limits_;

  std::string in_;              // received, not consumed
  size_t read_bytes_ = 0;       // maximum size of one read
  bool reading_ = false;        // a read is pending
  bool eof_ = false;            // the client has closed its side
  bool dead_ = false;           // the socket is closed
  bool blocked_ = false;        // a send waits for the client to read
  bool notified_ = false;       // makes wait() return at once
  bool is_head_ = false;        // the refused request is a HEAD
  size_t most_dropped_ = 0;     // bytes to drop after a refusal
  Clock::time_point progress_;  // last write progress, or start of the wait for it
  std::shared_ptr<Answer> answer_;
  Piece out_;
  size_t out_sent_ = 0;
};

}  // namespace fovea::http
