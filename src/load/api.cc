#include "load/api.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "fovea/result.h"

namespace fovea::load {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 300;

/// nullopt if the text is not JSON or nests too deep.
std::optional<Json> parse(std::string_view text) {
  if (json_nests_deeper(text)) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

/// Member `key` of an object; null (JSON's) for anything else.
const Json& member(const Json& json, const char* key) {
  static const Json null;
  if (!json.is_object()) return null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kShownBytes))
    out += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? ' ' : c;
  return out + (text.size() > kShownBytes ? "..." : "");
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string number(double value) {
  return Json(value).dump();
}

/// Accepts the forms {"message": ...}, {"error": {"message": ...}}, {"error": "..."} and {"detail": ...}.
std::optional<std::string> find_message(const Json& json) {
  const Json& error = member(json, "error");
  for (const Json* candidate :
       {&member(error, "message"), &error, &member(json, "message"), &member(json, "detail")})
    if (candidate->is_string()) return candidate->get<std::string>();
  return std::nullopt;
}

bool is_error(const Json& json) {
  const Json& error = member(json, "error");
  return !error.is_null() || member(json, "object") == Json("error");
}

std::optional<int64_t> count(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  const auto value = json.get<int64_t>();
  if (value < 0 || value > int64_t{1} << 40) return std::nullopt;
  return value;
}

/// Reads the text of a completion's choice or a chat's delta, and whether it has a token.
void read_choice(const Json& choice, StreamEvent& event) {
  const bool finished = member(choice, "finish_reason").is_string();
  event.finished = event.finished || finished;
  const Json& ids = member(choice, "token_ids");  // for models without a tokenizer, or on request
  if (ids.is_array() && !ids.empty()) event.has_token = true;
  const Json& delta = member(choice, "delta");
  if (!delta.is_object()) {
    const Json& text = member(choice, "text");
    if (!text.is_string()) return;
    event.text += text.get_ref<const std::string&>();
    event.has_token = event.has_token || !text.get_ref<const std::string&>().empty() || !finished;
    return;
  }
  bool any_text = false, empty_text = false;
  for (const char* key : {"reasoning_content", "reasoning", "content"}) {
    const Json& text = member(delta, key);
    if (!text.is_string()) continue;
    event.text += text.get_ref<const std::string&>();
    (text.get_ref<const std::string&>().empty() ? empty_text : any_text) = true;
  }
  // The first event of a chat has the role and empty content, but no token.
  const bool opening = member(delta, "role").is_string();
  const bool calls = member(delta, "tool_calls").is_array() && !member(delta, "tool_calls").empty();
  event.has_token = event.has_token || any_text || calls || (empty_text && !opening && !finished);
}

}  // namespace

Result<std::string> parse_extra_body(std::string_view text) {
  if (text.empty()) return std::string();
  const auto json = parse(text);
  if (!json || !json->is_object())
    return invalid("--extra-body " + one_line(text) + ": not a JSON object; give one, as '{\"top_p\": 0.9}'");
  for (const char* ours :
       {"model", "prompt", "messages", "stream", "stream_options", "max_tokens", "temperature", "ignore_eos"})
    if (json->contains(ours))
      return invalid(std::string("--extra-body: \"") + ours +
                     "\" is set by the benchmark; leave it out (flags: --help)");
  if (json->empty()) return std::string();
  const std::string members = json->dump(-1, ' ', false, Json::error_handler_t::replace);
  return "," + members.substr(1, members.size() - 2);
}

std::string request_body(const RequestOptions& options, const Prompt& prompt) {
  std::string body = "{\"model\":" + json_string(options.model);
  if (options.backend == Backend::openai_chat) {
    body += ",\"messages\":[{\"role\":\"user\",\"content\":" + json_string(prompt.text) + "}]";
  } else if (prompt.ids.empty()) {
    body += ",\"prompt\":" + json_string(prompt.text);
  } else {
    body += ",\"prompt\":[";
    for (const int32_t id : prompt.ids)
      body.append(std::to_string(id)).push_back(',');
    body.back() = ']';
  }
  body += ",\"max_tokens\":" + std::to_string(prompt.output_tokens) +
          ",\"temperature\":" + number(options.temperature);
  body += ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
  if (options.ignore_eos) body += ",\"ignore_eos\":true";
  return body + options.extra_body + "}";
}

Result<StreamEvent> parse_stream_event(std::string_view type, std::string_view data) {
  const auto json = parse(data);
  if (!json || !json->is_object())
    return io_error("an event of the stream is not a JSON object: " + one_line(data));
  if (type == "error" || is_error(*json))
    return io_error("error in the stream: " + one_line(find_message(*json).value_or(std::string(data))));
  StreamEvent event;
  if (const Json& choices = member(*json, "choices"); choices.is_array())
    for (const Json& choice : choices)
      read_choice(choice, event);
  const Json& usage = member(*json, "usage");
  event.prompt_tokens = count(member(usage, "prompt_tokens"));
  event.completion_tokens = count(member(usage, "completion_tokens"));
  return event;
}

Result<std::vector<std::string>> parse_models(std::string_view text) {
  const auto json = parse(text);
  const Json* data = json ? &member(*json, "data") : nullptr;
  if (data == nullptr || !data->is_array())
    return io_error("/v1/models has no list \"data\": " + one_line(text));
  std::vector<std::string> names;
  for (const Json& model : *data)
    if (const Json& id = member(model, "id"); id.is_string()) names.push_back(id.get<std::string>());
  if (names.empty()) return io_error("/v1/models names no model: " + one_line(text));
  return names;
}

std::string tokenize_body(std::string_view model, std::string_view text) {
  return "{\"model\":" + json_string(model) + ",\"prompt\":" + json_string(text) +
         ",\"add_special_tokens\":false}";
}

Result<std::vector<int32_t>> parse_tokens(std::string_view text) {
  const auto json = parse(text);
  const Json* tokens = json ? &member(*json, "tokens") : nullptr;
  if (tokens == nullptr || !tokens->is_array())
    return io_error("/tokenize has no list \"tokens\": " + one_line(text));
  std::vector<int32_t> ids;
  for (const Json& token : *tokens) {
    const auto id = count(token);
    if (!id || *id > std::numeric_limits<int32_t>::max())
      return io_error("/tokenize: a token is not an id: " +
                      one_line(token.dump(-1, ' ', false, Json::error_handler_t::replace)));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::string error_message(int status, std::string_view body) {
  const auto json = parse(body);
  const auto message = json ? find_message(*json) : std::nullopt;
  const std::string text = one_line(message ? std::string_view(*message) : body);
  return "HTTP status " + std::to_string(status) + (text.empty() ? "" : ": " + text);
}

}  // namespace fovea::load
