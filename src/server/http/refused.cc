#include "server/http/refused.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

namespace fovea::http {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::seconds kPatience{5};

}  // namespace

RefusedConnection::RefusedConnection(Socket socket, std::string answer, size_t most_dropped)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      answer_(std::move(answer)),
      most_dropped_(most_dropped) {}

asio::awaitable<void> RefusedConnection::run() {
  timer_.expires_after(kPatience);
  timer_.async_wait([weak = weak_from_this()](error_code stopped) {
    if (const auto self = weak.lock(); self && !stopped) self->kill();
  });
  error_code ec;
  co_await asio::async_write(socket_, asio::buffer(answer_), asio::redirect_error(asio::use_awaitable, ec));
  if (!ec) socket_.shutdown(Socket::shutdown_send, ec);
  thread_local std::array<char, 64 << 10> nowhere;
  size_t dropped = 0;
  while (!ec && dropped <= most_dropped_)
    dropped += co_await socket_.async_read_some(asio::buffer(nowhere),
                                                asio::redirect_error(asio::use_awaitable, ec));
  timer_.cancel();
  kill();
}

void RefusedConnection::kill() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace fovea::http
