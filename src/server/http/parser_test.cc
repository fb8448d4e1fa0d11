#include "server/http/parser.h"

#include <gtest/gtest.h>

#include <string>

namespace fovea::http {
namespace {

/// The refusal's status for a chunked body that arrives as `first`, then the rest; 0 = accepted.
int refused(std::string_view body, size_t first) {
  const Limits limits;
  RequestParser parser(limits);
  EXPECT_FALSE(parser.take_head("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  std::string waiting;
  std::optional<Refusal> refusal;
  for (const std::string_view piece : {body.substr(0, first), body.substr(first)}) {
    waiting += piece;
    if (!waiting.empty() && !refusal) waiting.erase(0, parser.take_body(waiting, refusal));
  }
  return refusal ? refusal->status : 0;
}

TEST(RequestParser, RefusesABrokenChunkInWhateverPiecesItArrives) {
  for (const std::string_view body : {"3\r\nabcX", "3\r\nabc\rX", "3\r\nabc\n", "1\r\na\r\n1\r\nbb", "x\r\n",
                                      "-1\r\n", "\r\n", "1\r\na\r\n\r\n", "1\r\na\r\n0x", "5\r\nabcdeX"})
    for (size_t first = 0; first < body.size(); ++first)
      EXPECT_EQ(refused(body, first), 400) << body << " after " << first << " bytes";
}

TEST(RequestParser, WaitsForASoundChunkInWhateverPiecesItArrives) {
  for (const std::string_view body : {"3\r\nabc", "3\r\nabc\r", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n", "0\r\n",
                                      "0\r", "0;a=b\r\n", "3;a\r\nabc\r\n0\r\n\r\n"})
    for (size_t first = 0; first < body.size(); ++first)
      EXPECT_EQ(refused(body, first), 0) << body << " after " << first << " bytes";
}

}  // namespace
}  // namespace fovea::http
