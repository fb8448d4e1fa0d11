#include "server/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "server/http/raw_client_test.h"

namespace fovea::http {
namespace {

using namespace std::chrono_literals;
using Shared = std::shared_ptr<Exchange>;

Response page(int status, std::string_view message) {
  return {status, "application/json", "{\"error\":\"" + std::string(message) + "\"}"};
}

/// Says what the request was.
void echo(const Shared& exchange) {
  const Request& request = exchange->request();
  exchange->respond({200, "text/plain",
                     request.method + " " + request.path + "?" + request.query + " " +
                         std::to_string(request.body.size()) + " " + request.body});
}

std::unique_ptr<Server> serve(Handler handler, Limits limits = {}, int io_threads = 1) {
  ServerConfig config;
  config.port = 0;
  config.io_threads = io_threads;
  config.limits = limits;
  auto server = Server::start(config, std::move(handler), page);
  EXPECT_TRUE(server) << (server ? "" : server.error().message);
  return std::move(server).value();
}

/// Waits up to 10 s.
bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(HttpServer, KeepsTheConnectionAndAnswersAgain) {
  const auto server = serve(echo);
  RawClient client(server->address());
  for (int i = 0; i < 3; ++i) {
    client.send("POST /p%20q?x=%31 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    const std::string answer = client.answer();
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_EQ(body_of(answer), "POST /p q?x=%31 5 hello");
    EXPECT_NE(answer.find("Connection: keep-alive\r\n"), std::string::npos);
  }
  EXPECT_EQ(server->connections(), 1);
}

TEST(HttpServer, StreamsChunksAsTheyAreWritten) {
  std::mutex mutex;
  std::vector<Shared> streams;
  const auto server = serve([&](Shared exchange) {
    exchange->start_stream(200, "text/event-stream", {{"X-A", "b\r\nEvil: 1"}});
    EXPECT_TRUE(exchange->write("data: 1\n\n"));
    const std::lock_guard lock(mutex);
    streams.push_back(std::move(exchange));
  });
  RawClient client(server->address());
  client.send(kGet);
  ASSERT_TRUE(client.read_until("data: 1\n\n\r\n"));  // before the rest is written
  Shared stream;
  {
    const std::lock_guard lock(mutex);
    stream = streams.at(0);
    streams.clear();
  }
  EXPECT_TRUE(stream->write("data: 2\n\n"));
  EXPECT_TRUE(stream->write("data: 3\n\n"));
  stream->end();
  EXPECT_FALSE(stream->write("late"));
  const std::string answer = client.answer();
  EXPECT_EQ(body_of(answer), "data: 1\n\ndata: 2\n\ndata: 3\n\n");
  EXPECT_NE(answer.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(answer.find("\nEvil"), std::string::npos);
  client.send(kGet);  // the connection goes on
  EXPECT_TRUE(client.read_until("data: 1\n\n\r\n"));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  std::vector<std::thread> threads;
  const auto server = serve([&](Shared exchange) {
    threads.emplace_back([exchange = std::move(exchange)]() mutable {
      // The first answer comes last, if they are not in order.
      if (exchange->request().path == "/0") std::this_thread::sleep_for(50ms);
      echo(exchange);
      exchange.reset();
    });
  });
  RawClient client(server->address());
  std::string all;
  for (int i = 0; i < 8; ++i)
    all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send(all);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(body_of(client.answer()), "GET /" + std::to_string(i) + "? 0 ");
  server->stop();
  for (auto& thread : threads)
    thread.join();
}

TEST(HttpServer, TakesARequestByteByByte) {
  const auto server = serve(echo);
  RawClient client(server->address());
  for (const char c : std::string("\r\nPOST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "3;a=\"b\"\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n"))
    client.send({&c, 1});
  EXPECT_EQ(body_of(client.answer()), "POST /a? 13 abc0123456789");
  for (const char c :
       std::string("POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
    client.send({&c, 1});
  EXPECT_EQ(body_of(client.answer()), "POST /b? 0 ");
}

TEST(HttpServer, HeadGetsTheLengthWithoutTheBody) {
  const auto server = serve([](const Shared& exchange) {
    if (exchange->request().path == "/stream") {
      exchange->start_stream(200, "text/plain", {});
      EXPECT_TRUE(exchange->write("dropped"));
      return exchange->end();
    }
    exchange->respond({200, "text/plain", "12345"});
  });
  RawClient client(server->address());
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.answer(true).find("Content-Length: 5\r\n"), std::string::npos);
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(status_of(client.answer(true)), 200);
  client.send(kGet);  // no byte of a body is in between
  EXPECT_EQ(body_of(client.answer()), "12345");
}

TEST(HttpServer, AnswersWithoutABodyHaveNoLength) {
  const auto server =
      serve([](const Shared& exchange) { exchange->respond({204, "text/plain", "ignored"}); });
  RawClient client(server->address());
  client.send(kGet);
  const std::string answer = client.answer(true);
  EXPECT_EQ(status_of(answer), 204);
  EXPECT_EQ(answer.find("Content-"), std::string::npos);
  client.send(kGet);
  EXPECT_EQ(client.answer(true).rfind("HTTP/1.1 204 ", 0), 0U);
}

TEST(HttpServer, Http10ClosesUnlessAskedAndStreamsToTheEnd) {
  const auto server = serve([](const Shared& exchange) {
    if (exchange->request().path != "/stream") return echo(exchange);
    exchange->start_stream(200, "text/plain", {});
    exchange->write("all of it");
    exchange->end();
  });
  bool closed = false;
  RawClient once(server->address());
  once.send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_EQ(body_of(once.rest(&closed)), "GET /a? 0 ");
  EXPECT_TRUE(closed);
  RawClient kept(server->address());
  kept.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(body_of(kept.answer()), "GET /a? 0 ");
  kept.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string answer = kept.rest(&closed);
  EXPECT_EQ(body_of(answer), "all of it");
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(closed);
}

TEST(HttpServer, ClosesWhenAsked) {
  const auto server = serve(echo);
  RawClient client(server->address());
  client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n");
  bool closed = false;
  EXPECT_NE(client.rest(&closed).find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(closed);
}

TEST(HttpServer, ContinuesWhoWaitsForIt) {
  Limits limits;
  limits.body_bytes = 100;
  const auto server = serve(echo, limits);
  RawClient client(server->address());
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.answer(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(body_of(client.answer()), "POST /a? 3 abc");
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n");
  EXPECT_EQ(status_of(client.answer()), 413);  // instead of the 100
}

struct Refused {
  const char* name;
  std::string request;
  int status;
};

/// Each is refused, the connection closed, and the handler sees nothing of it, nor of what follows.
TEST(HttpServer, RefusesWhatIsMalformedOrTooMuch) {
  Limits limits;
  limits.header_bytes = 2000;
  limits.header_fields = 10;
  limits.target_bytes = 500;
  limits.body_bytes = 100;
  std::atomic<int> handled = 0;
  const auto server = serve(
      [&](const Shared& exchange) {
        ++handled;
        echo(exchange);
      },
      limits);
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::string host = get + "Host: x\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  std::string many = host;
  for (int i = 0; i < 10; ++i)
    many += "X: y\r\n";
  const std::vector<Refused> cases = {
      {"CL and TE", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE and CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {"two CL", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {"differing CL", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {"list of CL", post + "Content-Length: 3, 3\r\n\r\nabc", 400},
      {"CL with a sign", post + "Content-Length: +3\r\n\r\nabc", 400},
      {"negative CL", post + "Content-Length: -1\r\n\r\n", 400},
      {"hex CL", post + "Content-Length: 0x3\r\n\r\nabc", 400},
      {"empty CL", post + "Content-Length:\r\n\r\n", 400},
      {"large CL", post + "Content-Length: 101\r\n\r\n", 413},
      {"CL beyond 64 bits", post + "Content-Length: 18446744073709551617\r\n\r\n", 413},
      {"two TE", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE list", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"TE identity", post + "Transfer-Encoding: identity\r\n\r\n", 501},
      {"TE in disguise", post + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {"TE with a vertical tab", post + "Transfer-Encoding: \vchunked\r\n\r\n", 400},
      {"TE in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"space before the colon", host + "X : y\r\n\r\n", 400},
      {"tab before the colon", post + "Transfer-Encoding\t: chunked\r\n\r\n", 400},
      {"obs-fold", host + "X: a\r\n b\r\n\r\n", 400},
      {"first header folded", get + " Host: x\r\n\r\n", 400},
      {"bare LF", "GET / HTTP/1.1\nHost: x\n\n", 400},
      {"bare LF in a header", host + "X: a\nY: b\r\n\r\n", 400},
      {"bare CR in a header", host + "X: a\rY: b\r\n\r\n", 400},
      {"NUL in a header", host + std::string("X: a\0b\r\n\r\n", 10), 400},
      {"DEL in a header", host + "X: \x7f\r\n\r\n", 400},
      {"no name", host + ": y\r\n\r\n", 400},
      {"no colon", host + "nonsense\r\n\r\n", 400},
      {"name with a bracket", host + "X(y): z\r\n\r\n", 400},
      {"no Host", get + "\r\n", 400},
      {"two Hosts", host + "host: x\r\n\r\n", 400},
      {"Host with a space", get + "Host: a b\r\n\r\n", 400},
      {"Host with a slash", get + "Host: a/b\r\n\r\n", 400},
      {"bad method", "G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"no method", " / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"two spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"no slash", "GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"authority form", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"bad escape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"cut escape", "GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"escaped NUL", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"escaped CR", "GET /%0d HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"byte beyond ASCII", "GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"no version", "GET /\r\n\r\n", 400},
      {"lower case version", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
      {"HTTP/2", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505},
      {"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},
      {"unmet expectation", post + "Expect: magic\r\nContent-Length: 3\r\n\r\nabc", 417},
      {"long target", "GET /" + std::string(500, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
      {"endless target", "GET /" + std::string(5000, 'a'), 414},
      {"long headers", host + "X: " + std::string(2000, 'a') + "\r\n\r\n", 431},
      {"endless header", host + "X: " + std::string(5000, 'a'), 431},
      {"many headers", many + "\r\n", 431},
      {"chunk size of 17 digits", chunked + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
      {"chunk size beyond the limit", chunked + "65\r\n", 413},
      {"chunks beyond the limit", chunked + "40\r\n" + std::string(64, 'a') + "\r\n40\r\n", 413},
      {"huge chunk", chunked + "ffffffffffffffff\r\nabc", 413},
      {"chunk size with a prefix", chunked + "0x3\r\nabc\r\n0\r\n\r\n", 400},
      {"chunk size with a sign", chunked + "+3\r\nabc\r\n0\r\n\r\n", 400},
      {"chunk without its end", chunked + "3\r\nabcd\r\n0\r\n\r\n", 400},
      {"no chunk size", chunked + "\r\nabc\r\n0\r\n\r\n", 400},
      {"bare LF behind a chunk's size", chunked + "3\nabc\r\n0\r\n\r\n", 400},
      {"bare LF in an extension", chunked + "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n", 400},
      {"endless extension", chunked + "3;a=" + std::string(5000, 'b'), 400},
      {"endless trailer", chunked + "0\r\nX: " + std::string(5000, 'b'), 400},
      {"folded trailer", chunked + "0\r\nX: a\r\n b\r\n\r\n", 400},
  };
  for (const auto& each : cases) {
    RawClient client(server->address());
    client.send(each.request);
    client.send("GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    bool closed = false;
    client.shutdown_send();
    const std::string answer = client.rest(&closed);
    EXPECT_EQ(status_of(answer), each.status) << each.name << ": " << answer;
    EXPECT_TRUE(closed) << each.name;
    EXPECT_EQ(answer.find("\r\nServer: ", 60), std::string::npos) << each.name << ": " << answer;
    EXPECT_NE(answer.find("{\"error\":"), std::string::npos) << each.name;
  }
  EXPECT_EQ(handled, 0);
}

TEST(HttpServer, TakesWhatOnlyLooksOdd) {
  const auto server = serve(echo);
  RawClient client(server->address());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GET http://x:80/a?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a?b 0 "},
      {"GET /a%2Fb%3f HTTP/1.1\r\nHost: [::1]:80\r\nX:\r\nY:  a\t\r\n\r\n", "GET /a/b?? 0 "},
      {"PURGE /a HTTP/1.1\r\nHost:\r\nX: \xff\r\n\r\n", "PURGE /a? 0 "},
      {"POST /a HTTP/1.1\r\nHost: x\r\ncontent-length: 003\r\n\r\nabc", "POST /a? 3 abc"},
      {"POST /a HTTP/1.1\r\nHost: x\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n", "POST /a? 0 "}};
  for (const auto& [request, expected] : cases) {
    client.send(request);
    EXPECT_EQ(body_of(client.answer()), expected);
  }
}

TEST(HttpServer, RefusesALargeBodyThatTheClientGoesOnSending) {
  Limits limits;
  limits.body_bytes = 1000;
  const auto server = serve(echo, limits);
  RawClient client(server->address());
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
  for (int i = 0; i < 4; ++i)
    client.send(std::string(1000000, 'a'));
  EXPECT_EQ(status_of(client.answer()), 413);  // not lost in a reset
}

TEST(HttpServer, EndsSlowHeadsBodiesAndIdleConnections) {
  Limits limits;
  limits.header_timeout = 150ms;
  limits.body_timeout = 150ms;
  limits.keep_alive_timeout = 300ms;
  const auto server = serve(echo, limits);
  bool closed = false;
  RawClient head(server->address());
  for (const char c : std::string("GET / H")) {  // a byte now and then is no excuse
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
  EXPECT_TRUE(eventually([&] { return server->connections() == 0; }));
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
  EXPECT_TRUE(eventually([&] { return server->connections() == 0; }));
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
  EXPECT_EQ(client.rest().find("\r\n0\r\n\r\n"), std::string::npos);  // no end, so not taken for whole
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
        exchange->write(std::string(size_t{32} << 20, 'a'));  // more than the kernel takes
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

TEST(HttpServer, AnswersForWhoDoesNot) {
  const auto server = serve([](const Shared& exchange) {
    if (exchange->request().path == "/throw") throw std::runtime_error("secret");
    if (exchange->request().path != "/stream") return;
    exchange->start_stream(200, "text/plain", {});
    exchange->write("part");
  });
  RawClient client(server->address());
  client.send(kGet);
  EXPECT_EQ(status_of(client.answer()), 500);
  client.send("GET /throw HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = client.answer();
  EXPECT_EQ(status_of(answer), 500);
  EXPECT_EQ(answer.find("secret"), std::string::npos);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  bool closed = false;
  EXPECT_EQ(client.rest(&closed).find("0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(closed);
}

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

TEST(HttpServer, IdsAreTheClientsOrNew) {
  const auto server =
      serve([](const Shared& exchange) { exchange->respond({200, "text/plain", exchange->request().id}); });
  RawClient client(server->address());
  const auto id_for = [&](const std::string& header) {
    client.send("GET / HTTP/1.1\r\nHost: x\r\n" + header + "\r\n");
    return body_of(client.answer());
  };
  EXPECT_EQ(id_for("X-Request-Id: a-B_1.2:3\r\n"), "a-B_1.2:3");
  const std::string made = id_for("");
  EXPECT_EQ(made.size(), 36U);
  EXPECT_NE(id_for(""), made);
  EXPECT_EQ(id_for("x-request-id: a b\r\n").rfind("req-", 0), 0U);
  EXPECT_EQ(id_for("x-request-id: " + std::string(129, 'a') + "\r\n").rfind("req-", 0), 0U);
}

TEST(HttpServer, PostRunsInOrderOnTheConnectionsThread) {
  std::thread::id handler_thread;
  std::vector<int> order;
  std::atomic<int> elsewhere = 0;
  std::thread poster;
  const auto server = serve(
      [&](Shared exchange) {
        handler_thread = std::this_thread::get_id();
        poster = std::thread([&, exchange = std::move(exchange)] {
          for (int i = 0; i < 1000; ++i)
            exchange->post([&, i, exchange] {
              if (std::this_thread::get_id() != handler_thread) ++elsewhere;
              order.push_back(i);
              if (i == 999) echo(exchange);
            });
        });
      },
      {}, 2);
  RawClient client(server->address());
  client.send(kGet);
  EXPECT_EQ(status_of(client.answer()), 200);
  poster.join();
  EXPECT_EQ(elsewhere, 0);
  ASSERT_EQ(order.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
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
  // A server that was killed leaves its socket behind.
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
  EXPECT_NE(message(config).find("no socket"), std::string::npos) << message(config);
}

TEST(HttpServer, WaitsWhenFileDescriptorsRunOut) {
  const auto server = serve(echo);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(before.rlim_cur, before.rlim_max);  // raised at the start
  RawClient client(server->address());          // its socket exists before the limit
  client.send(kGet);
  EXPECT_EQ(status_of(client.answer()), 200);
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
  client.send(kGet);  // who is in goes on
  EXPECT_EQ(status_of(client.answer()), 200);
  pollfd waiting{client_socket, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 150), 0);
  for (const int fd : fillers)
    close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1);  // taken once there is room
  close(client_socket);
}

}  // namespace
}  // namespace fovea::http
