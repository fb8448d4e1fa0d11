#pragma once
// Splits an answer into reasoning, content and tool calls while it is generated: one state machine over bytes
// for all formats. What it gives in total does not depend on how the text is cut: text is held back exactly
// while it may still become a tag.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_value.h"

namespace fovea::openai {

/// How a model writes tool calls: vLLM's names of the parsers.
enum class ToolFormat : uint8_t {
  none,
  hermes,         ///< <tool_call>{"name": N, "arguments": {}}</tool_call>
  llama3_json,    ///< {"name": N, "parameters": {}}; ...
  pythonic,       ///< [f(a=1), g()]
  mistral,        ///< [TOOL_CALLS][{"name": N, "arguments": {}}], or [TOOL_CALLS]N[ARGS]{}
  qwen3_coder,    ///< <tool_call><function=N><parameter=K>V</parameter></function></tool_call>
  deepseek_v3,    ///< begin function sep N ```json {} ``` end
  deepseek_v31,   ///< begin N sep {} end
  deepseek_v32,   ///< <DSML invoke name="N"><DSML parameter name="K" string="true">V
  kimi_k2,        ///< begin functions.N:0 argument_begin {} end
  glm4,           ///< <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
  minimax,        ///< <invoke name="N"><parameter name="K">V</parameter></invoke>
  gemma,          ///< <|tool_call>call:N{k:<|"|>V<|"|>,n:1}<tool_call|>
  harmony,        ///< <|channel|>commentary to=functions.N<|message|>{}; reasoning in the channel analysis
  json_array,     ///< [{"name": N, "parameters": {}}]: what a required call is constrained to
  json_named,     ///< the arguments of the one tool that the request names
  functiongemma,  ///< <start_function_call>call:N{k:<escape>V<escape>}<end_function_call>
};
std::string_view to_string(ToolFormat format);
/// Whether two names of formats differ only in case and in the signs - _ .
bool alike(std::string_view a, std::string_view b);
/// By vLLM's and SGLang's names; nullopt = unknown.
std::optional<ToolFormat> parse_tool_format(std::string_view name);
/// The names, for messages and completion.
std::span<const std::string_view> tool_format_names();

/// A part of a tool call. The first part of a call has its id and name.
struct CallDelta {
  int index = 0;
  bool first = false;
  std::string id, name, arguments;
};

/// What a piece of text adds to an answer.
struct AnswerDelta {
  std::string content, reasoning;
  std::vector<CallDelta> calls;
  /// The order in which these came. Neighbours differ in kind, or are parts of different calls.
  enum class Kind : uint8_t { reasoning, content, call };
  struct Piece {
    Kind kind;
    size_t size;  ///< bytes of text; unused for a call, which is the next one of `calls`
  };
  std::vector<Piece> order;

  void add(Kind kind, std::string_view text);
  void add_call(CallDelta call);
  /// Continues call `index`.
  void add_arguments(int index, std::string_view text);
  /// Calls `on_text(kind, text)` and `on_call(call)` in order.
  template <class OnText, class OnCall>
  void visit(const OnText& on_text, const OnCall& on_call) const {
    std::string_view left_content = content, left_reasoning = reasoning;
    size_t call = 0;
    for (const Piece& piece : order) {
      if (piece.kind == Kind::call) {
        on_call(calls[call++]);
        continue;
      }
      std::string_view& left = piece.kind == Kind::content ? left_content : left_reasoning;
      on_text(piece.kind, left.substr(0, piece.size));
      left.remove_prefix(piece.size);
    }
  }
};

struct AnswerFormat {
  ToolFormat tools = ToolFormat::none;
  std::string think_begin, think_end;  ///< "" = the model's answers have no reasoning
  bool thinking = false;               ///< the prompt has opened the reasoning
  std::string named;                   ///< json_named: the tool
  bool one_call = false;               ///< parallel_tool_calls is false: further calls are dropped
  /// By tool: the types that its parameters' schemas name, "string" and others joined by blanks.
  std::map<std::string, std::map<std::string, std::string>> types = {};

  bool active() const { return tools != ToolFormat::none || !think_end.empty(); }
};

/// The tags with which calls begin; none where they are plain text.
std::vector<std::string_view> call_openings(ToolFormat format);

class AnswerParser {
 public:
  /// `new_id`: ids of calls that the text does not have.
  AnswerParser(AnswerFormat format, std::function<std::string()> new_id);

  /// Appends to `out` what `text` adds and later text can't change.
  void push(std::string_view text, AnswerDelta& out);
  /// The end of the answer: what was held back. An unfinished call keeps its arguments so far.
  void finish(AnswerDelta& out);
  int calls() const { return calls_; }
  /// The last call is not whole. In harmony that is not known.
  bool in_call() const { return begun_ && format_.tools != ToolFormat::harmony; }
  /// No reasoning can follow.
  bool past_reasoning() const {
    return format_.tools != ToolFormat::harmony && mode_ != Mode::start && mode_ != Mode::reasoning;
  }
  bool in_reasoning() const {
    return mode_ == Mode::reasoning || (mode_ == Mode::message && recipient_ == "reasoning");
  }

 private:
  enum class Mode : uint8_t {
    start,  // nothing but white space so far
    reasoning,
    content,
    between,    // calls: white space, separators, the section's end
    header,     // of a call, up to its arguments
    object,     // {"name": ..., "arguments": ...}
    arguments,  // raw JSON
    loose,      // JSON-like text with keys and strings in marks of the format's own
    call_end,   // what follows the arguments, up to the end tag
    function,   // XML: up to the first parameter
    parameter,  // XML: the name of a parameter
    value,      // XML: its value
    python,     // [f(...), ...]
    channel,    // harmony: a header
    message,    // harmony: a body
    rest,       // after everything: dropped
  };
  struct Tags;
  friend std::vector<std::string_view> call_openings(ToolFormat format);
  static const Tags& tags_of(ToolFormat format);

  bool step(bool last, AnswerDelta& out);
  bool step_start(bool last, AnswerDelta& out);
  bool step_content(bool last, AnswerDelta& out);
  bool step_between(bool last, AnswerDelta& out);
  bool step_header(AnswerDelta& out);
  bool step_object(AnswerDelta& out);
  bool step_arguments(AnswerDelta& out);
  bool step_loose(bool last, AnswerDelta& out);
  bool step_loose_string(bool last, AnswerDelta& out);
  bool loose_open(std::string_view quote, bool last, bool& waits);
  void loose_value(std::string_view json, AnswerDelta& out);
  void loose_close(AnswerDelta& out);
  bool step_function(AnswerDelta& out);
  bool step_parameter();
  bool step_value(bool last, AnswerDelta& out);
  bool step_python(bool last, AnswerDelta& out);
  bool step_channel(bool last, AnswerDelta& out);
  bool step_message(bool last, AnswerDelta& out);

  /// Moves buffer_ up to the first of `tags` to `text`: true = a tag was found and removed. Otherwise what
  /// can't be the start of one is moved.
  bool take_until(std::span<const std::string_view> tags, bool last, std::string& text,
                  size_t* which = nullptr);
  bool begins_with(std::string_view tag, bool& may) const;
  void skip_space();
  void begin_call(std::string name, std::string id, AnswerDelta& out);
  void add_arguments(std::string_view text, AnswerDelta& out);
  void end_call(AnswerDelta& out);
  void add_content(std::string_view text, AnswerDelta& out);
  /// Whether `c` ends the JSON value that scan_ follows.
  bool scan(char c);
  /// Whether `c`, outside of a string, is no part of JSON but may begin the end tag of a call.
  bool breaks_off(char c) const;
  /// What looked like a call is none: it is content, with all that was held back.
  void not_a_call(AnswerDelta& out);
  std::string value_types() const;
  std::string typed(const std::string& value) const;
  void add_string(std::string_view text, bool ended, AnswerDelta& out);

  AnswerFormat format_;
  std::function<std::string()> new_id_;
  Mode mode_ = Mode::start;
  std::string buffer_;
  std::string blanks_;  // trailing white space of the content, dropped before a call
  bool any_content_ = false;
  int calls_ = 0;
  bool dropping_ = false;  // a call that is one too many
  // The JSON value that is read.
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, started_ = false;
  // An object with name and arguments; the call that is read.
  std::string raw_, name_, key_, recipient_;
  bool begun_ = false, any_parameter_ = false, as_string_ = false, in_list_ = false;
  bool begun_value_ = false;
  size_t member_ = 0;
  std::string opened_;  // the tag of the section or call, with the white space before it
  std::string held_;    // of an object whose name is not known yet
  // Mode::loose: the open brackets, in capitals if they have an element; what comes next; the mark that ends
  // the string, "" = outside of one.
  std::string open_brackets_;
  enum class Loose : uint8_t { key, colon, value, after } loose_ = Loose::key;
  std::string string_end_;
};

/// A parser of the reasoning alone; null = the format has none.
std::unique_ptr<AnswerParser> reasoning_parser(const AnswerFormat& format);

/// The formats that a chat template shows: `calls` is a rendered conversation with a call of the tool
/// `probe_tool` and reasoning.
ToolFormat detect_tool_format(std::string_view rendered);

}  // namespace fovea::openai
