#include "server/answer_formats.h"

#include <gtest/gtest.h>

#include "engine/chat_prompt.h"
#include "grammar/compile.h"

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
  EXPECT_EQ(detect_tool_format("<start_function_call>call:probe_tool{}"), ToolFormat::functiongemma);
  EXPECT_EQ(detect_tool_format("probe_tool"), ToolFormat::none);
}

TEST(AnswerFormats, CanBeNamed) {
  EXPECT_EQ(formats_of("zephyr", "hermes").tools, ToolFormat::hermes);
  EXPECT_EQ(formats_of("qwen3", "none", "none").think_end, "");
  EXPECT_EQ(formats_of("zephyr", "auto", "deepseek_r1").think_end, "</think>");
  EXPECT_EQ(formats_of("zephyr", "auto", "gpt_oss").tools, ToolFormat::harmony);
  EXPECT_EQ(formats_of("zephyr", "deepseekv32", "minimax").tools, ToolFormat::deepseek_v32);
  EXPECT_EQ(formats_of("zephyr", "auto", "qwen3-thinking").think_end, "</think>");
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
  EXPECT_EQ(request.sampling.constraint->after, std::vector<std::string>{"</think>"});
  EXPECT_EQ(request.sampling.constraint->after_begin, "");
  // The template has turned thinking off.
  request.sampling.constraint = std::make_shared<const OutputConstraint>();
  apply_formats(formats, tools, "assistant\n<think>\n\n</think>\n\n", request);
  EXPECT_FALSE(request.format->thinking);
  EXPECT_TRUE(request.sampling.constraint->after.empty());
  tools.choice = openai::ToolRequest::Choice::named;
  tools.named = "f";
  tools.arguments_schema = "{}";
  apply_formats(formats, tools, "assistant\n", request);
  EXPECT_EQ(request.format->tools, ToolFormat::json_named);
  EXPECT_EQ(request.sampling.constraint->text, "{}");
  EXPECT_EQ(request.sampling.constraint->after, std::vector<std::string>{"</think>"});
  EXPECT_EQ(request.sampling.constraint->after_begin, "<think>");
}

TEST(AnswerFormats, ReasoningMayStayInTheText) {
  AnswerFormats formats;
  formats.think_begin = "<think>";
  formats.think_end = "</think>";
  openai::GenerationRequest request;
  request.splits_reasoning = false;
  request.sampling.constraint = std::make_shared<const OutputConstraint>();
  apply_formats(formats, {}, "<think>", request);
  EXPECT_FALSE(request.format);
  EXPECT_EQ(request.sampling.constraint->after, std::vector<std::string>{"</think>"});
  EXPECT_TRUE(request.sampling.skip_special_tokens);
}

TEST(AnswerFormats, AFormLeavesRoomForCalls) {
  AnswerFormats formats;
  formats.tools = ToolFormat::kimi_k2;
  openai::ToolRequest tools;
  tools.choice = openai::ToolRequest::Choice::automatic;
  openai::GenerationRequest request;
  const auto form = [](const char* name) {
    OutputConstraint constraint;
    constraint.name = name;
    return std::make_shared<const OutputConstraint>(constraint);
  };
  apply_formats(formats, tools, "", request);
  EXPECT_FALSE(request.sampling.constraint);
  request.sampling.constraint = form("response_format.type");
  apply_formats(formats, tools, "", request);
  EXPECT_EQ(request.sampling.constraint->instead, std::vector<std::string>{"<|tool_calls_section_begin|>"});
  EXPECT_FALSE(request.sampling.constraint->may_end_before);
  request.sampling.constraint = form("guided_json");  // of the whole answer
  apply_formats(formats, tools, "", request);
  EXPECT_TRUE(request.sampling.constraint->instead.empty());
  // In harmony calls are messages before the final one.
  formats.tools = ToolFormat::harmony;
  request.sampling.constraint = form("response_format.type");
  apply_formats(formats, tools, "", request);
  EXPECT_TRUE(request.sampling.constraint->instead.empty());
  EXPECT_TRUE(request.sampling.constraint->may_end_before);
  EXPECT_EQ(request.sampling.constraint->after,
            (std::vector<std::string>{"<|channel|>final", "<|message|>"}));
  tools.choice = openai::ToolRequest::Choice::none;
  request.sampling.constraint = form("response_format.type");
  apply_formats(formats, tools, "", request);
  EXPECT_FALSE(request.sampling.constraint->may_end_before);
}

TEST(AnswerFormats, ForceCallsInHarmony) {
  AnswerFormats formats;
  formats.tools = ToolFormat::harmony;
  openai::ToolRequest tools;
  tools.choice = openai::ToolRequest::Choice::required;
  tools.forced = {{"f", R"({"type":"boolean"})", 0}, {"g\"", "{}", 1}};
  openai::GenerationRequest request;
  apply_formats(formats, tools, "<|start|>assistant", request);
  EXPECT_EQ(request.format->tools, ToolFormat::harmony);
  const OutputConstraint& made = *request.sampling.constraint;
  EXPECT_EQ(made.kind, OutputConstraint::Kind::structural_tag);
  EXPECT_TRUE(made.after.empty());
  grammar::ConstraintSpec spec;
  spec.kind = grammar::ConstraintSpec::Kind::structural_tag;
  spec.text = made.text;
  const auto bytes = [](int32_t id) { return std::string(1, static_cast<char>(id)); };
  const auto trie =
      std::make_shared<grammar::TokenTrie>(256, bytes, [](int32_t) { return false; }, std::vector<int32_t>());
  const auto compiled = grammar::compile_constraint(spec, trie);
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>true";
  EXPECT_TRUE((*compiled)->allows(call));
  EXPECT_TRUE((*compiled)->allows("<|channel|>analysis<|message|>hm<|end|><|start|>assistant" + call));
  EXPECT_TRUE((*compiled)->allows("<|channel|>commentary to=functions.g\" <|constrain|>json<|message|>[1]"));
  EXPECT_FALSE((*compiled)->allows("<|channel|>commentary to=functions.f <|constrain|>json<|message|>1"));
  EXPECT_FALSE((*compiled)->allows("<|channel|>final<|message|>true"));
}

TEST(AnswerFormats, ErrorsOfSchemasNameTheTool) {
  openai::ToolRequest tools;
  tools.choice = openai::ToolRequest::Choice::required;
  tools.calls_schema =
      R"({"items":{"anyOf":[{"properties":{"name":{"const":"f"}}},{"properties":{"name":{"const":"g"}}}]}})";
  openai::GenerationRequest request;
  apply_formats({}, tools, "", request);
  const OutputConstraint& made = *request.sampling.constraint;
  const auto error = constraint_error(
      made, openai::bad_request("tools: the schema's #/items/anyOf/1/properties/parameters/x is bad"));
  EXPECT_EQ(error.message, "tools (g): the schema's #/x is bad");
  EXPECT_EQ(error.param, "tools");
  EXPECT_EQ(constraint_error(made, openai::bad_request("too long")).param, "");
  tools.choice = openai::ToolRequest::Choice::named;
  tools.named = "f";
  apply_formats({}, tools, "", request);
  EXPECT_EQ(constraint_error(*request.sampling.constraint, openai::bad_request("tools (f): no")).param,
            "tools");
}

}  // namespace
}  // namespace fovea::server
