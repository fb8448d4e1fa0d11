#include "server/anthropic/request.h"

#include <map>
#include <utility>

#include "server/openai/conversation_fields.h"
#include "server/openai/json_writer.h"

namespace fovea::anthropic {
namespace {

using openai::ApiResult;
using openai::ConversationRequest;
using openai::Fields;
using openai::Turn;
using text::Json;
using Role = Turn::Role;

constexpr std::string_view kBilling = "x-anthropic-billing-header";
constexpr size_t kMaxStops = 1024;

/// Without the line that differs in every request.
std::string without_billing(const std::string& text) {
  if (!text.starts_with(kBilling)) return text;
  const size_t line = text.find('\n');
  return line == std::string::npos ? "" : text.substr(line + 1);
}

void join_lines(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

class Reader {
 public:
  Reader(Fields& fields, ConversationRequest& out) : fields_(fields), out_(out) {}

  void read(bool counts) {
    fields_.read("model", out_.common.model);
    read_system();
    read_messages();
    read_tools();
    read_thinking();
    read_output();
    openai::read_conversation_sampling(fields_, out_.common);
    fields_.read_strings("stop_sequences", out_.common.sampling.stop, kMaxStops);
    fields_.read("stream", out_.common.stream);
    for (const char* name : {"metadata", "service_tier"})
      fields_.find(name);
    int most = 0;
    out_.common.max_tokens_given = fields_.read("max_tokens", most, 1);
    if (out_.common.max_tokens_given) out_.common.sampling.max_tokens = most;
    if (!out_.common.max_tokens_given && !counts)
      fields_.fail("max_tokens", "max_tokens is missing; it must be an integer of 1 or more");
    if (!kwargs_.empty()) out_.chat.template_kwargs = openai::to_text(Json(std::move(kwargs_)));
    // An assistant's turn at the end is the beginning of the answer.
    if (!out_.turns.empty() && out_.turns.back().role == Role::assistant && out_.turns.back().calls.empty()) {
      out_.chat.continue_final_message = true;
      out_.chat.add_generation_prompt = false;
    }
  }

 private:
  /// A string, or a list of text blocks; `what` says where, for messages.
  bool read_texts(const Json& value, const std::string& path, std::string& text, bool system) {
    if (value.string()) {
      text = system ? without_billing(*value.string()) : *value.string();
      return true;
    }
    if (!value.array()) {
      fields_.refuse(path, value, "a string or a list of text blocks");
      return false;
    }
    for (size_t i = 0; i < value.array()->size(); ++i) {
      const std::string at = path + "[" + std::to_string(i) + "]";
      Fields block((*value.array())[i], at);
      std::string type, words;
      block.read("type", type);
      read_text_block(block, type, at, words);
      close(block);
      if (fields_.error()) return false;
      join_lines(text, system ? without_billing(words) : words);
    }
    return true;
  }

  void read_text_block(Fields& block, const std::string& type, const std::string& at, std::string& text) {
    block.find("cache_control");
    block.find("citations");
    if (type == "text") {
      if (!block.read("text", text)) block.fail("text", at + ".text is missing; it must be a string");
      return;
    }
    if (type == "search_result") return read_search_result(block, at, text);
    if (type == "tool_reference") {  // what a search for tools has found
      if (!block.read("tool_name", text))
        block.fail("tool_name", at + ".tool_name is missing; it must be a string");
      return;
    }
    const Json* source = type == "document" ? block.find("source") : nullptr;
    const Json* kind = source && source->object() ? source->find("type") : nullptr;
    const Json* data = source && source->object() ? source->find("data") : nullptr;
    for (const char* name : {"title", "context"})
      block.find(name);
    if (kind && kind->string() && *kind->string() == "text" && data && data->string()) {
      text = *data->string();
      return;
    }
    block.fail("type", at + ".type is " + (type.empty() ? "missing" : openai::shown(Json(type))) +
                           "; this server takes text only");
  }

  /// Its source, its title and its text.
  void read_search_result(Fields& block, const std::string& at, std::string& text) {
    for (const char* name : {"source", "title"})
      if (std::string words; block.read(name, words)) join_lines(text, words);
    if (const Json* content = block.find("content")) {
      std::string words;
      read_texts(*content, at + ".content", words, false);
      join_lines(text, words);
    }
  }

  void close(Fields& nested) {
    if (!nested.error()) nested.close(false);  // else unknown members, as an image's, would hide the error
    fields_.join(nested);
  }

  void read_system() {
    const Json* system = fields_.find("system");
    if (!system) return;
    std::string text;
    if (read_texts(*system, "system", text, true) && !text.empty())
      openai::add_turn(out_.turns, {.role = Role::system, .text = std::move(text)});
  }

  void read_messages() {
    const Json* given = fields_.find("messages");
    if (!given || !given->array() || given->array()->empty())
      return fields_.fail("messages", "messages is " + (given ? openai::shown(*given) : "missing") +
                                          "; it must be a list of at least one {\"role\", \"content\"}");
    for (size_t i = 0; i < given->array()->size() && !fields_.error(); ++i)
      read_message((*given->array())[i], "messages[" + std::to_string(i) + "]");
  }

  void read_message(const Json& message, const std::string& path) {
    Fields fields(message, path);
    std::string role;
    fields.read("role", role);
    if (!fields.error() && role != "user" && role != "assistant" && role != "system")
      fields.fail("role", path + ".role is " + (role.empty() ? "missing" : openai::shown(Json(role))) +
                              R"(; it must be "user", "assistant" or "system")");
    const Json* content = fields.find("content");
    if (!fields.error() && !(content && (content->string() || content->array())))
      fields.fail("content", path + ".content is " + (content ? openai::shown(*content) : "missing") +
                                 "; it must be a string or a list of blocks");
    close(fields);
    if (fields_.error()) return;
    Turn turn;
    turn.role = role == "user" ? Role::user : role == "system" ? Role::system : Role::assistant;
    if (turn.role == Role::system) {
      if (read_texts(*content, path + ".content", turn.text, true) && !turn.text.empty())
        openai::add_turn(out_.turns, std::move(turn));
      return;
    }
    if (content->string()) {
      turn.text = *content->string();
      return openai::add_turn(out_.turns, std::move(turn));
    }
    bool any = turn.role == Role::assistant || content->array()->empty();
    for (size_t i = 0; i < content->array()->size() && !fields_.error(); ++i) {
      const std::string at = path + ".content[" + std::to_string(i) + "]";
      any |= read_block((*content->array())[i], at, turn);
    }
    if (any) openai::add_turn(out_.turns, std::move(turn));
  }

  /// True if the block belongs to the turn; a tool's result is a turn of its own.
  bool read_block(const Json& value, const std::string& at, Turn& turn) {
    Fields block(value, at);
    std::string type;
    block.read("type", type);
    bool own = true;
    if (turn.role == Role::user && type == "tool_result") {
      read_result(block, at, turn);
      own = false;
    } else if (turn.role == Role::assistant && type == "tool_use") {
      read_call(block, at, turn);
    } else if (turn.role == Role::assistant && type == "thinking") {
      std::string words;
      block.read("thinking", words);
      block.find("signature");
      join_lines(turn.reasoning, words);
    } else if (turn.role == Role::assistant && type == "redacted_thinking") {
      block.find("data");
    } else if (turn.role == Role::assistant &&
               (type == "server_tool_use" || type.ends_with("_tool_result"))) {
      fields_.ignore(at);  // ran at another provider
      return own;
    } else {
      std::string words;
      read_text_block(block, type, at, words);
      join_lines(turn.text, words);
    }
    close(block);
    return own;
  }

  void read_result(Fields& block, const std::string& at, Turn& turn) {
    Turn result{.role = Role::tool};
    if (!block.read("tool_use_id", result.call_id))
      block.fail("tool_use_id", at + ".tool_use_id is missing; it must be the id of a tool_use block");
    for (const char* name : {"is_error", "cache_control"})
      block.find(name);
    if (const Json* content = block.find("content"))
      read_texts(*content, at + ".content", result.text, false);
    if (const auto name = names_.find(result.call_id); name != names_.end()) result.name = name->second;
    if (!turn.text.empty()) openai::add_turn(out_.turns, std::exchange(turn, {.role = Role::user}));
    openai::add_turn(out_.turns, std::move(result));
  }

  void read_call(Fields& block, const std::string& at, Turn& turn) {
    std::string id, name;
    block.read("id", id);
    for (const char* other : {"cache_control", "caller"})
      block.find(other);
    if (!block.read("name", name) || name.empty())
      block.fail("name", at + ".name is missing; it must be a string");
    const Json* input = block.find("input");
    if (input && !input->object()) block.refuse("input", *input, "an object");
    names_[id] = name;
    turn.calls.push_back(openai::tool_call(std::move(id), std::move(name),
                                           input && input->object() ? *input : Json(Json::Object{})));
  }

  void read_tools() {
    const Json* tools = fields_.find("tools");
    Json::Array list;
    if (tools && !tools->array()) return fields_.refuse("tools", *tools, "a list");
    for (size_t i = 0; tools && i < tools->array()->size(); ++i) {
      const std::string at = "tools[" + std::to_string(i) + "]";
      Fields tool((*tools->array())[i], at);
      std::string type = "custom", name, description;
      tool.read("type", type);
      if (type != "custom" && !tool.error()) {  // runs at the provider
        fields_.ignore(at);
        continue;
      }
      tool.read("name", name);
      const bool described = tool.read("description", description);
      const Json* schema = tool.find("input_schema");
      if (schema && !schema->object()) tool.refuse("input_schema", *schema, "a JSON schema");
      if (name.empty()) tool.fail("name", at + ".name is missing; it must be a string");
      for (const char* other : {"cache_control", "strict", "input_examples", "eager_input_streaming",
                                "defer_loading", "allowed_callers"})
        tool.find(other);
      close(tool);
      list.push_back(openai::function_tool(std::move(name), described ? &description : nullptr,
                                           schema && schema->object() ? schema : nullptr));
    }
    Json choice;
    bool parallel = true;
    read_choice(choice, parallel);
    if (!fields_.error()) openai::take_tools(fields_, std::move(list), std::move(choice), parallel, out_);
  }

  void read_choice(Json& choice, bool& parallel) {
    const Json* given = fields_.find("tool_choice");
    if (!given) return;
    Fields fields(*given, "tool_choice");
    std::string type, name;
    fields.read("type", type);
    bool single = false;
    fields.read("disable_parallel_tool_use", single);
    parallel = !single;
    if (type == "tool") {
      if (!fields.read("name", name)) fields.fail("name", "tool_choice.name is missing; it must be a string");
      choice = openai::named_choice(std::move(name));
    } else if (type == "auto" || type == "none") {
      choice.set(type);
    } else if (type == "any") {
      choice.set(std::string("required"));
    } else if (!fields.error()) {
      fields.fail("type", "tool_choice.type is " + (type.empty() ? "missing" : openai::shown(Json(type))) +
                              R"(; it must be "auto", "any", "tool" or "none")");
    }
    close(fields);
  }

  void read_thinking() {
    if (const Json* given = fields_.find("chat_template_kwargs")) {
      if (!given->object())
        return fields_.refuse("chat_template_kwargs", *given, "an object of the chat template's variables");
      kwargs_ = *given->object();
    }
    const Json* given = fields_.find("thinking");
    if (!given) return;
    Fields fields(*given, "thinking");
    std::string type;
    fields.read("type", type);
    for (const char* name : {"budget_tokens", "display"})
      fields.find(name);
    if (!fields.error() && type != "enabled" && type != "disabled" && type != "adaptive")
      fields.fail("type", "thinking.type is " + (type.empty() ? "missing" : openai::shown(Json(type))) +
                              R"(; it must be "enabled", "adaptive" or "disabled")");
    close(fields);
    openai::set_thinking(kwargs_, type != "disabled");
  }

  void read_output() {
    const Json* older = fields_.find("output_format");
    const Json* given = fields_.find("output_config");
    const Json* format = older;
    std::string path = "output_format";
    if (given) {
      Fields fields(*given, "output_config");
      if (std::string effort; fields.read("effort", effort)) openai::set_effort(kwargs_, std::move(effort));
      if (const Json* newer = fields.find("format")) {
        format = newer;
        path = "output_config.format";
      }
      close(fields);
    }
    if (!format) return;
    Fields fields(*format, path);
    std::string type;
    fields.read("type", type);
    const Json* schema = fields.find("schema");
    if (!fields.error() && (type != "json_schema" || !schema || !schema->object()))
      fields.fail("type", path + R"( must be {"type": "json_schema", "schema": {...}})");
    if (schema)
      openai::constrain_to_schema(out_.common, "output_config.format", openai::to_text(*schema), false);
    close(fields);
  }

  Fields& fields_;
  ConversationRequest& out_;
  std::map<std::string, std::string> names_;  // of tools, by the ids of their calls
  Json::Object kwargs_;
};

}  // namespace

ApiResult<ConversationRequest> parse_messages(std::string_view body, const openai::ParseOptions& options,
                                              bool counts) {
  return openai::parse_conversation(body, options, [counts](Fields& fields, ConversationRequest& out) {
    Reader(fields, out).read(counts);
  });
}

}  // namespace fovea::anthropic
