// Many concurrent connections, and shutdown while they are open.
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

/// Connections whose requests stay in flight until release().
class BusyConnections {
 public:
  http::Handler handler() {
    return [this](const Shared& exchange) {
      ++handled;
      const std::lock_guard lock(mutex_);
      if (exchange->request().path == "/hold")
        held_.push_back(exchange);
      else
        echo(exchange);
    };
  }
  void add(const Server& server, int count) {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(std::make_unique<RawClient>(server.address()));
      clients_.back()->send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    const auto all = clients_.size();
    ASSERT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return held_.size() == all;
    }));
  }
  void release() {
    const std::lock_guard lock(mutex_);
    for (const Shared& exchange : held_)
      echo(exchange);
    held_.clear();
  }
  std::vector<std::unique_ptr<RawClient>>& clients() { return clients_; }
  std::atomic<int> handled = 0;

 private:
  std::mutex mutex_;
  std::vector<Shared> held_;
  std::vector<std::unique_ptr<RawClient>> clients_;
};

/// Whatever a refused connection sends, and when: it gets one error, and no handler is called.
TEST(HttpServer, ARefusedConnectionIsNeverServed) {
  for (const bool per_address : {false, true}) {
    Limits limits;
    (per_address ? limits.connections_per_address : limits.connections) = 2;
    BusyConnections busy;
    const auto server = serve(busy.handler(), limits);
    busy.add(*server, 2);
    const std::string pipelined = std::string(kGet) + std::string(kGet) + std::string(kGet);
    for (const std::string& at_once : {std::string(), std::string(kGet), pipelined}) {
      RawClient client(server->address());
      client.send(at_once);
      const std::string refusal = client.answer();
      EXPECT_EQ(status_of(refusal), 503);
      EXPECT_NE(refusal.find("\r\nConnection: close\r\n"), std::string::npos) << refusal;
      client.send(pipelined);
      bool closed = false;
      EXPECT_EQ(client.rest(&closed), "");
      EXPECT_TRUE(closed);
    }
    EXPECT_EQ(busy.handled, 2);
    EXPECT_EQ(server->connections().open, 2);
    EXPECT_EQ(server->connections().refused, 3);
    EXPECT_EQ(server->connections().evicted, 0);
    busy.release();
    for (const auto& client : busy.clients())
      EXPECT_EQ(status_of(client->answer()), 200);
  }
}

/// Whether the connection is closed without further bytes.
bool is_ended(RawClient& client) {
  bool closed = false;
  return client.rest(&closed).empty() && closed;
}

TEST(HttpServer, IdleConnectionsYieldTheLongestIdleFirst) {
  for (const bool per_address : {false, true}) {
    Limits limits;
    (per_address ? limits.connections_per_address : limits.connections) = 4;
    BusyConnections busy;
    const auto server = serve(busy.handler(), limits);
    busy.add(*server, 1);
    RawClient answered(server->address());
    RawClient silent(server->address());
    ASSERT_TRUE(eventually([&] { return server->connections().open == 3; }));
    RawClient began(server->address());
    ASSERT_TRUE(eventually([&] { return server->connections().open == 4; }));
    answered.send(kGet);  // becomes idle after the others
    EXPECT_EQ(status_of(answered.answer()), 200);
    began.send("GET /a HT");
    std::this_thread::sleep_for(100ms);  // for the piece to arrive; else `began` is evicted before `answered`
    RawClient first(server->address());
    first.send(kGet);
    EXPECT_EQ(status_of(first.answer()), 200);
    EXPECT_TRUE(is_ended(silent));
    RawClient second(server->address());
    second.send(kGet);
    EXPECT_EQ(status_of(second.answer()), 200);
    EXPECT_TRUE(is_ended(answered));
    began.send("TP/1.1\r\nHost: x\r\n\r\n");  // not evicted
    EXPECT_EQ(status_of(began.answer()), 200);
    const ConnectionCounts counts = server->connections();
    EXPECT_EQ(counts.open, 4);
    EXPECT_EQ(counts.evicted, 2);
    EXPECT_EQ(counts.refused, 0);
    busy.release();
    EXPECT_EQ(status_of(busy.clients()[0]->answer()), 200);
  }
}

TEST(HttpServer, AnsweredBesideAFloodOfIdleConnections) {
  Limits limits;
  limits.connections = 40;
  const auto server = serve(echo, limits);
  std::vector<std::unique_ptr<RawClient>> flood;
  RawClient kept(server->address());
  for (int i = 0; i < 300; ++i) {
    flood.push_back(std::make_unique<RawClient>(server->address()));
    if (i % 10 != 0) continue;
    kept.send(kGet);  // never the longest idle
    ASSERT_EQ(status_of(kept.answer()), 200) << i;
    RawClient fresh(server->address());
    fresh.send(kGet);
    ASSERT_EQ(status_of(fresh.answer()), 200) << i;
  }
  EXPECT_LE(server->connections().open, 40);
  EXPECT_EQ(server->connections().refused, 0);
}

/// More refused connections than are kept open: each still gets its answer.
TEST(HttpServer, EveryRefusedConnectionIsAnswered) {
  Limits limits;
  limits.connections = 1;
  BusyConnections busy;
  const auto server = serve(busy.handler(), limits, 2);
  busy.add(*server, 1);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 600; ++i)
    flood.push_back(std::make_unique<RawClient>(server->address()));
  for (const auto& client : flood)
    ASSERT_EQ(status_of(client->answer()), 503);
  EXPECT_EQ(server->connections().refused, 600);
  EXPECT_EQ(busy.handled, 1);
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
    return stream != nullptr && server->connections().open == 2;
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
  EXPECT_TRUE(eventually([&] { return server->connections().open == 0; }));
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

/// Many threads write to many streams while some clients disconnect, and the server stops during this.
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
  // Every third client disconnects; the others must get all bytes in order.
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
