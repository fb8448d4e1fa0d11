// Clients that are slow or disconnect.
#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST(HttpServer, EndsSlowHeadsBodiesAndIdleConnections) {
  Limits limits;
  limits.header_timeout = 150ms;
  limits.body_timeout = 150ms;
  limits.keep_alive_timeout = 300ms;
  const auto server = serve(echo, limits);
  bool closed = false;
  RawClient head(server->address());
  for (const char c : std::string("GET / H")) {  // occasional bytes do not extend the timeout
    head.send({&c, 1});
    std::this_thread::sleep_for(40ms);
  }
  EXPECT_EQ(status_of(head.rest(&closed)), 408);
  EXPECT_TRUE(closed);
  RawClient body(server->address());
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(status_of(body.rest(&closed)), 408);
  EXPECT_TRUE(closed);
  RawClient idle(server->address());
  EXPECT_EQ(idle.rest(&closed), "");
  EXPECT_TRUE(closed);
  RawClient kept(server->address());
  kept.send(kGet);
  EXPECT_EQ(status_of(kept.answer()), 200);
  EXPECT_EQ(kept.rest(&closed), "");
  EXPECT_TRUE(closed);
}

TEST(HttpServer, EndsABodyThatTricklesForever) {
  Limits limits;
  limits.body_timeout = 60ms;
  const auto server = serve(echo, limits);
  RawClient client(server->address());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  std::atomic<bool> done = false;
  std::thread drip([&] {
    while (!done && client.send("a"))
      std::this_thread::sleep_for(20ms);
  });
  EXPECT_EQ(status_of(client.answer()), 408);
  done = true;
  drip.join();
}

TEST(HttpServer, TellsWhenTheClientHangsUp) {
  std::mutex mutex;
  std::vector<Shared> held;
  std::atomic<int> gone = 0;
  const auto server = serve([&](Shared exchange) {
    if (exchange->request().path == "/stream") exchange->start_stream(200, "text/plain", {});
    exchange->on_close([&] { ++gone; });
    const std::lock_guard lock(mutex);
    held.push_back(std::move(exchange));
  });
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return held.size();
  };
  int expected = 0;
  for (const char* path : {"/wait", "/stream"}) {
    for (int way = 0; way < 3; ++way) {
      RawClient client(server->address());
      client.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n");
      ++expected;
      ASSERT_TRUE(eventually([&] { return count() == static_cast<size_t>(expected); }));
      EXPECT_EQ(gone, expected - 1);
      if (way == 0) client.close();
      if (way == 1) client.reset();
      if (way == 2) client.shutdown_send();  // half-open
      EXPECT_TRUE(eventually([&] { return gone == expected; })) << path << " " << way;
    }
  }
  EXPECT_TRUE(eventually([&] { return server->connections().open == 0; }));
  for (const auto& exchange : held) {
    EXPECT_FALSE(exchange->write("x"));
    std::atomic<bool> told = false;
    exchange->on_close([&] { told = true; });  // at once
    EXPECT_TRUE(eventually([&] { return told.load(); }));
  }
}

TEST(HttpServer, AnAnswerThatIsWholeIsNotCancelled) {
  std::atomic<bool> closed = false;
  const auto server = serve([&](const Shared& exchange) {
    exchange->on_close([&] { closed = true; });
    echo(exchange);
    exchange->on_close([&] { closed = true; });
  });
  RawClient client(server->address());
  client.send(kGet);
  client.shutdown_send();
  EXPECT_EQ(body_of(client.rest()), "GET /a? 0 ");
  EXPECT_TRUE(eventually([&] { return server->connections().open == 0; }));
  EXPECT_FALSE(closed);
}

TEST(HttpServer, DropsAReaderThatIsTooSlow) {
  Limits limits;
  limits.stream_buffer = 100'000;
  std::atomic<bool> closed = false;
  std::atomic<size_t> most = 0;
  std::atomic<bool> stopped = false;
  std::thread writer;
  const auto server = serve(
      [&](Shared exchange) {
        exchange->start_stream(200, "text/plain", {});
        exchange->on_close([&] { closed = true; });
        writer = std::thread([&, exchange = std::move(exchange)] {
          while (exchange->write(std::string(10'000, 'a')))
            most = std::max(most.load(), exchange->buffered());
          stopped = true;
        });
      },
      limits);
  RawClient client(server->address(), 4096);
  client.send(kGet);
  EXPECT_TRUE(eventually([&] { return stopped && closed; }));
  writer.join();
  EXPECT_GT(most, 50'000U);
  EXPECT_LE(most, 111'000U);
  EXPECT_EQ(client.rest().find("\r\n0\r\n\r\n"), std::string::npos);  // no last chunk: detected as truncated
}

TEST(HttpServer, DropsAReaderThatTakesNothingForTooLong) {
  Limits limits;
  limits.write_timeout = 200ms;
  std::atomic<bool> closed = false;
  Shared held;
  const auto server = serve(
      [&](const Shared& exchange) {
        exchange->start_stream(200, "text/plain", {});
        exchange->on_close([&] { closed = true; });
        exchange->write(std::string(size_t{32} << 20, 'a'));  // more than the kernel buffers
        held = exchange;
      },
      limits);
  RawClient client(server->address(), 4096);
  client.send(kGet);
  EXPECT_TRUE(eventually([&] { return closed.load(); }));
  EXPECT_FALSE(held->write("x"));
}

TEST(HttpServer, SendsALargeAnswerToASlowReader) {
  const std::string large(size_t{8} << 20, 'a');
  const auto server = serve([&](const Shared& exchange) { exchange->respond({200, "text/plain", large}); });
  RawClient client(server->address(), 8192);
  client.send(kGet);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(body_of(client.answer()).size(), large.size());
}

}  // namespace
}  // namespace fovea::http
