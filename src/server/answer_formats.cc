#include "server/answer_formats.h"

#include "base/printable.h"
#include "base/same_name.h"
#include "server/openai/constraint_fields.h"
#include "server/openai/json_writer.h"
#include "text/json_value.h"

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
/// What others call the same, without the signs that openai::alike() leaves out.
constexpr std::pair<const char*, const char*> kOtherThinking[] = {
    {"qwen3thinking", "qwen3"}, {"deepseekv3", "deepseek_r1"}, {"deepseekv31", "deepseek_r1"},
    {"kimi", "kimi_k2"},        {"minimax", "minimax_m2"},     {"glm4", "glm45"},
    {"glm47", "glm45"},         {"magistral", "mistral"},      {"gemma", "gemma4"},
};
constexpr const char* kHarmonyNames[] = {"harmony", "gptoss", "openaigptoss", "openai"};
/// Where the answer itself begins in harmony: the header may name the form's type between them.
constexpr const char* kHarmonyFinal[] = {"<|channel|>final", "<|message|>"};

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

const std::string kToolsField = "tools";

std::string of_tool(const std::string& name) {
  return " (" + printable(name) + ")";
}

/// Calls in harmony, behind reasoning or without it. The answer ends where the arguments do.
OutputConstraint harmony_calls(const std::vector<openai::ToolRequest::Function>& functions) {
  const auto quoted = [](const std::string& text) { return openai::to_text(text::Json(text)); };
  std::string calls;
  for (const auto& function : functions)
    calls += (calls.empty() ? "" : ",") +
             std::string(R"({"type":"sequence","elements":[{"type":"const_string","value":)") +
             quoted("<|channel|>commentary to=functions." + function.name + " <|constrain|>json<|message|>") +
             R"(},{"type":"json_schema","json_schema":)" + function.schema + "}]}";
  calls = R"({"type":"or","elements":[)" + calls + "]}";
  OutputConstraint out;
  out.kind = OutputConstraint::Kind::structural_tag;
  out.text =
      R"({"format":{"type":"or","elements":[)" + calls +
      R"(,{"type":"sequence","elements":[{"type":"tag","begin":"<|channel|>analysis<|message|>",)"
      R"("content":{"type":"any_text"},"end":"<|end|>"},{"type":"const_string","value":"<|start|>assistant"},)" +
      calls + "]}]}}";
  return out;
}

/// What the answer is constrained to; null = nothing.
std::optional<OutputConstraint> constraint_of(const AnswerFormats& formats, const openai::ToolRequest& tools,
                                              const openai::GenerationRequest& request) {
  if (tools.choice != Choice::required && tools.choice != Choice::named)
    return request.sampling.constraint ? std::optional(*request.sampling.constraint) : std::nullopt;
  const bool named = tools.choice == Choice::named;
  OutputConstraint calls;
  if (formats.tools == ToolFormat::harmony) {
    calls = harmony_calls(tools.forced);
  } else {
    calls.kind = OutputConstraint::Kind::json_schema;
    calls.text = named ? tools.arguments_schema : tools.calls_schema;
  }
  calls.name = kToolsField + (named ? of_tool(tools.named) : "");
  return calls;
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
    if (openai::alike(reasoning, name)) {
      out.tools = ToolFormat::harmony;
      return out;
    }
  const bool automatic = same_name(reasoning, "auto");
  std::string wanted = reasoning;
  for (const auto& [other, name] : kOtherThinking)
    if (openai::alike(reasoning, other)) wanted = name;
  std::string known = "harmony";
  for (const Thinking& thinking : kThinking) {
    const bool shown = calls.find(thinking.end) != std::string::npos ||
                       plain.find(thinking.end) != std::string::npos ||
                       without_space(plain).ends_with(without_space(thinking.begin));
    known += std::string(", ") + thinking.name;
    if (!(automatic ? shown : openai::alike(wanted, thinking.name))) continue;
    out.think_begin = thinking.begin;
    out.think_end = thinking.end;
    return out;
  }
  if (!automatic) return unknown_name("--reasoning-parser", reasoning, known);
  if (plain.find("<|channel|>") != std::string::npos && plain.find("<|start|>assistant") != std::string::npos)
    out.tools = ToolFormat::harmony;
  return out;
}

void add_template_defaults(const std::string& defaults, ChatRequest& chat) {
  if (defaults.empty()) return;
  const auto all = text::parse_json(defaults, "template variables");
  auto given = chat.template_kwargs.empty() ? Result<text::Json>(text::Json(text::Json::Object{}))
                                            : text::parse_json(chat.template_kwargs, "template variables");
  if (!all || !given || !all->object() || !given->object()) return;
  text::Json::Object merged = *given->object();
  for (const auto& [name, value] : *all->object())
    if (!given->find(name)) merged.emplace_back(name, value);
  chat.template_kwargs = openai::to_text(text::Json(std::move(merged)));
}

std::optional<openai::ApiError> check_tools(const AnswerFormats& formats, const openai::ToolRequest& tools) {
  if (tools.choice == Choice::automatic && formats.tools == ToolFormat::none)
    return openai::bad_request(
        "tools are given, but this model's chat template shows no form of tool calls; start the server with "
        "--tool-call-parser, or set tool_choice to \"required\" or to a function",
        "tools");
  return std::nullopt;
}

openai::ApiError constraint_error(const OutputConstraint& constraint, openai::ApiError error) {
  if (constraint.name.empty() || !error.message.starts_with(constraint.name + ": ")) return error;
  error.param = constraint.name.substr(0, constraint.name.find(" ("));
  constexpr std::string_view kBefore = "#/items/anyOf/", kBehind = "/properties/parameters";
  const size_t at = error.message.find(kBefore);
  if (constraint.name != kToolsField || at == std::string::npos) return error;
  const size_t digits = at + kBefore.size();
  const size_t behind = error.message.find_first_not_of("0123456789", digits);
  const auto schema = text::parse_json(constraint.text, "schema");
  const text::Json* items = schema && behind != std::string::npos ? schema->find("items") : nullptr;
  const text::Json* calls = items && items->object() ? items->find("anyOf") : nullptr;
  if (!calls || error.message.compare(behind, kBehind.size(), kBehind) != 0) return error;
  const text::Json& call = (*calls->array())[std::stoul(error.message.substr(digits, behind - digits))];
  const std::string& name = *call.find("properties")->find("name")->find("const")->string();
  error.message.replace(at, behind + kBehind.size() - at, "#");
  error.message.insert(constraint.name.size(), of_tool(name));
  return error;
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
  const bool harmony = formats.tools == ToolFormat::harmony;
  const bool forced = tools.choice == Choice::required || tools.choice == Choice::named;
  if (harmony || tools.choice == Choice::automatic) {
    format.tools = formats.tools;
    format.types = tools.types;
  } else if (forced) {
    format.tools = tools.choice == Choice::named ? ToolFormat::json_named : ToolFormat::json_array;
    format.named = tools.named;
  }
  format.one_call = !tools.parallel;
  if (auto constraint = constraint_of(formats, tools, request)) {
    const bool may_call = tools.choice == Choice::automatic && openai::is_form_of_text(*constraint);
    if (harmony && !forced) {
      constraint->after.assign(std::begin(kHarmonyFinal), std::end(kHarmonyFinal));
      constraint->may_end_before = may_call;
    } else if (!harmony && thinks && !closed) {
      constraint->after = {formats.think_end};
      if (!format.thinking) constraint->after_begin = formats.think_begin;
    }
    if (!harmony && may_call)
      for (const std::string_view opening : openai::call_openings(formats.tools))
        constraint->instead.emplace_back(opening);
    request.sampling.constraint = std::make_shared<const OutputConstraint>(*std::move(constraint));
  }
  if (!request.splits_reasoning) {
    format.think_begin = format.think_end = "";
    format.thinking = false;
  }
  if (!format.active()) return;
  request.format = std::move(format);
  request.sampling.skip_special_tokens = false;  // tags may be special tokens
}

}  // namespace fovea::server
