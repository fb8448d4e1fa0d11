#include "load/response_parser.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fovea::load {
namespace {

struct Seen final : ResponseParser::Sink {
  Status on_head(const ResponseHead& seen) override {
    head = seen;
    ++heads;
    return {};
  }
  Status on_body(std::string_view bytes) override {
    body += bytes;
    return {};
  }
  ResponseHead head;
  int heads = 0;
  std::string body;
};

struct Read {
  Seen seen;
  bool done = false;
  std::string error;
};

/// Feeds the text in pieces of `size` bytes, then the server's close if `closes`.
Read read(std::string_view text, size_t size, bool closes) {
  Read result;
  ResponseParser parser;
  while (!text.empty()) {
    const std::string piece(text.substr(0, size));  // a copy, so that a dangling view is detected
    text.remove_prefix(piece.size());
    if (const Status status = parser.feed(piece, result.seen); !status) {
      result.error = status.error().message;
      return result;
    }
  }
  if (closes)
    if (const Status status = parser.finish(); !status) result.error = status.error().message;
  result.done = parser.done();
  return result;
}

void expect_body(std::string_view text, const std::string& body, bool closes = false) {
  for (size_t size = 1; size <= text.size(); ++size) {
    const Read result = read(text, size, closes);
    ASSERT_EQ(result.error, "") << "pieces of " << size;
    ASSERT_TRUE(result.done) << "pieces of " << size;
    ASSERT_EQ(result.seen.body, body) << "pieces of " << size;
    ASSERT_EQ(result.seen.heads, 1);
  }
}

void expect_error(std::string_view text, const std::string& part, bool closes = false) {
  for (const size_t size : {size_t{1}, size_t{3}, text.size()}) {
    const Read result = read(text, size, closes);
    EXPECT_NE(result.error.find(part), std::string::npos) << result.error << "\nof: " << text.substr(0, 200);
    EXPECT_EQ(result.error.find('\n'), std::string::npos);
    EXPECT_LT(result.error.size(), 300u);
  }
}

TEST(ResponseParser, SizedBody) {
  expect_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello");
  expect_body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "");
  expect_body("HTTP/1.1 204 No Content\r\n\r\n", "");
  expect_body("HTTP/1.1 404\r\ncontent-length:2\r\nCONTENT-LENGTH: 2 \r\n\r\nno", "no");
}

TEST(ResponseParser, ChunkedBodyWithExtensionsAndTrailers) {
  expect_body(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n00B\r\n, the "
      "world\r\n0\r\nX-Sum: 1\r\n\r\n",
      "hello, the world");
  expect_body("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2 \nab\n0\n\n", "ab");  // bare line feeds
}

TEST(ResponseParser, BodyUntilTheConnectionCloses) {
  expect_body("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it", "all of it", true);
  EXPECT_FALSE(read("HTTP/1.0 200 OK\r\n\r\nall", 100, false).done);
}

TEST(ResponseParser, SkipsInterimAnswers) {
  expect_body(
      "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 "
      "OK\r\nContent-Length: 1\r\n\r\nx",
      "x");
}

TEST(ResponseParser, HeadersAreFoundByLowerCaseName) {
  const Read result =
      read("HTTP/1.1 429 Too Many\r\nRetry-After: \t3 \r\nX: \r\nContent-Length: 0\r\n\r\n", 4, false);
  EXPECT_EQ(result.seen.head.status, 429);
  EXPECT_EQ(result.seen.head.header("retry-after"), "3");
  EXPECT_EQ(result.seen.head.header("x"), "");
  EXPECT_EQ(result.seen.head.header("y"), "");
}

TEST(ResponseParser, RefusesWhatIsNotHttp) {
  expect_error("<html>hello there</html>\r\n", "it begins with");
  expect_error("HTTP/2.0 200 OK\r\n", "it begins with");
  expect_error("HTTP/1.1 2x0 OK\r\n", "its status");
  expect_error("HTTP/1.1 099 OK\r\n", "its status");
  expect_error("HTTP/1.1 101 Switching\r\n\r\n", "another protocol");
  expect_error("HTTP/1.1 200 OK\r\nno colon\r\n", "a header is");
  expect_error("HTTP/1.1 200 OK\r\nA: b\r\n folded: c\r\n", "a header is");
  expect_error("HTTP/1.1 200 OK\r\n: b\r\n", "a header is");
}

TEST(ResponseParser, RefusesLengthsThatCanBeReadInTwoWays) {
  for (const char* length : {"-1", "+1", "0x1", "1 1", "", "18446744073709551616"})
    expect_error(std::string("HTTP/1.1 200 OK\r\nContent-Length: ") + length + "\r\n\r\n", "Content-Length");
  expect_error("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "Content-Length");
  expect_error("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both");
  expect_error("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "Transfer-Encoding");
  expect_error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
               "Transfer-Encoding");
}

TEST(ResponseParser, RefusesBadChunks) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* size : {"", "g", "-1", "0x5", "10000000000000000", ";5"})
    expect_error(head + size + "\r\n", "a chunk's size");
  expect_error(head + "3\r\nabcd\r\n", "longer than its size");
  expect_error(head + "0\r\n\r\nmore", "bytes follow");
}

TEST(ResponseParser, BoundsHeadsAndChunkLines) {
  const std::string filler(ResponseParser::kMaxHead, 'a');
  expect_error("HTTP/1.1 200 OK\r\nA: " + filler, "65536 bytes");
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20'000; ++i)
    many += "A:b\r\n";
  EXPECT_NE(read(many, 1000, false).error.find("65536 bytes"), std::string::npos);
  expect_error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + filler, "65536 bytes");
}

TEST(ResponseParser, ALargeHeadIsTakenHoweverItIsCut) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: " + std::string(60'000, 'a') + "\r\n\r\n";
  for (const size_t size : {size_t{1}, size_t{100}, text.size()})
    EXPECT_TRUE(read(text, size, false).done) << size;
}

TEST(ResponseParser, ChunkLinesAreBoundedEachNotTogether) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 30'000; ++i)
    text += "1\r\nx\r\n";
  const Read result = read(text + "0\r\n\r\n", 4096, false);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.seen.body.size(), 30'000u);
}

TEST(ResponseParser, SaysWhenTheServerCloses) {
  expect_error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "in the middle", true);
  expect_error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "in the middle", true);
  expect_error("HTTP/1.1 2", "in the middle", true);
  ResponseParser parser;
  EXPECT_NE(parser.finish().error().message.find("without an answer"), std::string::npos);
}

}  // namespace
}  // namespace fovea::load
