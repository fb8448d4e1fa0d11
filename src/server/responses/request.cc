#include "server/responses/request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "server/openai/conversation_fields.h"
#include "server/openai/json_writer.h"
#include "server/responses/items.h"

namespace fovea::responses {
namespace {

using openai::ApiResult;
using openai::ConversationRequest;
using openai::Fields;
using openai::Turn;
using text::Json;

class Reader {
 public:
  Reader(Fields& fields, ConversationRequest& out, Echo& echo) : fields_(fields), out_(out), echo_(echo) {}

  void read() {
    refuse_state();
    fields_.read("model", out_.common.model);
    if (std::string text; fields_.read("instructions", text)) {
      echo_.instructions = openai::to_text(Json(text));
      if (!text.empty()) openai::add_turn(out_.turns, {.role = Turn::Role::system, .text = std::move(text)});
    }
    read_items(fields_, out_.turns);
    read_tools();
    read_text();
    read_reasoning();
    openai::read_conversation_sampling(fields_, out_.common);
    fields_.read("stream", out_.common.stream);
    int most = 0, top = 0;
    out_.common.max_tokens_given = fields_.read("max_output_tokens", most, 1);
    if (out_.common.max_tokens_given) out_.common.sampling.max_tokens = most;
    if (fields_.read("top_logprobs", top, 0) && top > 0)
      fields_.fail("top_logprobs", "top_logprobs is not supported here; use /v1/chat/completions");
    if (const Json* metadata = fields_.find("metadata"); metadata && metadata->object())
      echo_.metadata = openai::to_text(*metadata);
    for (const char* name : {"store", "include", "user", "safety_identifier", "prompt_cache_key",
                             "prompt_cache_retention", "service_tier", "stream_options", "max_tool_calls"})
      fields_.find(name);
    if (!kwargs_.empty()) out_.chat.template_kwargs = openai::to_text(Json(std::move(kwargs_)));
  }

 private:
  /// What would change the answer.
  void refuse_state() {
    for (const char* name : {"previous_response_id", "conversation"})
      if (fields_.find(name))
        fields_.fail(openai::bad_request(
            std::string(name) + ": this server stores no answers; send the whole conversation as input", name,
            "unsupported_parameter"));
    if (fields_.find("prompt"))
      fields_.fail(openai::bad_request("prompt: this server stores no prompts; send its text as input",
                                       "prompt", "unsupported_parameter"));
    if (bool background = false; fields_.read("background", background) && background)
      fields_.fail(openai::bad_request("background: answers are not stored; use stream", "background",
                                       "unsupported_parameter"));
    if (std::string truncation;
        fields_.read("truncation", truncation) && truncation != "disabled" && truncation != "auto")
      fields_.refuse("truncation", Json(truncation), R"("disabled")");
    else if (truncation == "auto")
      fields_.ignore("truncation");
  }

  void read_tools() {
    const Json* tools = fields_.find("tools");
    if (tools && !tools->array()) return fields_.refuse("tools", *tools, "a list");
    Json::Array list;
    for (size_t i = 0; tools && i < tools->array()->size(); ++i) {
      const std::string at = "tools[" + std::to_string(i) + "]";
      Fields tool((*tools->array())[i], at);
      std::string type, name, description;
      tool.read("type", type);
      if (type != "function" && !tool.error()) {  // runs at the provider, or is no function
        fields_.ignore(at);
        continue;
      }
      tool.read("name", name);
      const bool described = tool.read("description", description);
      const Json* parameters = tool.find("parameters");
      if (parameters && !parameters->object()) tool.refuse("parameters", *parameters, "a JSON schema");
      if (name.empty()) tool.fail("name", at + ".name is missing; it must be a string");
      for (const char* other : {"strict", "defer_loading"})
        tool.find(other);
      tool.close(false);
      fields_.join(tool);
      list.push_back(openai::function_tool(std::move(name), described ? &description : nullptr, parameters));
    }
    if (tools) echo_.tools = openai::to_text(*tools);
    Json choice = read_choice(list);
    fields_.read("parallel_tool_calls", echo_.parallel);
    if (!fields_.error())
      openai::take_tools(fields_, std::move(list), std::move(choice), echo_.parallel, out_);
  }

  /// tool_choice as chats have it. allowed_tools leaves only those in `list`.
  Json read_choice(Json::Array& list) {
    const Json* given = fields_.find("tool_choice");
    if (!given) return Json();
    echo_.tool_choice = openai::to_text(*given);
    const Json* type = given->object() ? given->find("type") : nullptr;
    if (!type || !type->string()) return *given;
    if (*type->string() == "function") {
      const Json* name = given->find("name");
      return name && name->string() ? openai::named_choice(*name->string()) : *given;
    }
    if (*type->string() != "allowed_tools") {
      fields_.ignore("tool_choice");
      return Json();
    }
    const Json* allowed = given->find("tools");
    const Json* mode = given->find("mode");
    if (!allowed || !allowed->array()) {
      fields_.refuse("tool_choice", *given, R"({"type": "allowed_tools", "mode": ..., "tools": [...]})");
      return Json();
    }
    std::erase_if(list, [&](const Json& tool) {
      const std::string& own = *tool.find("function")->find("name")->string();
      return std::ranges::none_of(*allowed->array(), [&](const Json& each) {
        const Json* name = each.object() ? each.find("name") : nullptr;
        return name && name->string() && *name->string() == own;
      });
    });
    return mode ? *mode : Json();
  }

  void read_text() {
    const Json* given = fields_.find("text");
    if (!given) return;
    Fields fields(*given, "text");
    fields.find("verbosity");
    if (const Json* format = fields.find("format")) read_format(*format, fields);
    fields.close(false);
    fields_.join(fields);
  }

  void read_format(const Json& value, Fields& outer) {
    Fields format(value, "text.format");
    std::string type;
    format.read("type", type);
    for (const char* name : {"name", "description"})
      format.find(name);
    bool strict = false;
    format.read("strict", strict);
    const Json* schema = format.find("schema");
    if (type == "json_schema" && schema && schema->object()) {
      openai::constrain_to_schema(out_.common, "text.format", openai::to_text(*schema), strict);
    } else if (type == "json_object") {
      OutputConstraint constraint;
      constraint.name = "text.format";
      constraint.kind = OutputConstraint::Kind::json_object;
      out_.common.sampling.constraint = std::make_shared<const OutputConstraint>(std::move(constraint));
    } else if (type != "text" && !format.error()) {
      format.fail("type",
                  "text.format must be of type \"text\", \"json_object\", or \"json_schema\" with a "
                  "schema; its type is " +
                      (type.empty() ? "missing" : openai::shown(Json(type))));
    }
    echo_.text = "{\"format\":" + openai::to_text(value) + "}";
    format.close(false);
    outer.join(format);
  }

  void read_reasoning() {
    if (const Json* given = fields_.find("chat_template_kwargs")) {
      if (!given->object())
        return fields_.refuse("chat_template_kwargs", *given, "an object of the chat template's variables");
      kwargs_ = *given->object();
    }
    const Json* given = fields_.find("reasoning");
    if (!given) return;
    Fields fields(*given, "reasoning");
    for (const char* name : {"summary", "generate_summary", "encrypted_content"})
      fields.find(name);
    if (std::string effort; fields.read("effort", effort)) {
      openai::set_thinking(kwargs_, effort != "none");
      if (effort != "none") openai::set_effort(kwargs_, std::move(effort));
    }
    fields.close(false);
    fields_.join(fields);
    echo_.reasoning = openai::to_text(*given);
  }

  Fields& fields_;
  ConversationRequest& out_;
  Echo& echo_;
  Json::Object kwargs_;
};

}  // namespace

ApiResult<ResponsesRequest> parse_responses(std::string_view body, const openai::ParseOptions& options) {
  Echo echo;
  auto parsed = openai::parse_conversation(
      body, options, [&](Fields& fields, ConversationRequest& out) { Reader(fields, out, echo).read(); });
  if (!parsed) return std::move(parsed).error();
  return ResponsesRequest{*std::move(parsed), std::move(echo)};
}

}  // namespace fovea::responses
