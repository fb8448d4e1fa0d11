// Requests and answers of Ollama's API.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/ollama/request.h"
#include "server/ollama/writer.h"
#include "server/openai/cut_answers_test_support.h"

namespace fovea::ollama {
namespace {

using Json = nlohmann::json;

std::string error_of(const std::string& fields) {
  const auto request = parse_chat("{" + fields + "}", {});
  return request ? "" : request.error().message;
}

const std::string kHi = R"("messages": [{"role": "user", "content": "hi"}])";

TEST(OllamaRequest, MessagesBecomeTurns) {
  const auto request = parse_chat(R"({"model": "m", "messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": "look"},
      {"role": "assistant", "content": "", "thinking": "hm",
       "tool_calls": [{"function": {"name": "ls", "arguments": {"p": 1}}}]},
      {"role": "tool", "tool_name": "ls", "content": "x"}], "tools": [{"type": "function", "function":
      {"name": "ls", "description": "lists", "parameters": {"type": "object", "properties": {}}}}]})",
                                  {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(Json::parse(openai::messages_json(request->conversation.turns)),
            Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "look"},
      {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
        {"id": "call_0", "type": "function", "function": {"name": "ls", "arguments": {"p": 1}}}]},
      {"role": "tool", "content": "x", "tool_call_id": "call_0", "name": "ls"}])"));
  EXPECT_EQ(Json::parse(request->conversation.chat.tools)[0]["function"]["name"], "ls");
  EXPECT_TRUE(request->conversation.common.stream);
}

TEST(OllamaRequest, OptionsAreThoseOfTheServer) {
  const auto request = parse_chat(
      R"({"stream": false, "think": "low", "format": {"type": "object"}, "keep_alive": "5m", "options": {"num_predict": 9,
      "temperature": 0.5, "top_k": 3, "seed": 4, "stop": ["x"], "repeat_penalty": 1.5, "num_ctx": 4096,
      "mirostat": 2}, )" +
          kHi + "}",
      {});
  ASSERT_TRUE(request) << request.error().message;
  const openai::GenerationRequest& common = request->conversation.common;
  EXPECT_FALSE(common.stream);
  EXPECT_EQ(common.sampling.max_tokens, 9);
  EXPECT_EQ(common.sampling.temperature, 0.5F);
  EXPECT_EQ(common.sampling.top_k, 3);
  EXPECT_EQ(common.sampling.seed, 4U);
  EXPECT_EQ(common.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(common.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(common.sampling.constraint->text, R"({"type":"object"})");
  EXPECT_EQ(Json::parse(request->conversation.chat.template_kwargs)["reasoning_effort"], "low");
  EXPECT_EQ(request->conversation.ignored, std::vector<std::string>{"options.mirostat"});
  const auto endless = parse_chat(R"({"options": {"num_predict": -1}, )" + kHi + "}", {});
  EXPECT_FALSE(endless->conversation.common.sampling.max_tokens);
}

TEST(OllamaRequest, MistakesAreRefused) {
  EXPECT_EQ(error_of(R"("messages": [{"role": "user", "content": "x", "images": ["AA=="]}])"),
            "messages[0].images is not supported: this server takes text only");
  EXPECT_NE(error_of(R"("format": "xml", )" + kHi), "");
  EXPECT_NE(error_of(R"("think": 3, )" + kHi), "");
  EXPECT_NE(error_of(R"("options": [], )" + kHi), "");
  EXPECT_NE(error_of(R"("messages": [{"role": "x"}])"), "");
  EXPECT_FALSE(parse_generate(R"({"prompt": "x", "suffix": "y"})", {}));
  EXPECT_TRUE(parse_chat("{}", {})->only_loads);
  EXPECT_TRUE(parse_generate(R"({"model": "m", "prompt": ""})", {})->only_loads);
  const auto raw = parse_generate(R"({"prompt": "x", "raw": true})", {});
  EXPECT_TRUE(raw->raw && raw->generates);
  EXPECT_TRUE(raw->conversation.common.add_special_tokens);
}

std::unique_ptr<openai::AnswerWriter> writer_of_test(bool generates) {
  return make_ollama_writer({"m", generates}, {});
}

/// What a client makes of the lines, without times.
Json rebuilt(const std::string& stream, bool generates) {
  Json whole;
  std::string content, thinking;
  Json calls = Json::array();
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find('\n', at);
    whole = Json::parse(stream.substr(at, end - at));
    at = end + 1;
    EXPECT_EQ(whole["done"], at == stream.size());
    const Json& said = generates ? whole : whole["message"];
    content += said[generates ? "response" : "content"];
    thinking += said.value("thinking", "");
    for (const Json& call : said.value("tool_calls", Json::array()))
      calls.push_back(call);
  }
  Json& said = generates ? whole : whole["message"];
  said[generates ? "response" : "content"] = content;
  said["thinking"] = thinking;
  said["tool_calls"] = calls;
  return whole;
}

Json without_times(Json answer) {
  answer.erase("created_at");
  answer.erase("total_duration");
  return answer;
}

TEST(OllamaStream, IsTheWholeAnswerHoweverItIsCut) {
  for (const bool generates : {false, true}) {
    const Json whole = without_times(Json::parse(whole_of(*writer_of_test(generates))));
    const Json& said = generates ? whole : whole["message"];
    EXPECT_EQ(said[generates ? "response" : "content"], "I \xC3\xA9 look.after");
    EXPECT_EQ(said["thinking"], "hm");
    EXPECT_EQ(said["tool_calls"].dump(),
              R"([{"function":{"arguments":{"p":"a\nb"},"index":0,"name":"ls"},"id":"id"},)"
              R"({"function":{"arguments":{},"index":1,"name":"pwd"},"id":"id"}])");
    EXPECT_EQ(whole["done_reason"], "stop");
    EXPECT_EQ(whole["prompt_eval_count"], 7);
    openai::for_each_cut([&](const std::vector<size_t>& cuts) {
      ASSERT_EQ(without_times(rebuilt(stream_of(*writer_of_test(generates), cuts), generates)), whole)
          << testing::PrintToString(cuts);
    });
  }
}

TEST(OllamaStream, ArgumentsAreOneLine) {
  EXPECT_EQ(openai::object_text("{\n  \"a b\": \"\\\" \\n\",\n  \"c\": [1, 2]\n}"),
            "{\"a b\":\"\\\" \\n\",\"c\":[1,2]}");
  EXPECT_EQ(openai::object_text("{\"a\": 1"), "{}");
  EXPECT_EQ(openai::object_text("[1]"), "{}");
}

TEST(OllamaModels, AreListed) {
  const ModelFacts facts{"Qwen3ForCausalLM", "bf16", 100, 0, 4096, true, true, false};
  const std::vector<std::string> names = {"a", "b"};
  const Json tags = Json::parse(models_json(names, facts, false));
  EXPECT_EQ(tags["models"].size(), 2U);
  EXPECT_EQ(tags["models"][1]["model"], "b");
  EXPECT_EQ(tags["models"][0]["modified_at"], "1970-01-01T00:00:00Z");
  EXPECT_EQ(Json::parse(models_json(names, facts, true))["models"][0]["context_length"], 4096);
  const Json show = Json::parse(show_json("m", facts));
  EXPECT_EQ(show["model_info"]["general.basename"], "m");
  EXPECT_EQ(show["model_info"]["Qwen3ForCausalLM.context_length"], 4096);
  EXPECT_EQ(show["capabilities"], Json::parse(R"(["completion", "tools"])"));
}

}  // namespace
}  // namespace fovea::ollama
