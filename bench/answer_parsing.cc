// CPU time that the parser of answers takes for a token of four bytes, in some forms of tool calls.
#include <time.h>

#include <cstdio>
#include <string>

#include "server/openai/answer_parser.h"

namespace {

using namespace fovea::openai;

constexpr size_t kToken = 4, kBytes = 400'000;

/// CPU time of this thread in microseconds: other programs do not count.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

struct Answer {
  const char* what;
  ToolFormat format;
  std::string begin, repeated, end;
};

double time_of(const Answer& answer) {
  AnswerFormat format;
  format.tools = answer.format;
  format.think_begin = "<think>";
  format.think_end = "</think>";
  AnswerParser parser(format, [] { return std::string("id"); });
  std::string text = answer.begin;
  while (text.size() < kBytes)
    text += answer.repeated;
  text += answer.end;
  const double start = now();
  for (size_t at = 0; at < text.size(); at += kToken) {
    AnswerDelta delta;
    parser.push(std::string_view(text).substr(at, kToken), delta);
  }
  return (now() - start) * kToken / static_cast<double>(text.size());
}

}  // namespace

int main() {
  const std::string words = "word and \\\"more\\\" text, int a = 3; ";
  const Answer answers[] = {
      {"text", ToolFormat::hermes, "", words, ""},
      {"hermes", ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"s": ")", words,
       R"("}}</tool_call>)"},
      {"llama3_json", ToolFormat::llama3_json, R"({"name": "f", "parameters": {"s": ")", words, R"("}})"},
      {"kimi_k2", ToolFormat::kimi_k2,
       R"(<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": ")",
       words, R"("}<|tool_call_end|>)"},
      {"gemma", ToolFormat::gemma, "<|tool_call>call:f{s:<|\"|>", words, "<|\"|>}<tool_call|>"},
      {"qwen3_coder", ToolFormat::qwen3_coder, "<tool_call><function=f><parameter=s>\n", words,
       "\n</parameter></function></tool_call>"},
  };
  for (const Answer& answer : answers)
    std::printf("%s: %.3f us a token\n", answer.what, time_of(answer));
  return 0;
}
