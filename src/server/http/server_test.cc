#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

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
  EXPECT_EQ(server->connections().open, 1);
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
  client.send(kGet);  // the connection stays open
  EXPECT_TRUE(client.read_until("data: 1\n\n\r\n"));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  std::vector<std::thread> threads;
  const auto server = serve([&](Shared exchange) {
    threads.emplace_back([exchange = std::move(exchange)]() mutable {
      // Without ordering, the first answer would be sent last.
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
  client.send(kGet);  // no body bytes in between
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

TEST(HttpServer, SendsContinueToClientsThatWaitForIt) {
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

TEST(HttpServer, AnswersRequestsThatTheHandlerDropped) {
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

}  // namespace
}  // namespace fovea::http
