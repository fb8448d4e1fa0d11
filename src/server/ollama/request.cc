#include "server/ollama/request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "server/openai/conversation_fields.h"
#include "server/openai/json_writer.h"

namespace fovea::ollama {
namespace {

using openai::ApiResult;
using openai::ConversationRequest;
using openai::Fields;
using openai::Turn;
using text::Json;
using Role = Turn::Role;

constexpr size_t kMaxStops = 1024;
/// Options of memory and threads, which the server's flags decide.
constexpr const char* kServerOptions[] = {"num_ctx",    "num_batch", "num_gpu",   "main_gpu",
                                          "num_thread", "use_mmap",  "use_mlock", "low_vram",
                                          "numa",       "num_keep",  "f16_kv",    "vocab_only"};

class Reader {
 public:
  Reader(Fields& fields, ConversationRequest& out, OllamaRequest& ollama)
      : fields_(fields), out_(out), ollama_(ollama) {}

  void read_chat() {
    const Json* messages = fields_.find("messages");
    if (messages && !messages->array()) return fields_.refuse("messages", *messages, "a list of messages");
    ollama_.only_loads = !messages || messages->array()->empty();
    for (size_t i = 0; messages && i < messages->array()->size() && !fields_.error(); ++i)
      read_message((*messages->array())[i], "messages[" + std::to_string(i) + "]");
    const Json* tools = fields_.find("tools");
    if (tools && !tools->array()) return fields_.refuse("tools", *tools, "a list");
    if (!fields_.error())
      openai::take_tools(fields_, tools ? *tools->array() : Json::Array(), Json(), true, out_);
    // An assistant's turn at the end is the beginning of the answer.
    if (!out_.turns.empty() && out_.turns.back().role == Role::assistant && out_.turns.back().calls.empty()) {
      out_.chat.continue_final_message = true;
      out_.chat.add_generation_prompt = false;
    }
    read_rest();
  }

  void read_generate() {
    ollama_.generates = true;
    fields_.read("raw", ollama_.raw);
    std::string system;
    fields_.read("prompt", ollama_.prompt);
    fields_.read("system", system);
    refuse_unless_empty(fields_, "suffix", "write the model's fill-in-the-middle tokens into a raw prompt");
    refuse_unless_empty(fields_, "template", "start the server with --chat-template, or use raw");
    refuse_unless_empty(fields_, "images", "this server takes text only");
    ollama_.only_loads = ollama_.prompt.empty();
    out_.common.add_special_tokens = ollama_.raw;
    if (!system.empty()) openai::add_turn(out_.turns, {.role = Role::system, .text = std::move(system)});
    openai::add_turn(out_.turns, {.role = Role::user, .text = ollama_.prompt});
    read_rest();
  }

 private:
  static void refuse_unless_empty(Fields& fields, std::string_view key, const std::string& instead) {
    const Json* value = fields.find(key);
    if (!value || (value->string() && value->string()->empty()) ||
        (value->array() && value->array()->empty()))
      return;
    fields.fail(key, fields.path_of(key) + " is not supported: " + instead);
  }

  void read_message(const Json& value, const std::string& at) {
    Fields fields(value, at);
    Turn turn;
    std::string role;
    fields.read("role", role);
    if (role != "user" && role != "assistant" && role != "system" && role != "tool")
      fields.fail("role", at + ".role is " + (role.empty() ? "missing" : openai::shown(Json(role))) +
                              R"(; it must be "system", "user", "assistant" or "tool")");
    turn.role = role == "user"        ? Role::user
                : role == "assistant" ? Role::assistant
                : role == "tool"      ? Role::tool
                                      : Role::system;
    fields.read("content", turn.text);
    refuse_unless_empty(fields, "images", "this server takes text only");
    std::string thinking, name, id;
    fields.read("thinking", thinking);
    fields.read("tool_name", name);
    fields.read("tool_call_id", id);
    if (turn.role == Role::assistant) turn.reasoning = std::move(thinking);
    if (turn.role == Role::tool) {
      turn.name = std::move(name);
      turn.call_id = id.empty() ? ids_[turn.name] : std::move(id);
    }
    if (const Json* calls = fields.find("tool_calls")) read_calls(*calls, fields, turn);
    if (!fields.error()) fields.close(false);
    fields_.join(fields);
    if (!fields_.error()) openai::add_turn(out_.turns, std::move(turn));
  }

  void read_calls(const Json& calls, Fields& message, Turn& turn) {
    if (!calls.array()) return message.refuse("tool_calls", calls, "a list");
    for (size_t i = 0; i < calls.array()->size(); ++i) {
      Fields call((*calls.array())[i], message.path_of("tool_calls") + "[" + std::to_string(i) + "]");
      std::string id, name;
      call.read("id", id);
      call.find("type");
      const Json* function = call.find("function");
      const Json* named = function && function->object() ? function->find("name") : nullptr;
      const Json* arguments = function && function->object() ? function->find("arguments") : nullptr;
      if (!named || !named->string()) call.fail("function", call.path_of("function") + " must have a name");
      if (arguments && !arguments->object())
        call.fail("function", call.path_of("function.arguments") + " must be an object");
      if (!call.error()) call.close(false);
      message.join(call);
      if (call.error()) return;
      name = *named->string();
      if (id.empty()) id = "call_" + std::to_string(calls_++);  // templates may want one
      ids_[name] = id;
      turn.calls.push_back(
          openai::tool_call(std::move(id), std::move(name), arguments ? *arguments : Json(Json::Object{})));
    }
  }

  void read_rest() {
    fields_.read("model", out_.common.model);
    out_.common.stream = true;
    fields_.read("stream", out_.common.stream);
    fields_.find("keep_alive");
    read_format();
    read_think();
    const Json* given = fields_.find("options");
    if (!given) return;
    Fields options(*given, "options");
    read_options(options);
    if (!options.error()) options.close(false);
    fields_.join(options);
  }

  void read_options(Fields& options) {
    for (const char* name : kServerOptions)
      options.find(name);
    options.find("repeat_last_n");
    openai::read_conversation_sampling(options, out_.common);
    SamplingParams& sampling = out_.common.sampling;
    options.read("repeat_penalty", sampling.repetition_penalty);
    options.read_string_or_strings("stop", sampling.stop, kMaxStops);
    int most = 0;
    // -1 and -2: to the end of the context
    if (options.read("num_predict", most, -2) && most >= 0) {
      out_.common.max_tokens_given = true;
      sampling.max_tokens = std::max(most, 1);
    }
  }

  void read_format() {
    const Json* format = fields_.find("format");
    if (!format || (format->string() && format->string()->empty())) return;
    if (format->object())
      return openai::constrain_to_schema(out_.common, "format", openai::to_text(*format), false);
    if (!format->string() || *format->string() != "json")
      return fields_.refuse("format", *format, "\"json\" or a JSON schema");
    OutputConstraint constraint;
    constraint.name = "format";
    constraint.kind = OutputConstraint::Kind::json_object;
    out_.common.sampling.constraint = std::make_shared<const OutputConstraint>(std::move(constraint));
  }

  void read_think() {
    const Json* think = fields_.find("think");
    if (!think) return;
    if (!think->boolean() && !think->string())
      return fields_.refuse("think", *think, R"(true, false, "low", "medium" or "high")");
    Json::Object kwargs;
    openai::set_thinking(kwargs, !think->boolean() || *think->boolean());
    if (think->string()) openai::set_effort(kwargs, *think->string());
    out_.chat.template_kwargs = openai::to_text(Json(std::move(kwargs)));
  }

  Fields& fields_;
  ConversationRequest& out_;
  OllamaRequest& ollama_;
  std::map<std::string, std::string> ids_;  // of the last call of each tool
  int calls_ = 0;
};

template <class Read>
ApiResult<OllamaRequest> parse(std::string_view body, const openai::ParseOptions& options, const Read& read) {
  OllamaRequest out;
  auto parsed = openai::parse_conversation(body, options, [&](Fields& fields, ConversationRequest& request) {
    Reader reader(fields, request, out);
    read(reader);
  });
  if (!parsed) return std::move(parsed).error();
  out.conversation = *std::move(parsed);
  return out;
}

}  // namespace

ApiResult<OllamaRequest> parse_chat(std::string_view body, const openai::ParseOptions& options) {
  return parse(body, options, [](Reader& reader) { reader.read_chat(); });
}

ApiResult<OllamaRequest> parse_generate(std::string_view body, const openai::ParseOptions& options) {
  return parse(body, options, [](Reader& reader) { reader.read_generate(); });
}

ApiResult<std::string> parse_show(std::string_view body) {
  auto json = openai::parse_body(body);
  if (!json) return std::move(json).error();
  Fields fields(*json);
  std::string name;
  if (!fields.read("model", name)) fields.read("name", name);
  if (fields.error()) return *fields.error();
  return name;
}

}  // namespace fovea::ollama
