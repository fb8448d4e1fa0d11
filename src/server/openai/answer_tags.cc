// The names and tags of the formats of tool calls.
#include "server/openai/answer_tags.h"

#include <algorithm>
#include <array>

#include "base/same_name.h"

namespace fovea::openai {
namespace {

struct Name {
  ToolFormat format;
  std::string_view name;
};
constexpr Name kNames[] = {
    {ToolFormat::none, "none"},
    {ToolFormat::hermes, "hermes"},
    {ToolFormat::llama3_json, "llama3_json"},
    {ToolFormat::pythonic, "pythonic"},
    {ToolFormat::mistral, "mistral"},
    {ToolFormat::qwen3_coder, "qwen3_coder"},
    {ToolFormat::deepseek_v3, "deepseek_v3"},
    {ToolFormat::deepseek_v31, "deepseek_v31"},
    {ToolFormat::deepseek_v32, "deepseek_v32"},
    {ToolFormat::kimi_k2, "kimi_k2"},
    {ToolFormat::glm4, "glm4"},
    {ToolFormat::minimax, "minimax"},
    {ToolFormat::gemma, "gemma"},
    {ToolFormat::harmony, "harmony"},
    {ToolFormat::functiongemma, "functiongemma"},
};
/// What others call the same formats, without the signs that alike() leaves out.
constexpr Name kOtherNames[] = {
    {ToolFormat::hermes, "qwen"},
    {ToolFormat::hermes, "qwen25"},
    {ToolFormat::hermes, "qwen3"},
    {ToolFormat::llama3_json, "llama3"},
    {ToolFormat::llama3_json, "llama4json"},
    {ToolFormat::pythonic, "llama4pythonic"},
    {ToolFormat::pythonic, "llama4"},
    {ToolFormat::qwen3_coder, "qwen3xml"},
    {ToolFormat::qwen3_coder, "qwen35"},
    {ToolFormat::deepseek_v31, "v31"},
    {ToolFormat::deepseek_v32, "v32"},
    {ToolFormat::deepseek_v32, "deepseekv4"},
    {ToolFormat::deepseek_v3, "deepseekr1"},
    {ToolFormat::kimi_k2, "kimi"},
    {ToolFormat::glm4, "glm"},
    {ToolFormat::glm4, "glm45"},
    {ToolFormat::glm4, "glm47"},
    {ToolFormat::minimax, "minimaxm2"},
    {ToolFormat::gemma, "gemma4"},
    {ToolFormat::harmony, "openai"},
    {ToolFormat::harmony, "gptoss"},
};

constexpr auto kNameList = [] {
  std::array<std::string_view, std::size(kNames)> list{};
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = kNames[i].name;
  return list;
}();

}  // namespace

bool alike(std::string_view a, std::string_view b) {
  const auto plain = [](std::string_view name) {
    std::string out;
    for (const char c : name)
      if (c != '-' && c != '_' && c != '.') out += c;
    return out;
  };
  return same_name(plain(a), plain(b));
}

std::string_view to_string(ToolFormat format) {
  for (const Name& known : kNames)
    if (known.format == format) return known.name;
  return "json";
}

std::optional<ToolFormat> parse_tool_format(std::string_view name) {
  for (const Name& known : kNames)
    if (alike(known.name, name)) return known.format;
  for (const Name& known : kOtherNames)
    if (alike(known.name, name)) return known.format;
  return std::nullopt;
}

std::span<const std::string_view> tool_format_names() {
  return kNameList;
}

std::string_view without_space(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kAnswerSpace), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kAnswerSpace) + 1);
}

const AnswerParser::Tags& AnswerParser::tags_of(ToolFormat format) {
  static const Tags none{{}, "", "", "", Mode::content, "", "", "", "", ""};
  static const Tags hermes{{"<tool_call>"}, "", "</tool_call>", "", Mode::object, "", "", "", "", ""};
  static const Tags mistral{{"[TOOL_CALLS]"}, "", "", "", Mode::header, "", "", "", "", ""};
  static const Tags qwen{{"<tool_call>", "<function="},
                         "<function=",
                         "",
                         "</tool_call>",
                         Mode::function,
                         ">",
                         "<parameter=",
                         ">",
                         "</parameter>",
                         "</function>"};
  static const Tags deepseek{{"<｜tool▁calls▁begin｜>"},
                             "<｜tool▁call▁begin｜>",
                             "<｜tool▁call▁end｜>",
                             "<｜tool▁calls▁end｜>",
                             Mode::header,
                             "",
                             "",
                             "",
                             "",
                             ""};
  static const Tags dsml{{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
                         "<｜DSML｜invoke name=\"",
                         "",
                         "</｜DSML｜function_calls>",
                         Mode::function,
                         "\">",
                         "<｜DSML｜parameter name=\"",
                         ">",
                         "</｜DSML｜parameter>",
                         "</｜DSML｜invoke>"};
  static const Tags kimi{{"<|tool_calls_section_begin|>"},
                         "<|tool_call_begin|>",
                         "<|tool_call_end|>",
                         "<|tool_calls_section_end|>",
                         Mode::header,
                         "",
                         "",
                         "",
                         "",
                         ""};
  static const Tags glm{
      {"<tool_call>"}, "", "", "", Mode::function, "", "<arg_key>", "</arg_key>", "</arg_value>",
      "</tool_call>"};
  static const Tags minimax{{"<minimax:tool_call>"},
                            "<invoke name=\"",
                            "",
                            "</minimax:tool_call>",
                            Mode::function,
                            "\">",
                            "<parameter name=\"",
                            "\">",
                            "</parameter>",
                            "</invoke>"};
  static const Tags gemma{{"<|tool_call>"}, "", "<tool_call|>", "", Mode::header, "", "", "", "", ""};
  static const Tags functiongemma{
      {"<start_function_call>"}, "", "<end_function_call>", "", Mode::header, "", "", "", "", ""};
  switch (format) {
    case ToolFormat::functiongemma: return functiongemma;
    case ToolFormat::hermes: return hermes;
    case ToolFormat::mistral: return mistral;
    case ToolFormat::qwen3_coder: return qwen;
    case ToolFormat::deepseek_v3:
    case ToolFormat::deepseek_v31: return deepseek;
    case ToolFormat::deepseek_v32: return dsml;
    case ToolFormat::kimi_k2: return kimi;
    case ToolFormat::glm4: return glm;
    case ToolFormat::minimax: return minimax;
    case ToolFormat::gemma: return gemma;
    default: return none;
  }
}

std::vector<std::string_view> call_openings(ToolFormat format) {
  return AnswerParser::tags_of(format).open;
}

ToolFormat detect_tool_format(std::string_view rendered) {
  const auto has = [&](std::string_view tag) { return rendered.find(tag) != std::string_view::npos; };
  if (has("to=functions.")) return ToolFormat::harmony;
  if (has("<｜DSML｜")) return ToolFormat::deepseek_v32;
  if (has("<｜tool▁call▁begin｜>"))
    return has("<｜tool▁call▁begin｜>function<｜tool▁sep｜>") ? ToolFormat::deepseek_v3
                                                              : ToolFormat::deepseek_v31;
  if (has("<|tool_call_begin|>")) return ToolFormat::kimi_k2;
  if (has("<minimax:tool_call>")) return ToolFormat::minimax;
  if (has("[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has("<arg_key>")) return ToolFormat::glm4;
  if (has("<function=")) return ToolFormat::qwen3_coder;
  if (has("<tool_call>")) return ToolFormat::hermes;
  if (has("<|tool_call>")) return ToolFormat::gemma;
  if (has("<start_function_call>")) return ToolFormat::functiongemma;
  if (has("probe_tool(")) return ToolFormat::pythonic;
  if (has("\"name\": \"probe_tool\", \"parameters\"")) return ToolFormat::llama3_json;
  return ToolFormat::none;
}

}  // namespace fovea::openai
