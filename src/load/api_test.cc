#include "load/api.h"

#include <gtest/gtest.h>

#include "fovea/result.h"
#include "load/stream_receiver.h"
#include "load/target.h"

namespace fovea::load {
namespace {

TEST(Api, BodiesOfRequests) {
  RequestOptions options;
  options.model = "a \"b\"";
  Prompt prompt;
  prompt.text = "hi\n\xff";
  prompt.output_tokens = 7;
  EXPECT_EQ(
      request_body(options, prompt),
      "{\"model\":\"a \\\"b\\\"\",\"prompt\":\"hi\\n\xEF\xBF\xBD\",\"max_tokens\":7,\"temperature\":0.0,"
      "\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
  prompt.ids = {3, 0, 12};
  options.ignore_eos = true;
  options.extra_body = *parse_extra_body("{\"top_p\": 0.5}");
  EXPECT_EQ(
      request_body(options, prompt),
      "{\"model\":\"a \\\"b\\\"\",\"prompt\":[3,0,12],\"max_tokens\":7,\"temperature\":0.0,\"stream\":true,"
      "\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true,\"top_p\":0.5}");
  options.backend = Backend::openai_chat;
  EXPECT_NE(request_body(options, prompt).find("\"messages\":[{\"role\":\"user\",\"content\":\"hi"),
            std::string::npos);
}

TEST(Api, ExtraBodyIsAnObjectWithoutOurFields) {
  EXPECT_EQ(*parse_extra_body(""), "");
  EXPECT_EQ(*parse_extra_body(" {} "), "");
  EXPECT_EQ(*parse_extra_body("{\"a\":[1]}"), ",\"a\":[1]");
  for (const char* bad : {"[]", "{", "{\"a\":1}}", "{\"stream\":false}", "1"})
    EXPECT_FALSE(parse_extra_body(bad)) << bad;
}

bool has_token(std::string_view data) {
  const auto event = parse_stream_event("", data);
  EXPECT_TRUE(event) << data;
  return event && event->has_token;
}

TEST(Api, WhichEventsHaveTokens) {
  EXPECT_TRUE(has_token(R"({"choices":[{"text":"a","finish_reason":null}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"text":"a","finish_reason":"stop"}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"text":"","finish_reason":null}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[{"text":"","finish_reason":"length"}]})"));
  EXPECT_FALSE(
      has_token(R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"delta":{"role":"assistant","content":"x"}}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"delta":{"content":""},"finish_reason":null}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[{"delta":{"content":""},"finish_reason":"stop"}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}})"));
  EXPECT_TRUE(has_token(R"({"choices":[{"text":"","token_ids":[5],"finish_reason":"length"}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[{"text":"","token_ids":[],"finish_reason":"length"}]})"));
  EXPECT_FALSE(has_token(R"({"choices":[3,null,{"text":5},{"delta":[]}]})"));
}

TEST(Api, UsageOfEvents) {
  const auto event =
      parse_stream_event("", R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}})");
  EXPECT_EQ(event->prompt_tokens, 3);
  EXPECT_EQ(event->completion_tokens, 4);
  for (const char* odd : {"-1", "1.5", "\"3\"", "18446744073709551615", "null", "99999999999999"})
    EXPECT_FALSE(
        parse_stream_event("", std::string(R"({"usage":{"prompt_tokens":)") + odd + "}}")->prompt_tokens)
        << odd;
}

TEST(Api, ErrorsOfStreams) {
  const auto message = [](std::string_view type, std::string_view data) {
    const auto event = parse_stream_event(type, data);
    return event ? "" : event.error().message;
  };
  EXPECT_EQ(message("", R"({"error":{"message":"out of\nluck","code":500}})"),
            "error in the stream: out of luck");
  EXPECT_EQ(message("", R"({"error":"gone"})"), "error in the stream: gone");
  EXPECT_EQ(message("", R"({"object":"error","message":"old"})"), "error in the stream: old");
  EXPECT_EQ(message("error", R"({"detail":"x"})"), "error in the stream: x");
  EXPECT_NE(message("", "not json").find("not a JSON object: not json"), std::string::npos);
  EXPECT_NE(message("", "[1]"), "");
  EXPECT_NE(message("", std::string(100'000, '[')), "");
  EXPECT_EQ(message("", R"({"error":null,"choices":[]})"), "");
}

TEST(Api, ModelsAndTokens) {
  EXPECT_EQ(*parse_models(R"({"data":[{"id":"m"},{"id":3},{"id":"n"}]})"),
            (std::vector<std::string>{"m", "n"}));
  for (const char* bad : {"", "{}", "[]", R"({"data":[]})", R"({"data":{}})", "<html>"})
    EXPECT_FALSE(parse_models(bad)) << bad;
  EXPECT_EQ(*parse_tokens(R"({"tokens":[1,2147483647],"count":2})"), (std::vector<int32_t>{1, 2147483647}));
  for (const char* bad :
       {"", "{}", R"({"tokens":[-1]})", R"({"tokens":[2147483648]})", R"({"tokens":["a"]})"})
    EXPECT_FALSE(parse_tokens(bad)) << bad;
}

TEST(Api, MessagesOfErrorStatuses) {
  EXPECT_EQ(error_message(400, R"({"error":{"message":"bad prompt"}})"), "HTTP status 400: bad prompt");
  EXPECT_EQ(error_message(502, "<html>\r\nBad Gateway"), "HTTP status 502: <html>  Bad Gateway");
  EXPECT_EQ(error_message(503, ""), "HTTP status 503");
}

Outcome receive(std::string_view body, int status = 200,
                const char* type = "text/event-stream; charset=utf-8") {
  Outcome outcome;
  StreamReceiver receiver(outcome, true);
  receiver.on_start(10);
  ResponseHead head;
  head.status = status;
  head.headers = {{"content-type", type}};
  if (const Status good = receiver.on_head(head, 10.1); !good) {
    receiver.on_failure(good.error().message, 10.1);
    return outcome;
  }
  double now = 11;
  while (!body.empty()) {  // one line per second
    const size_t end = std::min(body.find('\n'), body.size() - 1) + 1;
    if (const Status good = receiver.on_body(body.substr(0, end), now); !good) {
      receiver.on_failure(good.error().message, now);
      return outcome;
    }
    body.remove_prefix(end);
    now += 0.5;
  }
  receiver.on_end(now);
  return outcome;
}

TEST(StreamReceiver, TimesOfTokens) {
  const Outcome outcome = receive(
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"  // ends at 11.5
      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"                        // 12.5
      "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"                        // 13.5
      "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n"
      "data: [DONE]\n\n");
  EXPECT_EQ(outcome.ending, Ending::success) << outcome.error;
  EXPECT_DOUBLE_EQ(outcome.ttft, 2.5);
  EXPECT_DOUBLE_EQ(outcome.latency, 3.5);
  EXPECT_EQ(outcome.itl, std::vector<double>{1});
  EXPECT_EQ(outcome.prompt_tokens, 9);
  EXPECT_EQ(outcome.output_tokens, 3);
  EXPECT_EQ(outcome.text, "ab");
}

TEST(StreamReceiver, CountsEventsWithoutUsage) {
  const Outcome outcome = receive(
      "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: [DONE]");
  EXPECT_EQ(outcome.ending, Ending::success) << outcome.error;
  EXPECT_EQ(outcome.output_tokens, 2);
}

TEST(StreamReceiver, Failures) {
  const auto error = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.ending, Ending::failure);
    return outcome.error;
  };
  EXPECT_EQ(error(receive("data: {\"choices\":[{\"text\":\"a\"}]}\n\n")),
            "the stream ended before the answer did");
  EXPECT_EQ(error(receive("data: [DONE]\n\n")), "the answer has no token");
  EXPECT_EQ(
      error(receive("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"error\":{\"message\":\"oom\"}}\n\n")),
      "error in the stream: oom");
  EXPECT_EQ(error(receive("{\"error\":{\"message\":\"busy\"}}", 503, "application/json")),
            "HTTP status 503: busy");
  EXPECT_NE(error(receive("{}", 200, "application/json")).find("not a stream of events"), std::string::npos);
}

TEST(Target, Urls) {
  const auto target = parse_target("http://example.org:81/api/v1/");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->authority(), "example.org:81");
  EXPECT_EQ(target->path("/v1/models"), "/api/v1/models");
  EXPECT_EQ(target->path("/completions"), "/api/v1/completions");
  EXPECT_EQ(target->path("/tokenize"), "/api/tokenize");
  EXPECT_EQ(parse_target("http://h")->port, 80);
  EXPECT_EQ(parse_target("http://[::1]:8000")->host, "::1");
  EXPECT_EQ(parse_target("http://[::1]")->authority(), "[::1]:80");
  EXPECT_EQ(parse_target("unix:/run/a.sock")->unix_path, "/run/a.sock");
  EXPECT_EQ(parse_target("unix:///run/a.sock")->unix_path, "/run/a.sock");
  EXPECT_EQ(parse_target("https://h").error().code, ErrorCode::unsupported);
  for (const char* bad : {"", "h:80", "http://", "http://:80", "http://h:0", "http://h:65536", "http://h:8a",
                          "http://h:", "http://h/?q", "http://u:p@h", "http://[::1", "http://[::1]8",
                          "unix:a", "ftp://h", "http://h/\r\nX: y", "http://a b"})
    EXPECT_FALSE(parse_target(bad)) << bad;
  EXPECT_FALSE(parse_target("unix:/" + std::string(200, 'a')));
}

}  // namespace
}  // namespace fovea::load
