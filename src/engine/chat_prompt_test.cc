#include "engine/chat_prompt.h"

#include <gtest/gtest.h>

#include "../tests/support/temp_dir.h"
#include "engine/chat_template_files.h"

namespace fovea {
namespace {

using test::TempDir;

constexpr const char* kUser = R"([{"role": "user", "content": "hi"}])";

std::string sources_of(const TempDir& dir) {
  auto found = find_chat_templates(dir.path());
  if (!found) return "error: " + found.error().message;
  std::string out;
  for (const NamedTemplate& entry : *found)
    out += entry.name + "=" + entry.source + ";";
  return out;
}

std::string prompt_of(const TempDir& dir, const ChatRequest& request, const EngineConfig& config = {}) {
  auto prompt = ChatPrompt::load(dir.path(), nullptr, config);
  if (!prompt) return "load: " + prompt.error().message;
  auto text = prompt->render(request);
  return text ? *text : "error: " + text.error().message;
}

ChatRequest request(std::string messages) {
  ChatRequest out;
  out.messages = std::move(messages);
  return out;
}

TEST(ChatTemplateFiles, EverySourceInItsOrder) {
  const TempDir dir;
  EXPECT_EQ(sources_of(dir), "");
  dir.write("chat_template.json", R"({"chat_template": "legacy"})");
  EXPECT_EQ(sources_of(dir), "default=legacy;");
  dir.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(sources_of(dir), "default=legacy;");
  dir.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(sources_of(dir), "default=config;");
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(sources_of(dir), "rag=R;default=D;");
  dir.write("tokenizer_config.json", R"({"chat_template": {"default": "D", "tool_use": "T"}})");
  EXPECT_EQ(sources_of(dir), "default=D;tool_use=T;");
  dir.write("chat_templates/old.jinja", "old");
  EXPECT_EQ(sources_of(dir), "old=old;");
  dir.write("additional_chat_templates/tool_use.jinja", "tools");
  dir.write("additional_chat_templates/notes.txt", "not a template");
  EXPECT_EQ(sources_of(dir), "tool_use=tools;old=old;");
  dir.write("chat_template.jinja", "file");
  EXPECT_EQ(sources_of(dir), "default=file;tool_use=tools;old=old;");
}

TEST(ChatTemplateFiles, BadFilesAreNamed) {
  const TempDir dir;
  for (const char* value : {"5", "[5]", R"([{"name": "x"}])", R"([{"template": "x"}])", R"({"a": 5})",
                            R"([{"name": 1, "template": "x"}])"}) {
    dir.write("tokenizer_config.json", std::string(R"({"chat_template": )") + value + "}");
    EXPECT_NE(sources_of(dir).find("tokenizer_config.json: chat_template is"), std::string::npos) << value;
  }
  dir.write("tokenizer_config.json", "{");
  EXPECT_NE(sources_of(dir).find("tokenizer_config.json: not valid JSON"), std::string::npos);
  dir.write("chat_template.jinja", std::string((4u << 20) + 1, 'x'));
  EXPECT_NE(sources_of(dir).find("chat_template.jinja"), std::string::npos);
  EXPECT_NE(sources_of(dir).find("error: "), std::string::npos);
}

TEST(ChatTemplateFiles, GivenAsTextOrFile) {
  const TempDir dir;
  const std::string file = dir.write("mine.jinja", "of a file");
  EXPECT_EQ(read_given_template("{{ x }}")->source, "{{ x }}");
  EXPECT_EQ(read_given_template(file)->source, "of a file");
  EXPECT_NE(read_given_template("no-such-file").error().message.find("no-such-file is not a file"),
            std::string::npos);
}

TEST(ChatPrompt, ToolsChooseTheirTemplate) {
  const TempDir dir;
  dir.write("chat_template.jinja", "default {{ tools is none }} {{ documents is none }}");
  dir.write("additional_chat_templates/tool_use.jinja", "tools {{ tools | length }}");
  ChatRequest chat = request(kUser);
  EXPECT_EQ(prompt_of(dir, chat), "default True True");
  chat.tools = "null";
  EXPECT_EQ(prompt_of(dir, chat), "default True True");
  chat.tools = R"([{"type": "function"}])";
  EXPECT_EQ(prompt_of(dir, chat), "tools 1");
  chat.template_name = "default";
  EXPECT_EQ(prompt_of(dir, chat), "default False True");
  chat.template_name = "rag";
  EXPECT_EQ(prompt_of(dir, chat), "error: there is no chat template 'rag'; available: 'default', 'tool_use'");
  EngineConfig config;
  config.chat_template_name = "tool_use";
  chat.template_name = "";
  chat.tools = "[]";
  EXPECT_EQ(prompt_of(dir, chat, config), "tools 0");
  config.chat_template_name = "rag";
  EXPECT_EQ(prompt_of(dir, chat, config),
            "load: there is no chat template 'rag'; available: 'default', 'tool_use'");
}

TEST(ChatPrompt, AGivenTemplateReplacesTheModels) {
  const TempDir dir;
  dir.write("chat_template.jinja", "{% if %}");
  // Without the folder, because clients see the message.
  EXPECT_EQ(prompt_of(dir, request(kUser)).find("error: chat_template.jinja, line 1, column 7"), 0u)
      << prompt_of(dir, request(kUser));
  EngineConfig config;
  config.chat_template = "{{ messages[0].content }}";
  EXPECT_EQ(prompt_of(dir, request(kUser), config), "hi");
  config.chat_template = "{% if %}";
  EXPECT_EQ(prompt_of(dir, request(kUser), config).find("load: the given chat template, line 1, column 7"),
            0u);
}

TEST(ChatPrompt, NoTemplate) {
  const TempDir dir;
  EXPECT_FALSE(ChatPrompt::load(dir.path(), nullptr, {})->exists());
  EXPECT_NE(prompt_of(dir, request(kUser)).find("has no chat template"), std::string::npos);
}

TEST(ChatPrompt, EveryPartOfARequestIsChecked) {
  const TempDir dir;
  dir.write("chat_template.jinja", "x");
  const auto refused = [&](const ChatRequest& chat) { return prompt_of(dir, chat); };
  EXPECT_EQ(refused(request("[]")), "error: messages is []; at least one message is needed");
  EXPECT_EQ(refused(request("{}")), "error: messages is {...}; a list of objects is needed");
  EXPECT_EQ(refused(request("[1]")), "error: messages has the item 1; every item must be an object");
  EXPECT_NE(refused(request("[{}]")).find("has the role (none)"), std::string::npos);
  EXPECT_NE(refused(request(R"([{"role": 5}])")).find("has the role 5"), std::string::npos);
  EXPECT_NE(refused(request("")).find("messages: not valid JSON"), std::string::npos);
  EXPECT_NE(refused(request(std::string(200, '['))).find("nested deeper"), std::string::npos);
  ChatRequest chat = request(kUser);
  chat.tools = "{}";
  EXPECT_NE(refused(chat).find("tools is {...}"), std::string::npos);
  chat.tools = "";
  chat.documents = R"(["text"])";
  EXPECT_NE(refused(chat).find("documents has the item \"text\""), std::string::npos);
  chat.documents = "";
  chat.template_kwargs = "[]";
  EXPECT_NE(refused(chat).find("chat template arguments are [...]"), std::string::npos);
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}) {
    chat.template_kwargs = std::string("{\"") + name + "\": 1}";
    EXPECT_NE(refused(chat).find(std::string("arguments have \"") + name), std::string::npos);
  }
}

TEST(ChatPrompt, ArgumentsReachTheTemplateAndBeatSpecialTokens) {
  const TempDir dir;
  dir.write("chat_template.jinja", "{{ bos_token }}{{ enable_thinking }}{{ add_generation_prompt }}");
  ChatRequest chat = request(kUser);
  chat.template_kwargs = R"({"enable_thinking": false, "bos_token": "<B>"})";
  chat.add_generation_prompt = false;
  EXPECT_EQ(prompt_of(dir, chat), "<B>FalseFalse");
}

TEST(ChatPrompt, ArgumentsOfCallsAreWhatTheTemplateTakes) {
  const TempDir dir;
  const std::string begin = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  ChatRequest chat = request(R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "x", "function":
    {"name": "f", "arguments": {"b": "\u00e9", "a": [1, null]}}}]}])");
  dir.write("chat_template.jinja",
            begin + "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}");
  EXPECT_EQ(prompt_of(dir, chat), "f{\"b\": \"\xC3\xA9\", \"a\": [1, null]}");
  dir.write("chat_template.jinja", begin + "{{ c.function.arguments.b }}{% endfor %}{% endfor %}");
  EXPECT_EQ(prompt_of(dir, chat), "\xC3\xA9");
  dir.write("chat_template.jinja", begin + "{{ raise_exception('never') }}{% endfor %}{% endfor %}");
  EXPECT_NE(prompt_of(dir, chat).find("never"), std::string::npos);
}

TEST(ChatPrompt, ReasoningHasTheNamesOfAllClients) {
  const TempDir dir;
  dir.write(
      "chat_template.jinja",
      "{% for m in messages %}[{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.thinking }}|{{ m.content }}]"
      "{% endfor %}{# #}");
  ChatRequest chat = request(R"([{"role": "user", "content": "u", "reasoning": "x"},
    {"role": "assistant", "content": "a", "reasoning": "r"}, {"role": "assistant", "content": "b", "reasoning_content": "c"},
    {"role": "assistant", "content": "c", "reasoning_content": "", "thinking": "t"},
    {"role": "assistant", "content": "d", "reasoning": "r", "tool_calls": [{"id": "x"}]}])");
  EXPECT_EQ(prompt_of(dir, chat), "[|x||u][r|r||a][c|c||b][|t|t|c][r|r||d]");
  // The model's own template of harmony reads "thinking", and refuses a text beside it where calls follow.
  dir.write("chat_template.jinja",
            "{% for m in messages %}[{{ m.thinking }}|{{ m.content }}]{% endfor %}{# <|channel|>analysis #}");
  EXPECT_EQ(prompt_of(dir, chat), "[|u][r|a][c|b][t|c][r\n\nd|]");
}

TEST(ChatPrompt, GoesOnWithTheFinalMessage) {
  const TempDir dir;
  dir.write("chat_template.jinja",
            "{% for m in messages %}<{{ m.role }}>{{ m.content if m.content is string else "
            "m.content[0].text }}</{{ m.role }}>{% endfor %}");
  ChatRequest chat =
      request(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "Sure, "}])");
  chat.add_generation_prompt = false;
  chat.continue_final_message = true;
  EXPECT_EQ(prompt_of(dir, chat), "<user>a</user><assistant>Sure, ");
  chat.messages =
      R"([{"role": "assistant", "content": [{"type": "text", "text": "<final-message-ends-here>"}]}])";
  EXPECT_EQ(prompt_of(dir, chat), "<assistant><final-message-ends-here>");
  EngineConfig trims;
  trims.chat_template = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  chat.messages = R"([{"role": "assistant", "content": " Sure, \n"}])";
  EXPECT_EQ(prompt_of(dir, chat, trims), "<Sure,");
  trims.chat_template = "{{ messages[0].role }}";
  EXPECT_NE(prompt_of(dir, chat, trims).find("does not write the last message's text"), std::string::npos);
  chat.messages = R"([{"role": "assistant", "content": null}])";
  EXPECT_NE(prompt_of(dir, chat, trims).find("no text to continue"), std::string::npos);
  chat.messages = R"([{"role": "assistant", "content": [{"type": "image"}]}])";
  EXPECT_NE(prompt_of(dir, chat, trims).find("no text to continue"), std::string::npos);
  chat.add_generation_prompt = true;
  EXPECT_NE(prompt_of(dir, chat, trims).find("exclude each other"), std::string::npos);
}

}  // namespace
}  // namespace fovea
