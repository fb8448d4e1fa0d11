// Many connections at once, and the end of a server under them.
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST(HttpServer, LimitsConnections) {
  for (const bool per_address : {false, true}) {
    Limits limits;
    (per_address ? limits.connections_per_address : limits.connections) = 2;
    const auto server = serve(echo, limits);
    RawClient first(server->address());
    auto second = std::make_unique<RawClient>(server->address());
    ASSERT_TRUE(eventually([&] { return server->connections() == 2; }));
    bool closed = false;
    RawClient third(server->address());
    third.shutdown_send();
    EXPECT_EQ(status_of(third.rest(&closed)), 503);
    EXPECT_TRUE(closed);
    second.reset();
    ASSERT_TRUE(eventually([&] { return server->connections() == 1; }));
    RawClient fourth(server->address());
    fourth.send(kGet);
    EXPECT_EQ(status_of(fourth.answer()), 200);
  }
}

TEST(HttpServer, DrainsThenStops) {
  std::mutex mutex;
  Shared stream;
  const auto server = serve([&](const Shared& exchange) {
    exchange->start_stream(200, "text/plain", {});
    const std::lock_guard lock(mutex);
    stream = exchange;
  });
  RawClient idle(server->address());
  RawClient busy(server->address());
  busy.send(kGet);
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return stream != nullptr && server->connections() == 2;
  }));
  server->stop_accepting();
  bool closed = false;
  EXPECT_EQ(idle.rest(&closed), "");
  EXPECT_TRUE(closed);
  EXPECT_TRUE(stream->write("still"));
  stream->end();
  EXPECT_EQ(body_of(busy.rest(&closed)), "still");
  EXPECT_TRUE(closed);
  EXPECT_TRUE(eventually([&] { return !RawClient(server->address()).connected(); }));
  EXPECT_TRUE(eventually([&] { return server->connections() == 0; }));
}

TEST(HttpServer, ExchangesOutliveTheServer) {
  std::mutex mutex;
  std::vector<Shared> held;
  std::atomic<int> gone = 0;
  auto server = serve([&](const Shared& exchange) {
    if (exchange->request().path == "/stream") exchange->start_stream(200, "text/plain", {});
    exchange->on_close([&] { ++gone; });
    const std::lock_guard lock(mutex);
    held.push_back(exchange);
  });
  RawClient a(server->address());
  RawClient b(server->address());
  a.send(kGet);
  b.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return held.size() == 2;
  }));
  server->stop();
  EXPECT_EQ(gone, 2);
  server.reset();
  bool ran = false;
  bool told = false;
  for (const auto& exchange : held) {
    exchange->start_stream(200, "text/plain", {});
    EXPECT_FALSE(exchange->write("x"));
    exchange->post([&] { ran = true; });
    exchange->on_close([&] { told = true; });
    exchange->respond({});
    exchange->end();
    exchange->abort();
    EXPECT_EQ(exchange->buffered(), 0U);
  }
  held.clear();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(told);
}

/// Many threads write to many streams while some clients leave, and the server stops in the middle.
TEST(HttpServer, WritersOnManyThreads) {
  std::mutex mutex;
  std::vector<Shared> streams;
  auto server = serve(
      [&](const Shared& exchange) {
        exchange->start_stream(200, "text/plain", {});
        const std::lock_guard lock(mutex);
        streams.push_back(exchange);
      },
      {}, 2);
  constexpr int kClients = 24;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->address()));
    clients.back()->send(kGet);
  }
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return streams.size() == kClients;
  }));
  // Each third by a client that leaves; the rest must get every byte in order.
  std::string expected;
  for (int i = 0; i < 300; ++i)
    expected += std::to_string(i) + ",";
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t)
    writers.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i)
        for (size_t s = t; s < streams.size(); s += 4)
          streams[s]->write(std::to_string(i) + ",");
      for (size_t s = t; s < streams.size(); s += 4)
        streams[s]->end();
    });
  for (int i = 0; i < kClients; i += 3)
    clients[i]->reset();
  for (int i = 0; i < kClients; ++i)
    EXPECT_EQ(i % 3 == 0 ? expected : body_of(clients[i]->answer()), expected);
  for (auto& writer : writers)
    writer.join();
  streams.clear();
  for (int i = 0; i < kClients; ++i)
    if (i % 3 != 0) clients[i]->send(kGet);
  std::thread late([&] {
    for (int i = 0; i < 2000; ++i) {
      std::vector<Shared> now;
      {
        const std::lock_guard lock(mutex);
        now = streams;
      }
      for (const auto& stream : now)
        stream->write("x");
    }
  });
  server->stop();
  server.reset();
  late.join();
}

}  // namespace
}  // namespace fovea::http
