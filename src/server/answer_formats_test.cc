#include "server/answer_formats.h"

#include <gtest/gtest.h>

#include "engine/chat_prompt.h"

namespace fovea::server {
namespace {

using openai::ToolFormat;

AnswerFormats formats_of(const std::string& name, const std::string& tools = "auto",
                         const std::string& reasoning = "auto") {
  EngineConfig config;
  config.chat_template = std::string(FOVEA_SOURCE_DIR) + "/tests/text/templates/" + name + ".jinja";
  const auto prompt = ChatPrompt::load("", nullptr, config);
  EXPECT_TRUE(prompt.ok()) << (prompt ? "" : prompt.error().message);
  const auto found =
      find_answer_formats([&](const ChatRequest& chat) { return prompt->render(chat); }, tools, reasoning);
  EXPECT_TRUE(found.ok()) << (found ? "" : found.error().message);
  return found ? *found : AnswerFormats();
}

TEST(AnswerFormats, AreThoseThatTheTemplateShows) {
  struct Expected {
    const char* name;
    ToolFormat tools;
    const char* think_end;
  };
  const Expected kExpected[] = {
      {"qwen25", ToolFormat::hermes, ""},
      {"qwen3", ToolFormat::hermes, "</think>"},
      {"qwen3_coder_xml", ToolFormat::qwen3_coder, ""},
      {"llama31_tools", ToolFormat::llama3_json, ""},
      {"magistral_think", ToolFormat::mistral, "[/THINK]"},
      {"glm_xml", ToolFormat::glm4, "</think>"},
      {"harmony", ToolFormat::harmony, ""},
      {"pythonic_calls", ToolFormat::pythonic, ""},
      {"zephyr", ToolFormat::none, ""},
  };
  for (const Expected& expected : kExpected) {
    const AnswerFormats found = formats_of(expected.name);
    EXPECT_EQ(to_string(found.tools), to_string(expected.tools)) << expected.name;
    EXPECT_EQ(found.think_end, expected.think_end) << expected.name;
  }
}

TEST(AnswerFormats, AreRecognisedByTheirTags) {
  using openai::detect_tool_format;
  EXPECT_EQ(detect_tool_format("[TOOL_CALLS][{\"name\": \"probe_tool\"}]"), ToolFormat::mistral);
  EXPECT_EQ(detect_tool_format("<|tool_call_begin|>functions.probe_tool:0"), ToolFormat::kimi_k2);
  EXPECT_EQ(detect_tool_format("<minimax:tool_call>"), ToolFormat::minimax);
  EXPECT_EQ(detect_tool_format("<｜tool▁call▁begin｜>function<｜tool▁sep｜>probe_tool"),
            ToolFormat::deepseek_v3);
  EXPECT_EQ(detect_tool_format("<｜tool▁call▁begin｜>probe_tool<｜tool▁sep｜>"), ToolFormat::deepseek_v31);
  EXPECT_EQ(detect_tool_format("<｜DSML｜function_calls>"), ToolFormat::deepseek_v32);
  EXPECT_EQ(detect_tool_format("<|tool_call>call:probe_tool{}"), ToolFormat::gemma);
  EXPECT_EQ(detect_tool_format("probe_tool"), ToolFormat::none);
}

TEST(AnswerFormats, CanBeNamed) {
  EXPECT_EQ(formats_of("zephyr", "hermes").tools, ToolFormat::hermes);
  EXPECT_EQ(formats_of("qwen3", "none", "none").think_end, "");
  EXPECT_EQ(formats_of("zephyr", "auto", "deepseek_r1").think_end, "</think>");
  EXPECT_EQ(formats_of("zephyr", "auto", "gpt_oss").tools, ToolFormat::harmony);
  const auto unknown = find_answer_formats(nullptr, "hermez", "auto");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("hermes"), std::string::npos);
  EXPECT_FALSE(find_answer_formats(nullptr, "auto", "qwen").ok());
}

TEST(AnswerFormats, FollowThePromptAndTheToolChoice) {
  AnswerFormats formats;
  formats.tools = ToolFormat::hermes;
  formats.think_begin = "<think>";
  formats.think_end = "</think>";
  openai::ToolRequest tools;
  openai::GenerationRequest request;
  request.sampling.constraint = std::make_shared<const OutputConstraint>();
  apply_formats(formats, tools, "assistant\n<think>\n", request);
  ASSERT_TRUE(request.format);
  EXPECT_TRUE(request.format->thinking);
  EXPECT_EQ(request.format->tools, ToolFormat::none);
  EXPECT_EQ(request.sampling.constraint->after, "</think>");
  // The template has turned thinking off.
  request.sampling.constraint = std::make_shared<const OutputConstraint>();
  apply_formats(formats, tools, "assistant\n<think>\n\n</think>\n\n", request);
  EXPECT_FALSE(request.format->thinking);
  EXPECT_EQ(request.sampling.constraint->after, "");
  tools.choice = openai::ToolRequest::Choice::named;
  tools.named = "f";
  tools.arguments_schema = "{}";
  apply_formats(formats, tools, "assistant\n", request);
  EXPECT_EQ(request.format->tools, ToolFormat::json_named);
  EXPECT_EQ(request.sampling.constraint->text, "{}");
  EXPECT_EQ(request.sampling.constraint->after, "</think>");
}

}  // namespace
}  // namespace fovea::server
