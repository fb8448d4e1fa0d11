#include "engine/harmony_template.h"

#include <gtest/gtest.h>

#include "../tests/support/temp_dir.h"
#include "engine/chat_prompt.h"

namespace fovea {
namespace {

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"weather","description":"The weather there.\nNow.",
  "parameters":{"type":"object","properties":{"city":{"type":"string","description":"Its name"},
  "unit":{"type":"string","enum":["C","F"],"default":"C"},"days":{"type":["integer","null"]},
  "more":{"type":"array","items":{"type":"object","properties":{"x":{"type":"number"},"y":{}},"required":["x"]}}},
  "required":["city"]}}},{"type":"function","function":{"name":"now"}}])";

std::string begin(const std::string& effort, bool tools) {
  return "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge "
         "cutoff: "
         "2024-06\nCurrent date: 2026-01-02\n\nReasoning: " +
         effort +
         "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message." +
         (tools ? "\nCalls to these tools must go to the commentary channel: 'functions'." : "") + "<|end|>";
}

std::string prompt(const std::string& messages, const std::string& tools = "", const std::string& effort = "",
                   bool goes_on = false) {
  test::TempDir dir;
  dir.write("config.json", R"({"model_type": "gpt_oss"})");
  const auto loaded = ChatPrompt::load(dir.path(), nullptr, {});
  if (!loaded) return "load: " + loaded.error().message;
  ChatRequest request;
  request.messages = messages;
  request.tools = tools;
  request.template_kwargs =
      R"({"date":"2026-01-02")" + (effort.empty() ? "" : R"(,"reasoning_effort":")" + effort + "\"") + "}";
  request.continue_final_message = goes_on;
  request.add_generation_prompt = !goes_on;
  const auto text = loaded->render(request);
  return text ? *text : "error: " + text.error().message;
}

TEST(HarmonyTemplate, TurnsAndInstructions) {
  EXPECT_EQ(prompt(R"([{"role":"user","content":"hi"}])", "", "high"),
            begin("high", false) + "<|start|>user<|message|>hi<|end|><|start|>assistant");
  EXPECT_EQ(
      prompt(
          R"([{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"hi"}]},
    {"role":"assistant","content":"Hello","reasoning_content":"old"},{"role":"user","content":"and?"}])"),
      begin("medium", false) +
          "<|start|>developer<|message|># Instructions\n\nbe kind<|end|><|start|>user<|message|>hi<|end|>"
          "<|start|>assistant<|channel|>final<|message|>Hello<|end|><|start|>user<|message|>and?<|end|>"
          "<|start|>assistant");
  EXPECT_TRUE(
      prompt(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"I am"}])", "", "", true)
          .ends_with("<|start|>assistant<|channel|>final<|message|>I am"));
}

TEST(HarmonyTemplate, ToolsCallsAndResults) {
  const std::string text = prompt(R"([{"role":"developer","content":"D"},{"role":"user","content":"warm?"},
    {"role":"assistant","content":"I look.","reasoning":"hm","tool_calls":[
      {"id":"a","type":"function","function":{"name":"weather","arguments":{"city":"Oslo"}}},
      {"id":"b","type":"function","function":{"name":"now","arguments":{}}}]},
    {"role":"tool","tool_call_id":"b","content":"noon"},{"role":"tool","tool_call_id":"a","content":"cold"}])",
                                  kTools);
  EXPECT_EQ(
      text,
      begin("medium", true) +
          "<|start|>developer<|message|># Instructions\n\nD\n\n# Tools\n\n## functions\n\nnamespace "
          "functions "
          "{\n\n// The weather there.\n// Now.\ntype weather = (_: {\n// Its name\ncity: string,\nunit?: "
          "\"C\" | "
          "\"F\", // "
          "default: C\ndays?: number | null,\nmore?: {\nx: number, y?: any\n}[],\n}) => any;\n\ntype now = "
          "() => "
          "any;\n\n} // namespace functions<|end|><|start|>user<|message|>warm?<|end|>"
          "<|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
          "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
          "<|start|>assistant<|channel|>commentary to=functions.weather "
          "<|constrain|>json<|message|>{\"city\": "
          "\"Oslo\"}<|call|>"
          "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
          "<|start|>functions.now to=assistant<|channel|>commentary<|message|>noon<|end|>"
          "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>cold<|end|>"
          "<|start|>assistant");
  // Behind the answer the reasoning is left out.
  const std::string later = prompt(R"([{"role":"user","content":"warm?"},
    {"role":"assistant","content":"","reasoning":"hm","tool_calls":[
      {"id":"b","type":"function","function":{"name":"now","arguments":{}}}]},
    {"role":"tool","tool_call_id":"b","content":"noon"},{"role":"assistant","content":"No."},
    {"role":"user","content":"thanks"}])");
  EXPECT_EQ(later.find("hm"), std::string::npos);
  EXPECT_EQ(prompt(R"([{"role":"user","content":"a"},{"role":"tool","tool_call_id":"x","content":"b"}])")
                .find("error: "),
            0U);
}

}  // namespace
}  // namespace fovea
