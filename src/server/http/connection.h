#pragma once
// One connection: its requests one after the other, on the I/O thread that it was given to.
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

  /// Serves until the end.
  boost::asio::awaitable<void> run();
  /// Sends what the current answer has.
  void flush() override;
  /// Ends at once.
  void kill();
  void evict() override;
  /// The server drains: an idle connection ends.
  void wake() { notify(); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Waits for bytes, the answer's end, the connection's, or the time; false when it was the time.
  boost::asio::awaitable<bool> wait(Clock::time_point deadline);
  /// Each returns whether the connection goes on with the next step.
  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> read_head(std::string& head);
  boost::asio::awaitable<bool> read_body(RequestParser& parser);
  boost::asio::awaitable<bool> finish_answer();
  /// What the client still sends is read and dropped for a moment: a close with unread bytes would reset the
  /// connection, and the client might never see the answer.
  boost::asio::awaitable<void> linger();

  /// The one answer left is the error page: false, for "the connection does not go on".
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
  std::unique_ptr<Places::Place> place_;  // null when the socket is closed
  const std::shared_ptr<TaskQueue> tasks_;
  const Limits& limits_;

  std::string in_;              // received and not used
  size_t read_bytes_ = 0;       // that one read takes at most
  bool reading_ = false;        // a read waits
  bool eof_ = false;            // the client sends no more
  bool dead_ = false;           // the socket is closed
  bool blocked_ = false;        // a send waits for the client to read
  bool notified_ = false;       // wait() need not
  bool is_head_ = false;        // the refused request is a HEAD
  size_t most_dropped_ = 0;     // of what comes after a refusal
  Clock::time_point progress_;  // the last byte that the client took, or when it began to be waited for
  std::shared_ptr<Answer> answer_;
  Piece out_;
  size_t out_sent_ = 0;
};

}  // namespace fovea::http
