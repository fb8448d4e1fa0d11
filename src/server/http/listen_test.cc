// Listening addresses of a server.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST(HttpServer, UnixSockets) {
  ServerConfig config;
  config.uds = ::testing::TempDir() + "fovea_http_" + std::to_string(getpid()) + ".sock";
  std::string remote;
  const auto handler = [&](const Shared& exchange) {
    remote = exchange->request().remote;
    echo(exchange);
  };
  {
    auto server = Server::start(config, handler, page);
    ASSERT_TRUE(server) << server.error().message;
    EXPECT_EQ((*server)->port(), 0);
    EXPECT_EQ((*server)->address(), "unix:" + config.uds);
    RawClient client((*server)->address());
    client.send(kGet);
    EXPECT_EQ(body_of(client.answer()), "GET /a? 0 ");
    EXPECT_EQ(remote, "unix");
    const auto second = Server::start(config, handler, page);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("in use"), std::string::npos) << second.error().message;
  }
  EXPECT_NE(access(config.uds.c_str(), F_OK), 0);  // removed at the end
  // A killed server leaves a stale socket.
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, config.uds.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(stale);
  EXPECT_TRUE(Server::start(config, handler, page));
}

TEST(HttpServer, RefusesBadAddresses) {
  const auto message = [](const ServerConfig& config) {
    const auto server = Server::start(config, echo, page);
    return server ? "started" : server.error().message;
  };
  const auto server = serve(echo);
  ServerConfig config;
  config.port = server->port();
  EXPECT_NE(message(config).find("Address already in use"), std::string::npos) << message(config);
  config = {};
  config.port = 70000;
  EXPECT_NE(message(config).find("65535"), std::string::npos) << message(config);
  config = {};
  config.host = "no.such.host.invalid";
  EXPECT_NE(message(config).find("no.such.host.invalid"), std::string::npos) << message(config);
  config = {};
  config.uds = std::string(200, 'a');
  EXPECT_NE(message(config).find("107"), std::string::npos) << message(config);
  config.uds = FOVEA_SOURCE_DIR "/README.md";
  EXPECT_NE(message(config).find("not a socket"), std::string::npos) << message(config);
}

TEST(HttpServer, WhenFileDescriptorsRunOutIdleConnectionsYield) {
  std::mutex mutex;
  Shared held;
  const auto server = serve([&](const Shared& exchange) {
    const std::lock_guard lock(mutex);
    if (exchange->request().path == "/hold")
      held = exchange;
    else
      echo(exchange);
  });
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(before.rlim_cur, before.rlim_max);  // raised by Server::start()
  RawClient client(server->address());          // opens its socket before the limit applies
  client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return held != nullptr;
  }));
  std::vector<int> fillers;
  const int client_socket = socket(AF_INET, SOCK_STREAM, 0);
  rlimit low = before;
  low.rlim_cur = 128;
  setrlimit(RLIMIT_NOFILE, &low);
  for (int fd = dup(0); fd >= 0; fd = dup(0))
    fillers.push_back(fd);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(server->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client_socket, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  ASSERT_EQ(send(client_socket, kGet.data(), kGet.size(), 0), static_cast<ssize_t>(kGet.size()));
  pollfd waiting{client_socket, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 150), 0);  // a connection with a request in flight is not evicted
  echo(held);
  EXPECT_EQ(status_of(client.answer()), 200);
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
  std::array<char, 12> answer{};
  EXPECT_EQ(recv(client_socket, answer.data(), answer.size(), 0), 12);
  EXPECT_EQ(std::string_view(answer.data(), answer.size()), "HTTP/1.1 200");
  bool closed = false;
  EXPECT_EQ(client.rest(&closed), "");
  EXPECT_TRUE(closed);
  EXPECT_EQ(server->connections().evicted, 1);
  for (const int fd : fillers)
    close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  close(client_socket);
}

}  // namespace
}  // namespace fovea::http
