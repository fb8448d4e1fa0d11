// Requests and answers of Anthropic's Messages API.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/anthropic/request.h"
#include "server/anthropic/writer.h"
#include "server/openai/cut_answers_test_support.h"

namespace fovea::anthropic {
namespace {

using Json = nlohmann::json;
using openai::ConversationRequest;

/// The messages that the template gets.
Json messages(const std::string& fields, bool system_anywhere = true) {
  auto request = parse_messages(R"({"max_tokens": 9, )" + fields + "}", {});
  if (!request) return request.error().message;
  return Json::parse(openai::messages_json(openai::place_system_turns(request->turns, system_anywhere)));
}

std::string error_of(const std::string& fields) {
  const auto request = parse_messages("{" + fields + "}", {});
  return request ? "" : request.error().message;
}

const std::string kHi = R"("messages": [{"role": "user", "content": "hi"}])";

TEST(MessagesRequest, BlocksBecomeTurns) {
  const Json all =
      messages(R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "b"}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "look"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "ls", "input": {"p": "/"}},
        {"type": "tool_use", "id": "c2", "name": "pwd", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x y"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": true,
         "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]},
        {"type": "text", "text": "go on"}]}])");
  EXPECT_EQ(all, Json::parse(R"([{"role": "system", "content": "a\nb"}, {"role": "user", "content": "look"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": {"p": "/"}}},
      {"id": "c2", "type": "function", "function": {"name": "pwd", "arguments": {}}}]},
    {"role": "tool", "content": "x y", "tool_call_id": "c1", "name": "ls"},
    {"role": "tool", "content": "no\nway", "tool_call_id": "c2", "name": "pwd"},
    {"role": "user", "content": "go on"}])"));
}

TEST(MessagesRequest, BillingHeadersAreDropped) {
  const std::string bill = "x-anthropic-billing-header: cc_version=2; cch=8f31;";
  EXPECT_EQ(messages(R"("system": [{"type": "text", "text": ")" + bill +
                     R"("}, {"type": "text", "text": "be kind"}], )" + kHi)[0]["content"],
            "be kind");
  EXPECT_EQ(messages(R"("system": ")" + bill + R"(\nbe kind", )" + kHi)[0]["content"], "be kind");
  EXPECT_EQ(messages(R"("system": ")" + bill + R"(", )" + kHi)[0]["role"], "user");
}

/// Every request of a session, with system turns in all places: each prompt begins with the one before it.
TEST(MessagesRequest, PromptsOfASessionContinueEachOther) {
  const Json turns = Json::parse(R"([{"role": "user", "content": "fix it"},
    {"role": "system", "content": "S1"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
    {"role": "system", "content": "S2"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "f"}]},
    {"role": "system", "content": "S3"},
    {"role": "assistant", "content": "done"},
    {"role": "system", "content": "S4"},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": "welcome"}])");
  for (const bool anywhere : {true, false}) {
    const std::vector<size_t> requests = {2, 6, 9};  // turns that each request has
    std::string before;
    for (size_t r = 0; r < requests.size(); ++r) {
      const Json sent(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(requests[r]));
      const std::string bill = R"({"type": "text", "text": "x-anthropic-billing-header: cch=)" +
                               std::to_string(r) + R"("}, {"type": "text", "text": "sys"})";
      const Json all = messages(R"("system": [)" + bill + R"(], "messages": )" + Json(sent).dump(), anywhere);
      ASSERT_TRUE(all.is_array()) << all;
      const std::string text = all.dump();
      const std::string start = before.substr(0, before.empty() ? 0 : before.size() - 1);
      EXPECT_TRUE(text.starts_with(start)) << text << "\ndoes not continue\n" << before;
      before = text;
      for (size_t i = 0; i + 1 < all.size(); ++i)
        if (all[i].contains("tool_calls")) {
          EXPECT_EQ(all[i + 1]["role"], "tool") << text;
        }
      EXPECT_EQ(text.find("S1") != text.npos, true) << text;
    }
  }
}

Json object_of(const std::string& text) {
  return Json::parse(text, nullptr, false);
}

TEST(MessagesRequest, BlocksOfOtherTools) {
  const std::string body = R"({"max_tokens": 3, "messages": [
    {"role": "user", "content": [{"type": "search_result", "source": "s", "title": "t", "citations": {"enabled": true},
      "content": [{"type": "text", "text": "c"}]}]},
    {"role": "assistant", "content": [{"type": "server_tool_use", "id": "w", "name": "web_search", "input": {}},
      {"type": "web_search_tool_result", "tool_use_id": "w", "content": []}, {"type": "text", "text": "found"},
      {"type": "tool_use", "id": "c1", "name": "ToolSearch", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
      "content": [{"type": "tool_reference", "tool_name": "Edit"}]}]}]})";
  const auto request = parse_messages(body, {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->turns[0].text, "s\nt\nc");
  EXPECT_EQ(request->turns[1].text, "found");
  EXPECT_EQ(request->turns[2].text, "Edit");
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"messages[1].content[0]", "messages[1].content[1]"}));
}

TEST(MessagesRequest, ToolsAndChoices) {
  const std::string tools =
      R"("tools": [{"name": "ls", "description": "lists", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}], )";
  const auto request = parse_messages(
      "{" + tools +
          R"("max_tokens": 3, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, )" + kHi +
          "}",
      {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tools.choice, openai::ToolRequest::Choice::required);
  EXPECT_FALSE(request->tools.parallel);
  EXPECT_EQ(request->ignored, std::vector<std::string>{"tools[1]"});
  EXPECT_EQ(object_of(request->chat.tools)[0]["function"]["name"], "ls");
  EXPECT_EQ(object_of(request->chat.tools).size(), 1U);
  EXPECT_EQ(error_of(R"("max_tokens": 3, "tool_choice": {"type": "tool", "name": "cat"}, )" + tools + kHi),
            "tool_choice names \"cat\", which is not one of the tools");
}

TEST(MessagesRequest, UnknownFieldsAreListedAndMistakesRefused) {
  const auto request = parse_messages(
      R"({"max_tokens": 3, "context_management": {}, "metadata": {"user_id": "u"}, "n": 7, )" + kHi + "}",
      {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"context_management", "n"}));
  EXPECT_EQ(error_of(kHi), "max_tokens is missing; it must be an integer of 1 or more");
  EXPECT_NE(error_of(R"("max_tokens": 3, "messages": [])"), "");
  EXPECT_NE(error_of(R"("max_tokens": 3, "messages": [{"role": "tool", "content": "x"}])"), "");
  EXPECT_EQ(
      error_of(
          R"("max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}])"),
      "messages[0].content[0].type is \"image\"; this server takes text only");
  EXPECT_NE(error_of(R"("max_tokens": 3, "thinking": {"type": "on"}, )" + kHi), "");
  EXPECT_TRUE(parse_messages("{" + kHi + "}", {}, true));
}

TEST(MessagesRequest, ThinkingAndForms) {
  const auto request = parse_messages(
      R"({"max_tokens": 3, "thinking": {"type": "enabled", "budget_tokens": 2000}, "output_config": {"effort": "low",
      "format": {"type": "json_schema", "schema": {"type": "object"}}}, "stop_sequences": ["x"], )" +
          kHi + "}",
      {});
  ASSERT_TRUE(request) << request.error().message;
  const Json kwargs = object_of(request->chat.template_kwargs);
  EXPECT_EQ(kwargs["enable_thinking"], true);
  EXPECT_EQ(kwargs["reasoning_effort"], "low");
  EXPECT_EQ(request->common.sampling.constraint->text, R"({"type":"object"})");
  EXPECT_EQ(request->common.sampling.stop, std::vector<std::string>{"x"});
}

std::unique_ptr<openai::AnswerWriter> writer_of_test() {
  openai::GenerationRequest request;
  request.stream = true;
  return make_message_writer({"msg_1", "m"}, request);
}

/// What a client makes of the events, as an answer that is not streamed; checks their order.
Json rebuilt(const std::string& stream) {
  Json message;
  std::vector<std::string> inputs;
  bool open = false;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    at = end + 2;
    const size_t data = event.find("\ndata: ");
    const Json json = Json::parse(event.substr(data + 7));
    const std::string type = json["type"];
    EXPECT_EQ(event.substr(0, data), "event: " + type);
    if (type == "message_start") message = json["message"];
    if (type == "content_block_start") {
      EXPECT_FALSE(open);
      open = true;
      EXPECT_EQ(json["index"], message["content"].size());
      message["content"].push_back(json["content_block"]);
      inputs.emplace_back();
    }
    if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(json["index"], message["content"].size() - 1);
      const Json& delta = json["delta"];
      Json& block = message["content"].back();
      if (delta["type"] == "text_delta")
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      if (delta["type"] == "thinking_delta")
        block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      if (delta["type"] == "input_json_delta") inputs.back() += delta["partial_json"].get<std::string>();
    }
    if (type == "content_block_stop") {
      open = false;
      Json& block = message["content"].back();
      if (block["type"] == "tool_use") block["input"] = Json::parse(inputs.back());
    }
    if (type == "message_delta") {
      message.update(json["delta"]);
      message["usage"] = json["usage"];
    }
  }
  EXPECT_FALSE(open);
  EXPECT_TRUE(stream.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  return message;
}

TEST(MessagesStream, IsTheWholeAnswerHoweverItIsCut) {
  const Json whole = Json::parse(whole_of(*writer_of_test()));
  EXPECT_EQ(whole["content"].dump(),
            R"([{"signature":"","thinking":"hm","type":"thinking"},{"text":"I é look.","type":"text"},)"
            R"({"id":"id","input":{"p":"a\nb"},"name":"ls","type":"tool_use"},)"
            R"({"id":"id","input":{},"name":"pwd","type":"tool_use"},{"text":"after","type":"text"}])");
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["usage"]["input_tokens"], 3);
  EXPECT_EQ(whole["usage"]["cache_read_input_tokens"], 4);
  openai::for_each_cut([&](const std::vector<size_t>& cuts) {
    ASSERT_EQ(rebuilt(stream_of(*writer_of_test(), cuts)), whole) << testing::PrintToString(cuts);
  });
}

TEST(MessagesStream, SaysWhyItEnded) {
  EXPECT_EQ(rebuilt(stream_of(*writer_of_test(), {}, FinishReason::length))["stop_reason"], "max_tokens");
  openai::GenerationRequest request;
  request.sampling.stop = {"END"};
  openai::Choice choice;
  choice.finish = FinishReason::stop;
  choice.stop_reason = "END";
  const auto whole = [&](bool to_end) {
    return Json::parse(
        make_message_writer({"msg_1", "m", to_end}, request)->whole(std::span(&choice, 1), {}));
  };
  EXPECT_EQ(whole(false)["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole(false)["stop_sequence"], "END");
  choice.stop_reason = "";
  EXPECT_EQ(whole(false)["stop_reason"], "end_turn");
  choice.finish = FinishReason::length;
  EXPECT_EQ(whole(true)["stop_reason"], "model_context_window_exceeded");
}

}  // namespace
}  // namespace fovea::anthropic
