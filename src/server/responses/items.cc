#include "server/responses/items.h"

#include <map>
#include <utility>

#include "base/json_depth.h"
#include "server/openai/request_body.h"

namespace fovea::responses {
namespace {

using openai::Fields;
using openai::Turn;
using text::Json;
using Role = Turn::Role;

class ItemReader {
 public:
  ItemReader(Fields& fields, std::vector<Turn>& turns) : fields_(fields), turns_(turns) {}

  void read() {
    const Json* input = fields_.find("input");
    if (input && input->string())
      return openai::add_turn(turns_, {.role = Role::user, .text = *input->string()});
    if (!input || !input->array() || input->array()->empty())
      return fields_.fail("input", "input is " + (input ? openai::shown(*input) : "missing") +
                                       "; it must be a string or a list of at least one item");
    for (size_t i = 0; i < input->array()->size() && !fields_.error(); ++i)
      read_item((*input->array())[i], "input[" + std::to_string(i) + "]");
  }

 private:
  void read_item(const Json& value, const std::string& at) {
    Fields item(value, at);
    std::string type = "message";
    item.read("type", type);
    for (const char* name : {"id", "status"})
      item.find(name);
    if (item.error()) {
    } else if (type == "message") {
      read_message(item, at);
    } else if (type == "function_call") {
      read_call(item, at);
    } else if (type == "function_call_output") {
      read_result(item, at);
    } else if (type == "reasoning") {
      read_reasoning(item, at);
    } else {
      item.fail("type", at + ".type is " + openai::shown(Json(type)) +
                            "; it must be \"message\", \"function_call\", \"function_call_output\" or "
                            "\"reasoning\": this server stores no answers and runs no tools");
    }
    if (!item.error()) item.close(false);
    fields_.join(item);
  }

  void read_message(Fields& item, const std::string& at) {
    Turn turn;
    std::string role;
    item.read("role", role);
    item.find("phase");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return item.fail("role", at + ".role is " + (role.empty() ? "missing" : openai::shown(Json(role))) +
                                   R"(; it must be "user", "assistant", "system" or "developer")");
    turn.role = role == "user" ? Role::user : role == "assistant" ? Role::assistant : Role::system;
    read_texts(item, "content", at, turn.text);
    if (!item.error()) openai::add_turn(turns_, std::move(turn));
  }

  /// A text, or a list of parts with texts.
  static void read_texts(Fields& item, std::string_view key, const std::string& at, std::string& text) {
    const Json* value = item.find(key);
    const std::string path = at + "." + std::string(key);
    if (value && value->string()) {
      text = *value->string();
      return;
    }
    if (!value || !value->array())
      return item.fail(key, path + " is " + (value ? openai::shown(*value) : "missing") +
                                "; it must be a string or a list of text parts");
    for (size_t i = 0; i < value->array()->size() && !item.error(); ++i) {
      Fields part((*value->array())[i], path + "[" + std::to_string(i) + "]");
      std::string type, words;
      part.read("type", type);
      const bool refusal = type == "refusal";
      for (const char* name : {"annotations", "logprobs"})
        part.find(name);
      if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
          type != "summary_text" && !refusal)
        part.fail("type", part.path_of("type") + " is " +
                              (type.empty() ? "missing" : openai::shown(Json(type))) +
                              "; this server takes text only");
      if (!(refusal ? part.read("refusal", words) : part.read("text", words)))
        part.fail("text", part.path_of("text") + " is missing; it must be a string");
      if (!part.error()) part.close(false);
      item.join(part);
      if (i > 0) text += '\n';
      text += words;
    }
  }

  void read_call(Fields& item, const std::string& at) {
    std::string id, name, arguments;
    item.read("call_id", id);
    item.find("namespace");
    if (!item.read("name", name)) item.fail("name", at + ".name is missing; it must be a string");
    item.read("arguments", arguments);
    auto parsed =
        arguments.empty() ? openai::ApiResult<Json>(Json(Json::Object{})) : openai::parse_body(arguments);
    // Parsed, they are five levels deep in the messages.
    if (!parsed || json_nests_deeper("[[[[[" + arguments))
      return item.fail("arguments", at + ".arguments is " + openai::shown(Json(arguments)) +
                                        "; it must be the JSON text of an object");
    names_[id] = name;
    Turn turn{.role = Role::assistant};
    turn.calls.push_back(openai::tool_call(std::move(id), std::move(name), *std::move(parsed)));
    if (!item.error()) openai::add_turn(turns_, std::move(turn));
  }

  void read_result(Fields& item, const std::string& at) {
    Turn turn{.role = Role::tool};
    if (!item.read("call_id", turn.call_id))
      item.fail("call_id", at + ".call_id is missing; it must be the call_id of a function_call");
    read_texts(item, "output", at, turn.text);
    if (const auto name = names_.find(turn.call_id); name != names_.end()) turn.name = name->second;
    if (!item.error()) openai::add_turn(turns_, std::move(turn));
  }

  void read_reasoning(Fields& item, const std::string& at) {
    item.find("encrypted_content");
    Turn turn{.role = Role::assistant};
    const Json* content = item.find("content");
    const Json* summary = item.find("summary");
    const auto any = [](const Json* list) { return list && list->array() && !list->array()->empty(); };
    if (any(content))
      read_texts(item, "content", at, turn.reasoning);
    else if (any(summary))
      read_texts(item, "summary", at, turn.reasoning);
    if (!item.error() && !turn.reasoning.empty()) openai::add_turn(turns_, std::move(turn));
  }

  Fields& fields_;
  std::vector<Turn>& turns_;
  std::map<std::string, std::string> names_;  // of functions, by the ids of their calls
};

}  // namespace

void read_items(Fields& fields, std::vector<Turn>& turns) {
  ItemReader(fields, turns).read();
}

}  // namespace fovea::responses
