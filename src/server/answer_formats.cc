#include "server/answer_formats.h"

#include "base/same_name.h"

namespace fovea::server {
namespace {

using openai::ToolFormat;
using Choice = openai::ToolRequest::Choice;

struct Thinking {
  const char *name, *begin, *end;
};
constexpr Thinking kThinking[] = {
    {"deepseek_r1", "<think>", "</think>"},
    {"qwen3", "<think>", "</think>"},
    {"glm45", "<think>", "</think>"},
    {"kimi_k2", "<think>", "</think>"},
    {"minimax_m2", "<think>", "</think>"},
    {"mistral", "[THINK]", "[/THINK]"},
    {"cohere", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"seed_oss", "<seed:think>", "</seed:think>"},
    {"gemma4", "<|channel>thought\n", "<channel|>"},
};
constexpr const char* kHarmonyNames[] = {"harmony", "gpt_oss", "openai_gptoss"};
/// Where the answer itself begins in harmony.
constexpr const char* kHarmonyFinal = "<|channel|>final<|message|>";

constexpr const char* kProbeTools =
    R"([{"type":"function","function":{"name":"probe_tool","description":"probe","parameters":{"type":"object",)"
    R"("properties":{"probe_key":{"type":"integer","description":"probe"}},"required":["probe_key"]}}}])";
constexpr const char* kProbeCall =
    R"([{"role":"user","content":"probe"},{"role":"assistant","content":"","reasoning_content":"probe_thought",)"
    R"("tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"probe_tool",)"
    R"("arguments":{"probe_key":1}}}]})";

/// What the template makes of a call and of reasoning; "" if it refuses them.
std::string probe(const Render& render, bool with_calls) {
  if (!render) return "";
  ChatRequest chat;
  if (!with_calls) {
    chat.messages = R"([{"role":"user","content":"probe"}])";
  } else {
    chat.messages =
        std::string(kProbeCall) + R"(,{"role":"tool","tool_call_id":"abcdefghi","content":"probe"}])";
    chat.tools = kProbeTools;
  }
  const auto text = render(chat);
  return text ? *text : "";
}

/// Whether a system message in the middle is there, in its place, and not as one of a user.
bool keeps_system_turns(const Render& render) {
  if (!render) return false;
  const auto rendered = [&](const std::string& role) -> std::string {
    ChatRequest chat;
    chat.messages = R"([{"role":"system","content":"probe_0"},{"role":"user","content":"probe_1"},)"
                    R"({"role":"assistant","content":"probe_2"},{"role":")" +
                    role + R"(","content":"probe_3"},{"role":"user","content":"probe_4"}])";
    const auto text = render(chat);
    return text ? *text : "";
  };
  const std::string system = rendered("system");
  size_t at = 0;
  for (const char* word : {"probe_0", "probe_1", "probe_2", "probe_3", "probe_4"}) {
    at = system.find(word, at);
    if (at == std::string::npos) return false;
  }
  return system != rendered("user");
}

std::string_view without_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

Error unknown_name(const char* flag, const std::string& name, const std::string& known) {
  return invalid(std::string(flag) + " is " + name + "; it must be auto, none or one of " + known);
}

}  // namespace

Result<AnswerFormats> find_answer_formats(const Render& render, const std::string& tools,
                                          const std::string& reasoning) {
  AnswerFormats out;
  out.system_turns_anywhere = keeps_system_turns(render);
  const std::string calls = probe(render, true), plain = probe(render, false);
  if (same_name(tools, "auto")) {
    out.tools = openai::detect_tool_format(calls);
  } else if (const auto format = openai::parse_tool_format(tools)) {
    out.tools = *format;
  } else {
    std::string known;
    for (const std::string_view name : openai::tool_format_names())
      if (name != "none") known += (known.empty() ? "" : ", ") + std::string(name);
    return unknown_name("--tool-call-parser", tools, known);
  }
  if (same_name(reasoning, "none")) return out;
  for (const char* name : kHarmonyNames)
    if (same_name(reasoning, name)) {
      out.tools = ToolFormat::harmony;
      return out;
    }
  const bool automatic = same_name(reasoning, "auto");
  std::string known = "harmony";
  for (const Thinking& thinking : kThinking) {
    const bool shown = calls.find(thinking.end) != std::string::npos ||
                       plain.find(thinking.end) != std::string::npos ||
                       without_space(plain).ends_with(without_space(thinking.begin));
    known += std::string(", ") + thinking.name;
    if (!(automatic ? shown : same_name(reasoning, thinking.name))) continue;
    out.think_begin = thinking.begin;
    out.think_end = thinking.end;
    return out;
  }
  if (!automatic) return unknown_name("--reasoning-parser", reasoning, known);
  if (plain.find("<|channel|>") != std::string::npos && plain.find("<|start|>assistant") != std::string::npos)
    out.tools = ToolFormat::harmony;
  return out;
}

std::optional<openai::ApiError> check_tools(const AnswerFormats& formats, const openai::ToolRequest& tools) {
  if (tools.choice == Choice::automatic && formats.tools == ToolFormat::none)
    return openai::bad_request(
        "tools are given, but this model's chat template shows no form of tool calls; start the server with "
        "--tool-call-parser, or set tool_choice to \"required\" or to a function",
        "tools");
  if ((tools.choice == Choice::required || tools.choice == Choice::named) &&
      formats.tools == ToolFormat::harmony)
    return openai::bad_request("tool_choice: this model's calls can't be forced; use \"auto\"",
                               "tool_choice");
  return std::nullopt;
}

void apply_formats(const AnswerFormats& formats, const openai::ToolRequest& tools, const std::string& prompt,
                   openai::GenerationRequest& request) {
  openai::AnswerFormat format;
  format.think_begin = formats.think_begin;
  format.think_end = formats.think_end;
  const std::string_view text = without_space(prompt);
  const bool thinks = !formats.think_end.empty();
  format.thinking = thinks && text.ends_with(without_space(formats.think_begin));
  const bool closed = thinks && text.ends_with(formats.think_end);  // thinking is off
  std::string after = thinks && !closed ? formats.think_end : "";
  if (formats.tools == ToolFormat::harmony) {
    format.tools = ToolFormat::harmony;
    after = kHarmonyFinal;
  } else if (tools.choice == Choice::automatic) {
    format.tools = formats.tools;
    format.types = tools.types;
  } else if (tools.choice == Choice::required || tools.choice == Choice::named) {
    const bool named = tools.choice == Choice::named;
    format.tools = named ? ToolFormat::json_named : ToolFormat::json_array;
    format.named = tools.named;
    OutputConstraint calls;
    calls.kind = OutputConstraint::Kind::json_schema;
    calls.text = named ? tools.arguments_schema : tools.calls_schema;
    request.sampling.constraint = std::make_shared<const OutputConstraint>(std::move(calls));
  }
  format.one_call = !tools.parallel;
  if (request.sampling.constraint && !after.empty()) {
    OutputConstraint later = *request.sampling.constraint;
    later.after = after;
    request.sampling.constraint = std::make_shared<const OutputConstraint>(std::move(later));
  }
  if (!format.active()) return;
  request.format = std::move(format);
  request.sampling.skip_special_tokens = false;  // tags may be special tokens
}

}  // namespace fovea::server
