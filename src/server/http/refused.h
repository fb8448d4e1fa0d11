#pragma once
// A connection beyond the limits: it is told so, and nothing that it sends is read as a request.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>

namespace fovea::http {

class RefusedConnection final : public std::enable_shared_from_this<RefusedConnection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  /// `answer`: the bytes that the client gets. Up to `most_dropped` bytes of what it sends are taken and
  /// dropped: a close with unread bytes would be a reset, which can take the answer away from its reader.
  RefusedConnection(Socket socket, std::string answer, size_t most_dropped);

  /// Until the client has closed, or the patience or `most_dropped` is used up.
  boost::asio::awaitable<void> run();
  void kill();

 private:
  Socket socket_;
  boost::asio::steady_timer timer_;
  const std::string answer_;
  const size_t most_dropped_;
};

}  // namespace fovea::http
