#pragma once
// A connection beyond the limits: it gets an error, and its bytes are not parsed as requests.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>

namespace fovea::http {

class RefusedConnection final : public std::enable_shared_from_this<RefusedConnection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  /// `answer`: the bytes to send. Up to `most_dropped` received bytes are read and dropped: a close with
  /// unread bytes would reset the connection, and the client could lose the answer.
  RefusedConnection(Socket socket, std::string answer, size_t most_dropped);

  /// Runs until the client has closed, kPatience has passed or `most_dropped` is exceeded.
  boost::asio::awaitable<void> run();
  void kill();

 private:
  Socket socket_;
  boost::asio::steady_timer timer_;
  const std::string answer_;
  const size_t most_dropped_;
};

}  // namespace fovea::http
