#include "server/openai/answer_parser.h"

#include <gtest/gtest.h>

#include <random>

namespace fovea::openai {
namespace {

/// An answer as one string: "[reasoning] content", then "name(arguments)" of each call, with its id if the
/// text has it.
struct Whole {
  std::string content, reasoning;
  std::vector<std::string> ids, names, arguments;
  void add(const AnswerDelta& delta) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const CallDelta& call : delta.calls) {
      if (call.first) {
        EXPECT_EQ(static_cast<size_t>(call.index), names.size());
        ids.push_back(call.id);
        names.push_back(call.name);
        arguments.emplace_back();
      }
      ASSERT_LT(static_cast<size_t>(call.index), arguments.size());
      arguments[static_cast<size_t>(call.index)] += call.arguments;
    }
  }
  std::string text() const {
    std::string out = (reasoning.empty() ? "" : "[" + reasoning + "]") + content;
    for (size_t i = 0; i < names.size(); ++i)
      out += "|" + (ids[i] == "new" ? "" : ids[i] + "=") + names[i] + "(" + arguments[i] + ")";
    return out;
  }
};

std::string parse(const AnswerFormat& format, const std::vector<std::string_view>& parts) {
  AnswerParser parser(format, [] { return std::string("new"); });
  Whole whole;
  for (const std::string_view part : parts) {
    AnswerDelta delta;
    parser.push(part, delta);
    whole.add(delta);
  }
  AnswerDelta delta;
  parser.finish(delta);
  whole.add(delta);
  return whole.text();
}

struct Transcript {
  AnswerFormat format;
  std::string text, expected;
};

AnswerFormat with(ToolFormat tools, bool thinks = false, bool thinking = false) {
  AnswerFormat format;
  format.tools = tools;
  if (thinks) {
    format.think_begin = "<think>";
    format.think_end = "</think>";
    format.thinking = thinking;
  }
  format.types["f"] = {
      {"n", "integer"}, {"s", "string"}, {"o", "object"}, {"m", "string null"}, {"l", "array"}};
  return format;
}

std::vector<Transcript> transcripts() {
  using F = ToolFormat;
  AnswerFormat one = with(F::hermes);
  one.one_call = true;
  AnswerFormat named = with(F::json_named, true, true);
  named.named = "f";
  return {
      {with(F::none), "plain <tool_call> text \n", "plain <tool_call> text \n"},
      {with(F::hermes), "hi <tool", "hi <tool"},
      {with(F::hermes),
       "hello\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"}</tool_call>\\\"\", \"n\": [1, "
       "{}]}}\n</tool_call>\n"
       "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"g\"}\n</tool_call>",
       "hello|f({\"s\": \"}</tool_call>\\\"\", \"n\": [1, {}]})|g({\"a\": 1})"},
      {with(F::hermes), "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call> done",
       "done|f({\"a\": 1})"},
      {with(F::hermes),
       "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": {\"x\": \"un",
       "|f({})|g({\"x\": \"un)"},
      {one,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"g\", "
       "\"arguments\": {}}</tool_call>",
       "|f({})"},
      {with(F::hermes, true), "<think>\nso <tool_call>\n</think>\n\nanswer", "[so <tool_call>]answer"},
      {with(F::hermes, true, true),
       "hm</thin\nk</think>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
       "[hm</thin\nk]|f({})"},
      {with(F::hermes, true), "no thought <think>", "no thought <think>"},
      {with(F::llama3_json),
       "{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
       "|f({\"n\": 1})|g({})"},
      {with(F::llama3_json),
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"n\": -1.5e3}}",
       "|f({\"n\": -1.5e3})"},
      {with(F::llama3_json), "{\"other\": 1}", "{\"other\": 1}"},
      {with(F::pythonic), "[f(n=1, s='it\\'s', o={'a': [True, None]}), g()]",
       "|f({\"n\": 1, \"s\": \"it's\", \"o\": {\"a\": [true, null]}})|g({})"},
      {with(F::pythonic), "[1, 2] is a list", "[1, 2] is a list"},
      {with(F::pythonic), "[f(x)]", "[f(x)]"},
      {with(F::mistral),
       "ok[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
       "ok|f({\"n\": 1})|g({})"},
      {with(F::mistral), "[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}",
       "|f({\"n\": 1})|abcdefghi=g({})"},
      {with(F::qwen3_coder),
       "see\n\n<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\na\n<b>\n</"
       "parameter>\n<parameter=o>\n"
       "{\"x\": 1}\n</parameter>\n</function>\n</tool_call>",
       "see|f({\"n\": 12, \"s\": \"a\\n<b>\", \"o\": {\"x\": 1}})"},
      {with(F::qwen3_coder),
       "<tool_call>\n<function=f>\n<parameter=s>\n\n\xC3\xA9\n\n</parameter>\n<parameter=x>\n\n</parameter>\n"
       "<parameter=y></parameter>\n<parameter=s>a\"</parameter></function>\n</tool_call>",
       "|f({\"s\": \"\\n\xC3\xA9\\n\", \"x\": \"\", \"y\": \"\", \"s\": \"a\\\"\"})"},
      {with(F::qwen3_coder),
       "<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
       "|f({})|g({})"},
      {with(F::deepseek_v3),
       "x<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": "
       "1}\n```<｜tool▁call▁end｜>\n"
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "x|f({\"n\": 1})|g({})"},
      {with(F::deepseek_v31, true, true),
       "t</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
       "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "[t]|f({\"n\": 1})"},
      {with(F::deepseek_v32),
       "a\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
       "string=\"true\">1\"</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"n\" "
       "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "a|f({\"s\": \"1\\\"\", \"n\": [1]})"},
      {with(F::kimi_k2),
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": "
       "1}<|tool_call_end|>"
       "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_"
       "end|>",
       "|functions.f:0=f({\"n\": 1})|functions.g:1=g({})"},
      {with(F::glm4),
       "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</arg_key>\n<arg_value>x</"
       "arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
       "|f({\"n\": 3, \"s\": \"x\"})|g({})"},
      {with(F::minimax),
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a</parameter>\n<parameter "
       "name=\"n\">2</parameter>\n</invoke>\n"
       "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "|f({\"s\": \"a\", \"n\": 2})|g({})"},
      {with(F::gemma), "<|tool_call>call:f{\"n\": 1}<tool_call|>", "|f({\"n\": 1})"},
      {with(F::gemma),
       "I look.\n<|tool_call>call:my.f-1{s:<|\"|>a \"b\" {\xC3\xA9}, <|x\n<|\"|>,n:-1.5,t:true,z:null,"
       "l:[<|\"|>x<|\"|>,2,[],{}],o:{k:<|\"|><|\"|>, j : 1 }}<tool_call|><|tool_call>call:g{}<tool_call|>",
       "I look.|my.f-1({\"s\": \"a \\\"b\\\" {\xC3\xA9}, <|x\\n\", \"n\": -1.5, \"t\": true, \"z\": null, "
       "\"l\": [\"x\", 2, [], {}], \"o\": {\"k\": \"\", \"j\": 1}})|g({})"},
      // What the model also writes: JSON's and Python's quotes and constants, marks around keys.
      {with(F::gemma),
       "<|tool_call>call:f{<|\"|>a<|\"|>:[\"x\\n\", 'it\\'s', \"y\"],b:True,c:None,d:some words}<tool_call|>",
       "|f({\"a\": [\"x\\n\", \"it's\", \"y\"], \"b\": true, \"c\": null, \"d\": \"some words\"})"},
      {with(F::gemma), "<|tool_call>call:f{a:[1,{b:<tool_call|> after",
       "after|f({\"a\": [1, {\"b\": null}]})"},
      {with(F::gemma), "<|tool_call>nothing<tool_call|> more", "<|tool_call>nothing<tool_call|> more"},
      {with(F::functiongemma),
       "<start_function_call>call:f{s:<escape>it's, {x}<escape>,n:3}<end_function_call>",
       "|f({\"s\": \"it's, {x}\", \"n\": 3})"},
      {with(F::hermes), "<tool_call>{\"name\": \"f\", \"arguments\": {}}\nI have done it.",
       "I have done it.|f({})"},
      {with(F::deepseek_v3),
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```", "|f({})"},
      // No calls, or broken ones: no text is lost, and the next call is one.
      {with(F::hermes), "a\n<tool_call>\nhello\n</tool_call> and", "a\n<tool_call>\nhello\n</tool_call> and"},
      {with(F::hermes), "<tool_call>{\"arguments\": {\"a\": [1]}}</tool_call> and",
       "<tool_call>{\"arguments\": {\"a\": [1]}}</tool_call> and"},
      {with(F::hermes), "<tool_call>{\"arguments\": </tool_call> and",
       "<tool_call>{\"arguments\": </tool_call> and"},
      {with(F::hermes),
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<\", \"b\": </tool_call><tool_call>{\"name\": "
       "\"g\", "
       "\"arguments\": {}}</tool_call>",
       "|f({\"a\": \"<\", \"b\": )|g({})"},
      {with(F::llama3_json), "{\"type\": \"x\"}", "{\"type\": \"x\"}"},
      {with(F::llama3_json), "<|python_start|>{\"name\": \"f\", \"parameters\": {}}<|python_end|>", "|f({})"},
      {with(F::deepseek_v31),
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": <｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "|f({\"n\": )|g({})"},
      {with(F::pythonic), "<|python_start|>[f(n=1)]<|python_end|>", "|f({\"n\": 1})"},
      {with(F::qwen3_coder),
       "<tool_call>\n<function=f>\n<parameter=m>\n1.5\n</parameter>\n<parameter=m>\nnull\n</parameter>\n"
       "<parameter=m>\ntrue\n</parameter>\n<parameter=l>\n['a', "
       "None]\n</parameter>\n</function>\n</tool_call>",
       "|f({\"m\": \"1.5\", \"m\": null, \"m\": \"true\", \"l\": [\"a\", null]})"},
      {with(F::harmony),
       "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{\"n\": 1}<|call|>",
       "[think]|f({\"n\": 1})"},
      {with(F::harmony), " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "|f({})"},
      {with(F::harmony),
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b < c",
       "[a]b < c"},
      {with(F::harmony), "no header", "no header"},
      {with(F::harmony), "<|channel|>final <|constrain|>json<|message|>{}<|end|><|start|>assistant", "{}"},
      {with(F::json_array),
       "[{\"name\": \"f\", \"parameters\": {\"n\": 1}}, {\"name\": \"g\", \"parameters\": {}}]",
       "|f({\"n\": 1})|g({})"},
      {named, "hm</think>\n{\"n\": 1}", "[hm]|f({\"n\": 1})"},
  };
}

TEST(AnswerParser, EveryFormatWhole) {
  for (const Transcript& each : transcripts())
    EXPECT_EQ(parse(each.format, {each.text}), each.expected)
        << to_string(each.format.tools) << ": " << each.text;
}

TEST(AnswerParser, IsTheSameHoweverTheTextIsCut) {
  std::mt19937 random(7);
  for (const Transcript& each : transcripts()) {
    const std::string_view text = each.text;
    for (size_t cut = 0; cut <= text.size(); ++cut)
      ASSERT_EQ(parse(each.format, {text.substr(0, cut), text.substr(cut)}), each.expected)
          << text << " cut at " << cut;
    for (int times = 0; times < 40; ++times) {
      std::vector<std::string_view> parts;
      const size_t longest = times == 0 ? 1 : 1 + random() % 12;  // the first: one byte at a time
      for (size_t at = 0; at < text.size();) {
        const size_t length = 1 + random() % longest;
        parts.push_back(text.substr(at, length));
        at += length;
      }
      ASSERT_EQ(parse(each.format, parts), each.expected) << text;
    }
    // Every beginning of it, as if max_tokens had cut it: the same result whole and byte by byte.
    for (size_t end = 0; end < text.size(); ++end) {
      std::vector<std::string_view> bytes;
      for (size_t at = 0; at < end; ++at)
        bytes.push_back(text.substr(at, 1));
      ASSERT_EQ(parse(each.format, bytes), parse(each.format, {text.substr(0, end)})) << text.substr(0, end);
    }
  }
}

TEST(AnswerParser, LongStringsAreStreamed) {
  using F = ToolFormat;
  for (const F format : {F::qwen3_coder, F::glm4, F::minimax, F::deepseek_v32}) {
    const char* start =
        format == F::qwen3_coder ? "<tool_call>\n<function=f>\n<parameter=s>\n"
        : format == F::glm4      ? "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>"
        : format == F::minimax
            ? "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">"
            : "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
              "string=\"true\">";
    AnswerParser parser(with(format), [] { return std::string("new"); });
    AnswerDelta delta;
    parser.push(start, delta);
    AnswerDelta more;
    parser.push("int a;\nint b; </para", more);
    ASSERT_EQ(more.calls.size(), 1U) << to_string(format);
    const bool held = format == F::qwen3_coder || format == F::minimax;  // it may be the start of the end tag
    EXPECT_EQ(more.calls[0].arguments, std::string("{\"s\": \"int a;\\nint b; ") + (held ? "" : "</para"))
        << to_string(format);
  }
}

TEST(AnswerParser, KnowsTheNamesOfFormats) {
  for (const std::string_view name : tool_format_names())
    EXPECT_EQ(to_string(*parse_tool_format(name)), name);
  EXPECT_EQ(parse_tool_format("Hermes"), ToolFormat::hermes);
  EXPECT_EQ(parse_tool_format("v3.1"), ToolFormat::deepseek_v31);
  EXPECT_EQ(parse_tool_format("deepseekv32"), ToolFormat::deepseek_v32);
  EXPECT_EQ(parse_tool_format("minimax-m2"), ToolFormat::minimax);
  EXPECT_FALSE(parse_tool_format("hermez"));
}

}  // namespace
}  // namespace fovea::openai
