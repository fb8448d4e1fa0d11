#include "engine/deepseek_template.h"

#include <gtest/gtest.h>

#include "../tests/support/temp_dir.h"
#include "engine/chat_prompt.h"

namespace fovea {
namespace {

using test::TempDir;

// As the model's file assigns them, with other words: both kinds of quotes, annotations, escapes, fields
// twice.
constexpr const char* kEncoder = R"(import json
# TOOLS_SYSTEM_TEMPLATE = "a comment"
TOOLS_SYSTEM_TEMPLATE_OLD = "an older one"
TOOLS_SYSTEM_TEMPLATE = """# Functions
Write <{dsml_token}function_calls>, then think: {thinking_start_token}..{thinking_end_token}
Given "as is" \\ {{}}:
{tool_schemas}
"""
response_format_template: str = "# Form:\n\"{schema}\""
)";

constexpr const char* kCity =
    R"({"type":"function","function":{"name":"weather","description":"of a city","parameters":{"type":"object"}}})";

class DeepSeekTemplate : public testing::Test {
 protected:
  void SetUp() override { dir_.write("encoding/encoding_dsv32.py", kEncoder); }

  std::string prompt(const std::string& messages, bool thinking, const std::string& tools = "") {
    ChatRequest request;
    request.messages = messages;
    request.tools = tools;
    request.add_generation_prompt = generation_prompt_;
    request.continue_final_message = continue_;
    if (thinking) request.template_kwargs = R"({"thinking": true})";
    auto loaded = ChatPrompt::load(dir_.path(), nullptr, {});
    if (!loaded) return "load: " + loaded.error().message;
    auto text = loaded->render(request);
    return text ? *text : "error: " + text.error().message;
  }

  TempDir dir_;
  bool generation_prompt_ = true, continue_ = false;
};

const std::string kBos = "<｜begin▁of▁sentence｜>", kEos = "<｜end▁of▁sentence｜>";

TEST_F(DeepSeekTemplate, TurnsAndReasoning) {
  const std::string messages =
      R"([{"role":"system","content":"S"},{"role":"user","content":"hello"},)"
      R"({"role":"assistant","content":"Hi.","reasoning_content":"old"},)"
      R"({"role":"user","content":[{"type":"text","text":"1+1"},{"type":"text","text":"=?"}]}])";
  const std::string begin =
      kBos + "S<｜User｜>hello<｜Assistant｜></think>Hi." + kEos + "<｜User｜>1+1=?<｜Assistant｜>";
  EXPECT_EQ(prompt(messages, true), begin + "<think>");
  EXPECT_EQ(prompt(messages, false), begin + "</think>");
  generation_prompt_ = false;
  EXPECT_EQ(prompt(messages, true), begin.substr(0, begin.rfind("<｜Assistant｜>")));
  // Behind the last user message reasoning is kept.
  const std::string answered =
      messages.substr(0, messages.size() - 1) + R"(,{"role":"assistant","content":"2","reasoning":"sum"}])";
  EXPECT_EQ(prompt(answered, true), begin + "<think>sum</think>2" + kEos);
  EXPECT_EQ(prompt(answered, false), begin + "</think>2" + kEos);
  continue_ = true;
  EXPECT_EQ(prompt(answered, true), begin + "<think>sum</think>2");
}

TEST_F(DeepSeekTemplate, ToolsAndTheirResults) {
  const std::string tools = std::string("[") + kCity + R"(,{"name":"bare","parameters":{"n":1.5}}])";
  const std::string section =
      "\n\n# Functions\nWrite <｜DSML｜function_calls>, then think: <think>..</think>\nGiven \"as is\" \\ "
      "{}:\n"
      R"({"name": "weather", "description": "of a city", "parameters": {"type": "object"}})"
      "\n"
      R"({"name": "bare", "parameters": {"n": 1.5}})"
      "\n";
  EXPECT_EQ(prompt(R"([{"role":"user","content":"q"}])", false, tools),
            kBos + section + "<｜User｜>q<｜Assistant｜></think>");
  const std::string call =
      R"([{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":null,)"
      R"("reasoning":"look","tool_calls":[{"type":"function","function":{"name":"weather","arguments":)"
      R"({"city":"Über \"x\"","days":2,"where":{"a":[true,null]}}}},{"function":{"name":"bare","arguments":{}}}]})";
  const std::string calls =
      "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Über \"x\"</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"where\" string=\"false\">{\"a\": [true, null]}</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"bare\">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>" +
      kEos;
  const std::string results = R"(,{"role":"tool","content":"sun"},{"role":"tool","content":"7"}])";
  const std::string block =
      "\n\n<function_results>\n<result>sun</result>\n<result>7</result>\n</function_results>\n\n";
  const std::string begin = kBos + "S" + section + "<｜User｜>q<｜Assistant｜>";
  EXPECT_EQ(prompt(call + results, true, tools), begin + "<think>look</think>" + calls + block + "<think>");
  EXPECT_EQ(prompt(call + results, false, tools), begin + "</think>" + calls + block + "</think>");
  // A later question: the block ends as in an earlier turn.
  EXPECT_EQ(prompt(call + results.substr(0, results.size() - 1) + R"(,{"role":"user","content":"r"}])", true,
                   tools),
            begin + "</think>" + calls + block + "</think><｜User｜>r<｜Assistant｜><think>");
}

TEST_F(DeepSeekTemplate, DeveloperMessagesAndResponseFormats) {
  EXPECT_EQ(prompt(R"([{"role":"developer","content":"q","tools":[{"name":"f"}],"response_format":{"a":1}}])",
                   false),
            kBos +
                "<｜User｜>\n\n# Functions\nWrite <｜DSML｜function_calls>, then think: "
                "<think>..</think>\nGiven \"as "
                "is\" \\ {}:\n{\"name\": \"f\"}\n\n\n# Form:\n\"{\"a\": 1}\"\n\n# The user's message is: "
                "q<｜Assistant｜></think>");
}

TEST_F(DeepSeekTemplate, BadConversationsAreErrors) {
  EXPECT_NE(prompt(R"([{"role":"user","content":"q"},{"role":"tool","content":"x"}])", false)
                .find("answers no call of the assistant message before it"),
            std::string::npos);
  EXPECT_NE(prompt(R"([{"role":"robot","content":"q"}])", false).find("the role robot is not one of"),
            std::string::npos);
  EXPECT_NE(prompt(R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":)"
                   R"({"name":"f","arguments":"{}"}}]}])",
                   false)
                .find("arguments of the call of f must be an object"),
            std::string::npos);
}

TEST_F(DeepSeekTemplate, BadEncodersAreNamed) {
  const auto message = [&](const std::string& encoder) {
    const auto made = deepseek_template(encoder, "e.py");
    return made ? "made" : made.error().message;
  };
  EXPECT_EQ(message(kEncoder), "made");
  EXPECT_EQ(message(""),
            "e.py: TOOLS_SYSTEM_TEMPLATE is not a string there; take the file of the model's own repository");
  for (const char* broken :
       {"TOOLS_SYSTEM_TEMPLATE = 5", "TOOLS_SYSTEM_TEMPLATE = \"\"\"open\"\"",
        "TOOLS_SYSTEM_TEMPLATE = '\\x41'", "TOOLS_SYSTEM_TEMPLATE = 'a\\", "TOOLS_SYSTEM_TEMPLATE"})
    EXPECT_NE(message(broken).find("TOOLS_SYSTEM_TEMPLATE is not a string there"), std::string::npos)
        << broken;
  EXPECT_EQ(message("TOOLS_SYSTEM_TEMPLATE = '{other}'"),
            "e.py: TOOLS_SYSTEM_TEMPLATE has the field {other}, which Fovea does not know");
  for (const char* broken : {"TOOLS_SYSTEM_TEMPLATE = 'a } b'", "TOOLS_SYSTEM_TEMPLATE = 'a {dsml_token'"})
    EXPECT_NE(message(broken).find("has the field {"), std::string::npos) << broken;
  EXPECT_NE(message("TOOLS_SYSTEM_TEMPLATE = 'a'").find("response_format_template is not a string"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea
