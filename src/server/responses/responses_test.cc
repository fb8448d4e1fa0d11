// Requests and answers of OpenAI's Responses API.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/cut_answers_test_support.h"
#include "server/responses/request.h"
#include "server/responses/writer.h"

namespace fovea::responses {
namespace {

using Json = nlohmann::json;

Json messages(const std::string& fields, bool system_anywhere = true) {
  const auto request = parse_responses("{" + fields + "}", {});
  if (!request) return request.error().message;
  return Json::parse(
      openai::messages_json(openai::place_system_turns(request->conversation.turns, system_anywhere)));
}

std::string param_of(const std::string& fields) {
  const auto request = parse_responses("{" + fields + "}", {});
  return request ? "" : request.error().param;
}

TEST(ResponsesRequest, ItemsBecomeTurns) {
  const std::string input = R"("instructions": "a", "input": [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
    {"role": "user", "content": "look"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"p\": 1}"},
    {"type": "function_call", "call_id": "c2", "name": "pwd", "arguments": ""},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "y"}]},
    {"role": "developer", "content": "c"},
    {"role": "user", "content": "go on"}])";
  const Json start =
      Json::parse(R"([{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "look"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": {"p": 1}}},
      {"id": "c2", "type": "function", "function": {"name": "pwd", "arguments": {}}}]},
    {"role": "tool", "content": "x", "tool_call_id": "c1", "name": "ls"}])");
  const auto with = [&](const char* rest) {
    Json all = start;
    for (const Json& each : Json::parse(rest))
      all.push_back(each);
    return all;
  };
  EXPECT_EQ(messages(input), with(R"([{"role": "tool", "content": "y", "tool_call_id": "c2", "name": "pwd"},
      {"role": "system", "content": "c"}, {"role": "user", "content": "go on"}])"));
  EXPECT_EQ(messages(input, false),
            with(R"([{"role": "tool", "content": "y\n\nc", "tool_call_id": "c2", "name": "pwd"},
      {"role": "user", "content": "go on"}])"));
}

TEST(ResponsesRequest, WhatNeedsStoredAnswersIsRefusedByName) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    EXPECT_EQ(param_of(R"("input": "x", ")" + std::string(name) + R"(": "y")"), name);
  EXPECT_EQ(param_of(R"("input": "x", "background": true)"), "background");
  EXPECT_EQ(param_of(R"("input": "x", "background": false, "store": true, "previous_response_id": null)"),
            "");
  EXPECT_EQ(param_of(R"("input": [{"type": "item_reference", "id": "rs_1"}])"), "input[0].type");
  EXPECT_EQ(param_of(R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])"),
            "input[0].content[0].type");
  EXPECT_EQ(param_of(R"("input": [{"type": "function_call", "name": "f", "arguments": "[1]"}])"),
            "input[0].arguments");
  EXPECT_EQ(param_of(R"("input": [])"), "input");
  EXPECT_EQ(param_of(R"("input": "x", "temperature": 3)"), "temperature");
  std::string deep = "{}";
  for (int i = 0; i < 97; ++i)
    deep = "{\\\"a\\\": " + deep + "}";
  EXPECT_EQ(param_of(R"("input": [{"type": "function_call", "name": "f", "arguments": ")" + deep + "\"}]"),
            "input[0].arguments");
}

TEST(ResponsesRequest, ToolsFormsAndEffort) {
  const auto request = parse_responses(
      R"({"input": "x", "tools": [{"type": "function", "name": "a", "parameters": {"type": "object"}, "strict": true},
      {"type": "custom", "name": "b"}, {"type": "function", "name": "c"}],
      "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "c"}]},
      "reasoning": {"effort": "high"}, "client_metadata": {}})",
      {});
  ASSERT_TRUE(request) << request.error().message;
  const openai::ConversationRequest& chat = request->conversation;
  EXPECT_EQ(chat.ignored, (std::vector<std::string>{"tools[1]", "client_metadata"}));
  EXPECT_EQ(chat.tools.choice, openai::ToolRequest::Choice::required);
  const Json tools = Json::parse(chat.chat.tools);
  ASSERT_EQ(tools.size(), 1U);
  EXPECT_EQ(tools[0]["function"]["name"], "c");
  EXPECT_EQ(Json::parse(chat.chat.template_kwargs)["reasoning_effort"], "high");
  EXPECT_EQ(Json::parse(request->echo.tools).size(), 3U);
  // A form of text beside calls that are asked for is no error: such an answer has no text.
  EXPECT_TRUE(parse_responses(R"({"input": "x", "tools": [{"type": "function", "name": "a"}],
      "tool_choice": "required", "text": {"format": {"type": "json_object"}}})",
                              {}));
  const auto form = parse_responses(
      R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
      "schema": {"type": "object"}}}})",
      {});
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_TRUE(form->conversation.common.sampling.constraint->strict);
  EXPECT_EQ(param_of(R"("input": "x", "text": {"format": {"type": "xml"}})"), "text.format.type");
}

std::unique_ptr<openai::AnswerWriter> writer_of_test() {
  openai::GenerationRequest request;
  request.stream = true;
  return make_responses_writer({"1", "m", 5}, {}, request);
}

/// The response of the last event; checks that the others say the same.
Json rebuilt(const std::string& stream) {
  Json items = Json::array(), last;
  int next = 0;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at), data = stream.find("\ndata: ", at);
    last = Json::parse(stream.substr(data + 7, end - data - 7));
    const std::string type = last["type"];
    EXPECT_EQ(stream.substr(at, data - at), "event: " + type);
    EXPECT_EQ(last["sequence_number"], next++);
    at = end + 2;
    if (type == "response.output_item.added") {
      EXPECT_EQ(last["output_index"], items.size());
      items.push_back(last["item"]);
    }
    if (type == "response.content_part.added") items.back()["content"].push_back(last["part"]);
    if (type.ends_with(".delta")) {
      EXPECT_EQ(last["output_index"], items.size() - 1);
      EXPECT_EQ(last["item_id"], items.back()["id"]);
      const bool call = items.back()["type"] == "function_call";
      Json& text = call ? items.back()["arguments"] : items.back()["content"][0]["text"];
      text = text.get<std::string>() + last["delta"].get<std::string>();
    }
    if (type == "response.output_item.done") {
      items.back()["status"] = last["item"]["status"];
      EXPECT_EQ(last["item"], items.back());
    }
  }
  EXPECT_EQ(last["response"]["output"], items);
  return last["response"];
}

TEST(ResponsesStream, IsTheWholeAnswerHoweverItIsCut) {
  const Json whole = Json::parse(whole_of(*writer_of_test()));
  std::string summary;
  for (const Json& item : whole["output"])
    summary +=
        item["type"].get<std::string>() + "=" +
        (item.contains("arguments") ? item["arguments"] : item["content"][0]["text"]).get<std::string>() +
        ";";
  EXPECT_EQ(summary,
            "reasoning=hm;message=I \xC3\xA9 look.;function_call={\"p\": \"a\\nb\"};function_call={};"
            "message=after;");
  EXPECT_EQ(whole["usage"]["input_tokens_details"]["cached_tokens"], 4);
  openai::for_each_cut([&](const std::vector<size_t>& cuts) {
    ASSERT_EQ(rebuilt(stream_of(*writer_of_test(), cuts)), whole) << testing::PrintToString(cuts);
  });
}

TEST(ResponsesStream, ACutAnswerIsIncomplete) {
  const Json cut = Json::parse(whole_of(*writer_of_test(), FinishReason::length));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["output"].back()["status"], "incomplete");
  EXPECT_EQ(cut["output"][0]["status"], "completed");
  EXPECT_EQ(rebuilt(stream_of(*writer_of_test(), {}, FinishReason::length)), cut);
}

}  // namespace
}  // namespace fovea::responses
