#include "load/sse_parser.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace fovea::load {
namespace {

using Events = std::vector<std::pair<std::string, std::string>>;

Events read(std::string_view text, size_t size) {
  Events events;
  SseParser parser;
  const auto keep = [&](std::string_view type, std::string_view data) -> Status {
    events.emplace_back(type, data);
    return {};
  };
  while (!text.empty()) {
    const std::string piece(text.substr(0, size));
    text.remove_prefix(piece.size());
    EXPECT_TRUE(parser.feed(piece, keep));
  }
  EXPECT_TRUE(parser.finish(keep));
  return events;
}

void expect_events(std::string_view text, const Events& events) {
  for (size_t size = 1; size <= text.size(); ++size)
    ASSERT_EQ(read(text, size), events) << "pieces of " << size;
}

TEST(SseParser, LinesEndInThreeWays) {
  const Events events = {{"", "a"}, {"", "b"}};
  expect_events("data: a\n\ndata: b\n\n", events);
  expect_events("data: a\r\n\r\ndata: b\r\n\r\n", events);
  expect_events("data: a\r\rdata: b\r\r", events);
  expect_events("data: a\r\n\ndata: b\n\r\n", events);
}

TEST(SseParser, CommentsAndUnknownFieldsAreSkipped) {
  expect_events(": ping\n\n:\n\nid: 7\nretry: 5\nfoo\ndata: a\nfoo: bar\n\n: ping\n\n", {{"", "a"}});
}

TEST(SseParser, DataOfManyLinesAndTypes) {
  expect_events("event: error\ndata: a\ndata\ndata:  b\n\nevent: x\n\ndata:c\n\n",
                {{"error", "a\n\n b"}, {"", "c"}});
}

TEST(SseParser, ByteOrderMarkOnlyAtTheStart) {
  expect_events(
      "\xEF\xBB\xBF"
      "data: a\n\n\xEF\xBB\xBF"
      "data: b\n\n",
      {{"", "a"}});
}

TEST(SseParser, TheLastEventNeedsNoEmptyLine) {
  expect_events("data: a\n\ndata: [DONE]", {{"", "a"}, {"", "[DONE]"}});
  expect_events("data: [DONE]\r\n", {{"", "[DONE]"}});
}

TEST(SseParser, BoundsAnEvent) {
  SseParser parser;
  const auto ignore = [](std::string_view, std::string_view) -> Status { return {}; };
  const std::string megabyte = "data: " + std::string(1 << 20, 'a') + "\n";
  Status status;
  int fed = 0;
  for (; status && fed < 100; ++fed)
    status = parser.feed(megabyte, ignore);
  EXPECT_FALSE(status);
  EXPECT_EQ(fed, 16);
}

TEST(SseParser, AnErrorOfTheReaderEndsTheFeed) {
  SseParser parser;
  int calls = 0;
  const Status status =
      parser.feed("data: a\n\ndata: b\n\n", [&](std::string_view, std::string_view) -> Status {
        ++calls;
        return io_error("enough");
      });
  EXPECT_EQ(status.error().message, "enough");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace fovea::load
