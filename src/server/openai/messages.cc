#include "server/openai/messages.h"

#include <algorithm>
#include <array>

#include "base/json_depth.h"
#include "server/openai/conversation_fields.h"
#include "server/openai/field_table.h"
#include "server/openai/json_writer.h"
#include "server/openai/request_body.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

Json* find(Json& object, std::string_view key) {
  for (auto& [name, value] : *object.object())
    if (name == key) return &value;
  return nullptr;
}

/// Marks fields as known that the chat template gets unchanged.
void ask(Fields& fields, std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    fields.find(name);
}

/// Reads one message; errors go to `fields_`.
class MessageReader {
 public:
  MessageReader(Json& message, std::string path) : message_(message), fields_(message, std::move(path)) {}

  /// Returns the closed fields.
  const Fields& read() {
    if (fields_.error()) return fields_;
    read_role();
    read_content();
    if (fields_.find("tool_calls")) read_tool_calls();
    std::string unused;
    fields_.read("name", unused);
    if (role_ == "tool" && !fields_.read("tool_call_id", unused))
      fields_.fail("tool_call_id", fields_.path_of("tool_call_id") +
                                       " must be a string: the id of the call that a tool's message answers");
    ask(fields_, message_fields());
    fields_.close();
    return fields_;
  }

 private:
  void read_role() {
    const Json* role = fields_.find("role");
    if (role && role->string()) role_ = *role->string();
    if (std::find(kRoles.begin(), kRoles.end(), role_) == kRoles.end()) {
      fields_.fail("role", fields_.path_of("role") + " is " + (role ? shown(*role) : "missing") +
                               R"(; it must be "system", "developer", "user", "assistant" or "tool")");
    }
    if (role_ == "developer") find(message_, "role")->set(std::string("system"));
  }

  void read_content() {
    const Json* content = fields_.find("content");
    if (!content) {
      read_no_content();
      return;
    }
    if (content->string()) return;
    if (!content->array()) {
      fields_.refuse("content", *content, "a string or a list of text parts");
      return;
    }
    std::string text;
    for (size_t i = 0; i < content->array()->size(); ++i) {
      if (i) text += '\n';
      if (!append_part((*content->array())[i], i, text)) return;
    }
    set_content(std::move(text));
  }

  /// Content may be missing in an assistant's message that calls tools or refuses.
  void read_no_content() {
    const Json* refusal = fields_.find("refusal");
    const Json* calls = fields_.find("tool_calls");
    const bool has_calls = calls && !(calls->array() && calls->array()->empty());
    if (role_ != "assistant" || !(refusal || has_calls || fields_.find("function_call")))
      fields_.fail("content", fields_.path_of("content") +
                                  " is missing; only an assistant message with tool_calls may omit it");
    else
      set_content(refusal && refusal->string() ? *refusal->string()
                                               : std::string());  // templates print null as "None"
  }

  bool append_part(const Json& part, size_t index, std::string& text) {
    Fields fields(part, fields_.path_of("content") + "[" + std::to_string(index) + "]");
    std::string type, words;
    fields.read("type", type);
    if (!fields.error() && type != "text" && type != "input_text" && type != "refusal")
      fields.fail("type", fields.path_of("type") + " is " + (type.empty() ? "missing" : shown(Json(type))) +
                              R"(; this server takes text only: {"type": "text", "text": "..."})");
    const std::string_view key = type == "refusal" ? "refusal" : "text";
    if (!fields.read(key, words)) fields.fail(key, fields.path_of(key) + " is missing; it must be a string");
    ask(fields, part_fields());
    if (!fields.error()) fields.close();  // else unknown members, such as an image's, would hide the error
    fields_.join(fields);
    text += words;
    return !fields.error();
  }

  void set_content(std::string text) {
    if (Json* content = find(message_, "content"))
      content->set(std::move(text));
    else
      message_.object()->emplace_back("content", Json(std::move(text)));
  }

  void read_tool_calls() {
    Json& calls = *find(message_, "tool_calls");
    if (!calls.array()) {
      fields_.refuse("tool_calls", calls, "a list");
      return;
    }
    for (size_t i = 0; i < calls.array()->size(); ++i) {
      const std::string path = fields_.path_of("tool_calls") + "[" + std::to_string(i) + "]";
      if (auto error = read_tool_call((*calls.array())[i], path, fields_)) {
        fields_.fail(*std::move(error));
        return;
      }
    }
  }

  static std::optional<ApiError> read_tool_call(Json& call, const std::string& path, Fields& message) {
    Fields fields(call, path);
    if (fields.error()) return fields.error();
    if (!fields.find("function"))
      return bad_request(path + ".function is missing; it must be an object with a name and arguments",
                         path + ".function");
    Json& function = *find(call, "function");
    Fields inner(function, path + ".function");
    std::string name;
    if (!inner.read("name", name))
      inner.fail("name", inner.path_of("name") + " is missing; it must be a string");
    const Json* arguments = inner.find("arguments");
    for (const auto& [reader, names] :
         {std::pair(&fields, call_fields()), std::pair(&inner, function_fields())}) {
      ask(*reader, names);
      reader->close();
      message.join(*reader);
    }
    if (inner.error() || !arguments || !arguments->string()) return inner.error();
    const std::string& text = *arguments->string();
    auto parsed = text.empty() ? Json(Json::Object{}) : parse_arguments(text);
    if (!parsed.object())
      return bad_request(
          inner.path_of("arguments") + " is " + shown(*arguments) + "; it must be the JSON text of an object",
          inner.path_of("arguments"));
    *find(function, "arguments") = std::move(parsed);
    return {};
  }

  static Json parse_arguments(const std::string& text) {
    auto body = parse_body(text);  // the same checks: duplicate keys, depth
    return body ? *std::move(body) : Json();
  }

  Json& message_;
  Fields fields_;
  std::string role_;
};

void read_messages(Fields& fields, ChatRequest& out) {
  const Json* given = fields.find("messages");
  if (!given) {
    fields.fail("messages", "messages is missing; it must be a list of {\"role\", \"content\"}");
    return;
  }
  if (!given->array() || given->array()->empty()) {
    fields.refuse("messages", *given, "a list of at least one {\"role\", \"content\"}");
    return;
  }
  Json messages = *given;
  for (size_t i = 0; i < messages.array()->size(); ++i) {
    MessageReader reader((*messages.array())[i], "messages[" + std::to_string(i) + "]");
    fields.join(reader.read());
    if (fields.error()) return;
  }
  out.messages = to_text(messages);
  // Parsed arguments of tool calls add depth that their text did not have.
  if (json_nests_deeper(out.messages))
    fields.fail("messages", "messages is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
}

/// true or false, or {"type": "enabled"}, as other APIs have it.
void read_thinking(Fields& fields, Json& kwargs) {
  const Json* given = fields.find("thinking");
  if (!given) return;
  const Json* type = given->object() ? given->find("type") : nullptr;
  const std::string word = type && type->string() ? *type->string() : "";
  if (!given->boolean() && word != "enabled" && word != "adaptive" && word != "disabled")
    fields.refuse("thinking", *given, R"(true, false or {"type": "enabled"} or "disabled")");
  else
    set_thinking(*kwargs.object(), given->boolean() ? *given->boolean() : word != "disabled");
}

void read_template_kwargs(Fields& fields, ChatRequest& out) {
  Json kwargs(Json::Object{});
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->object()) {
      fields.refuse("chat_template_kwargs", *given, "an object of the chat template's variables");
      return;
    }
    kwargs = *given;
  }
  if (bool on = true; fields.read("enable_thinking", on)) set_thinking(*kwargs.object(), on);
  read_thinking(fields, kwargs);
  if (std::string effort; fields.read("reasoning_effort", effort)) {
    if (effort == "none") set_thinking(*kwargs.object(), false);
    set_effort(*kwargs.object(), std::move(effort));
  }
  if (!kwargs.object()->empty()) out.template_kwargs = to_text(kwargs);
}

}  // namespace

void read_chat(Fields& fields, ChatRequest& out) {
  read_messages(fields, out);
  fields.read("continue_final_message", out.continue_final_message);
  out.add_generation_prompt = !out.continue_final_message;
  fields.read("add_generation_prompt", out.add_generation_prompt);
  if (out.continue_final_message && out.add_generation_prompt)
    fields.fail("continue_final_message",
                "continue_final_message and add_generation_prompt are both true; one of them must be false");
  if (const Json* documents = fields.find("documents")) {
    if (!documents->array()) fields.refuse("documents", *documents, "a list of objects");
    out.documents = to_text(*documents);
  }
  read_template_kwargs(fields, out);
}

}  // namespace fovea::openai
