// Malformed and hostile requests.
#include <vector>

#include "server/http/server_test_support.h"

namespace fovea::http {
namespace {

using namespace test;
using namespace std::chrono_literals;

struct Refused {
  const char* name;
  std::string request;
  int status;
};

/// Each is refused and the connection closed; the handler sees neither it nor what follows.
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
      {"two keys", host + "Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n", 400},
      {"one key twice", host + "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n\r\n", 400},
      {"two types",
       post + "Content-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n", 400},
      {"two origins", host + "Origin: http://a\r\nOrigin: http://b\r\n\r\n", 400},
      {"two expectations", post + "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
       400},
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

/// Refused at once: no further bytes can make the body valid.
TEST(HttpServer, RefusesABrokenChunkAtOnce) {
  std::atomic<int> handled = 0;
  const auto server = serve([&](const Shared& exchange) {
    ++handled;
    echo(exchange);
  });
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body : {"3\r\nabcX", "3\r\nabc\rX", "3\r\nabc\n", "1\r\na\r\n1\r\nbb", "x\r\n", "-1\r\n",
                           "\r\n", "1\r\na\r\n\r\n", "1\r\na\r\n0x"}) {
    for (const bool together : {true, false}) {
      RawClient client(server->address());
      for (const char c : together ? std::string() : head + body)
        client.send({&c, 1});
      if (together) client.send(head + body);
      EXPECT_EQ(status_of(client.answer()), 400) << body;
    }
  }
  EXPECT_EQ(handled, 0);
}

/// The total size of many unfinished bodies is bounded.
TEST(HttpServer, BoundsAllBodiesThatAreReceived) {
  Limits limits;
  limits.all_bodies_bytes = 1000;
  const auto server = serve(echo, limits);
  const std::string head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 700\r\n\r\n";
  auto first = std::make_unique<RawClient>(server->address());
  first->send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 700\r\n\r\n");
  EXPECT_EQ(status_of(first->answer(true)), 100);
  first->send(std::string(600, 'a'));
  // Its bytes are counted asynchronously: until then another one may be accepted.
  const auto refused = [&] {
    RawClient second(server->address());
    second.send(head + std::string(600, 'b'));
    return status_of(second.answer(false, 200ms)) == 503;
  };
  EXPECT_TRUE(eventually(refused));
  first->send(std::string(100, 'a'));
  EXPECT_EQ(status_of(first->answer()), 200);
  for (int i = 0; i < 5; ++i) {  // finished bodies do not count
    RawClient again(server->address());
    again.send(head + std::string(700, 'c'));
    EXPECT_EQ(status_of(again.answer()), 200);
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
  EXPECT_EQ(status_of(client.answer()), 413);  // not lost to a reset
}

}  // namespace
}  // namespace fovea::http
