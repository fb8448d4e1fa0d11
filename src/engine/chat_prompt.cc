#include "engine/chat_prompt.h"

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "engine/chat_template_files.h"
#include "engine/harmony_template.h"
#include "files/model_folder.h"

namespace fovea {
namespace {

using text::Json;

// Special tokens that templates refer to by name.
constexpr std::array<const char*, 15> kSpecialTokens = {
    "bos_token",   "eos_token",   "unk_token",   "sep_token",        "pad_token",
    "cls_token",   "mask_token",  "image_token", "boi_token",        "eoi_token",
    "video_token", "audio_token", "boa_token",   "vision_bos_token", "vision_eos_token"};

// Template variables that the request sets through its own fields.
constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "documents",
                                                       "add_generation_prompt", "continue_final_message"};

bool is_blank(std::string_view json) {
  return json.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Json* find(Json& object, std::string_view key) {
  Json::Object* members = object.object();
  if (!members) return nullptr;
  const auto it = std::find_if(members->rbegin(), members->rend(),
                               [key](const auto& member) { return member.first == key; });
  return it == members->rend() ? nullptr : &it->second;
}

/// Template errors are sent to clients: keep the file name, remove the path.
std::string without_folder(std::string text, const std::string& dir) {
  const std::string folder = dir.ends_with('/') ? dir : dir + "/";
  for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at))
    text.erase(at, folder.size());
  return text;
}

/// A list of objects, or null when it is optional and absent.
Result<Json> parse_list(const std::string& json, const char* what, bool optional) {
  if (optional && is_blank(json)) return Json();
  FOVEA_TRY(list, text::parse_json(json, what));
  if (optional && list.is_null()) return list;
  if (!list.array())
    return invalid(std::string(what) + " is " + list.describe() + "; a list of objects is needed");
  for (const Json& item : *list.array()) {
    if (!item.object())
      return invalid(std::string(what) + " has the item " + item.describe() +
                     "; every item must be an object");
  }
  return list;
}

Result<Json> parse_messages(const std::string& json) {
  FOVEA_TRY(messages, parse_list(json, "messages", false));
  if (messages.array()->empty()) return invalid("messages is []; at least one message is needed");
  for (const Json& message : *messages.array()) {
    const Json* role = message.find("role");
    if (!role || !role->string())
      return invalid("a message has the role " + (role ? role->describe() : std::string("(none)")) +
                     "; every message needs a string \"role\", such as \"user\"");
  }
  return messages;
}

Result<Json> parse_kwargs(const std::string& json) {
  if (is_blank(json)) return Json(Json::Object{});
  FOVEA_TRY(kwargs, text::parse_json(json, "chat template arguments"));
  if (kwargs.is_null()) return Json(Json::Object{});
  if (!kwargs.object())
    return invalid("chat template arguments are " + kwargs.describe() +
                   "; an object is needed, such as {\"enable_thinking\": false}");
  for (const auto& member : *kwargs.object()) {
    if (std::find(kReserved.begin(), kReserved.end(), member.first) != kReserved.end())
      return invalid("chat template arguments have \"" + member.first +
                     "\", which is a field of the request itself; use that field");
  }
  return kwargs;
}

void set(Json::Object& variables, std::string_view name, Json value) {
  const auto it = std::find_if(variables.begin(), variables.end(),
                               [name](const auto& member) { return member.first == name; });
  if (it != variables.end()) {
    it->second = std::move(value);
  } else {
    variables.emplace_back(std::string(name), std::move(value));
  }
}

/// Clients and templates call an assistant's reasoning by different names: a message that has one gets the
/// others. In harmony (`analysis`) a message with calls has either reasoning or text: its text is moved
/// there.
void name_reasoning(Json& messages, bool analysis) {
  for (Json& message : *messages.array()) {
    const Json* role = message.find("role");
    if (!role->string() || *role->string() != "assistant") continue;
    std::string words;
    for (const char* name : {"reasoning_content", "reasoning", "thinking"})
      if (const Json* given = message.find(name); words.empty() && given && given->string())
        words = *given->string();
    if (words.empty()) continue;
    for (const char* name : {"reasoning_content", "reasoning"})
      if (!message.find(name)) message.object()->emplace_back(name, Json(words));
    if (!analysis || message.find("thinking")) continue;
    const Json* calls = message.find("tool_calls");
    Json* content = find(message, "content");
    if (calls && calls->array() && !calls->array()->empty() && content && content->string()) {
      if (!content->string()->empty()) words += "\n\n" + *content->string();
      content->set(std::string());
    }
    message.object()->emplace_back("thinking", Json(std::move(words)));
  }
}

/// Writes the arguments of calls as JSON text, as Python's json.dumps; true if there are any.
bool write_arguments(Json& messages) {
  static const auto writer = ChatTemplate::parse("{{ value | tojson }}");
  bool any = false;
  for (Json& message : *messages.array()) {
    Json* calls = find(message, "tool_calls");
    if (!calls || !calls->array()) continue;
    for (Json& call : *calls->array()) {
      Json* function = find(call, "function");
      Json* arguments = function ? find(*function, "arguments") : nullptr;
      if (!arguments || !arguments->object()) continue;
      auto text = (*writer)->render(Json(Json::Object{{"value", *arguments}}));
      if (!text) continue;
      arguments->set(*std::move(text));
      any = true;
    }
  }
  return any;
}

/// Marks the end of the final message's text and cuts what the template emits after the mark, as transformers
/// does for continue_final_message.
class FinalMessage {
 public:
  /// `text`: the request; the mark must not occur in it.
  explicit FinalMessage(const std::string& text) {
    for (int i = 0; text.find(mark_) != std::string::npos; ++i)
      mark_ = "<final-message-ends-here-" + std::to_string(i) + ">";
  }

  Status mark(Json& messages) {
    Json& message = messages.array()->back();
    Json* content = find(message, "content");
    if (content && content->array()) content = last_text(*content);
    if (!content || !content->string())
      return invalid(
          "continue_final_message: the last message has no text to continue; give it a \"content\"");
    final_ = *content->string();
    // The space after the mark reveals whether the template trims.
    content->set(final_ + mark_ + " ");
    return {};
  }

  Result<std::string> cut(std::string prompt) const {
    const size_t at = prompt.rfind(mark_);
    if (at == std::string::npos || prompt.find(trimmed(final_)) == std::string::npos)
      return invalid(
          "continue_final_message: the chat template does not write the last message's text "
          "unchanged; end with a message that it writes unchanged, or set add_generation_prompt instead");
    const bool trims = prompt.compare(at + mark_.size(), 1, " ") != 0;
    prompt.resize(at);
    if (trims) prompt.resize(prompt.find_last_not_of(kSpace) + 1);
    return prompt;
  }

 private:
  static constexpr const char* kSpace = " \t\n\r\v\f";

  static Json* last_text(Json& parts) {
    for (auto it = parts.array()->rbegin(); it != parts.array()->rend(); ++it) {
      if (Json* part = find(*it, "text")) return part;
    }
    return nullptr;
  }

  static std::string trimmed(const std::string& text) {
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  }

  std::string mark_ = "<final-message-ends-here>";
  std::string final_;
};

}  // namespace

Result<ChatPrompt> ChatPrompt::load(const std::string& dir, const Tokenizer* tokenizer,
                                    const EngineConfig& config) {
  ChatPrompt prompt;
  std::vector<NamedTemplate> found;
  if (!config.chat_template.empty()) {
    FOVEA_TRY(given, read_given_template(config.chat_template));
    found.push_back(std::move(given));
  } else if (auto of_model = find_chat_templates(dir)) {
    found = *std::move(of_model);
  } else {
    prompt.failure_ = of_model.error();
    prompt.failure_->message = without_folder(prompt.failure_->message, dir);
  }
  for (NamedTemplate& entry : found) {
    auto parsed = ChatTemplate::parse(entry.source, without_folder(entry.origin, dir));
    if (!parsed && !config.chat_template.empty()) return parsed.error();
    Entry& slot = prompt.templates_[entry.name];
    slot.reads_analysis = entry.source != harmony_template() &&
                          entry.source.find("<|channel|>analysis") != std::string::npos &&
                          entry.source.find("thinking") != std::string::npos;
    if (parsed)
      slot.program = *std::move(parsed);
    else
      slot.failure = parsed.error();
  }
  prompt.preferred_ = config.chat_template_name;
  if (!prompt.preferred_.empty()) FOVEA_RETURN_IF_ERROR(prompt.choose(prompt.preferred_, false));
  for (const char* name : kSpecialTokens) {
    const std::string_view token = tokenizer ? tokenizer->special_token(name) : std::string_view();
    if (!token.empty()) prompt.special_tokens_.emplace_back(name, Json(std::string(token)));
  }
  return prompt;
}

std::string ChatPrompt::names() const {
  std::string out;
  for (const auto& [name, unused] : templates_)
    out += (out.empty() ? "'" : ", '") + printable(name) + "'";
  return out;
}

Result<const ChatPrompt::Entry*> ChatPrompt::choose(const std::string& name, bool has_tools) const {
  if (failure_) return *failure_;
  if (templates_.empty())
    return not_found(
        "this model has no chat template (chat_template.jinja, or chat_template in "
        "tokenizer_config.json); give one, or a plain prompt instead");
  std::string wanted = !name.empty() ? name : preferred_;
  if (wanted.empty()) wanted = has_tools && templates_.contains("tool_use") ? "tool_use" : "default";
  const auto it = templates_.find(wanted);
  if (it == templates_.end())
    return not_found("there is no chat template '" + printable(wanted) + "'; available: " + names());
  if (it->second.failure) return *it->second.failure;
  return &it->second;
}

Result<std::string> ChatPrompt::render(const ChatRequest& request) const {
  FOVEA_TRY(messages, parse_messages(request.messages));
  FOVEA_TRY(tools, parse_list(request.tools, "tools", true));
  FOVEA_TRY(documents, parse_list(request.documents, "documents", true));
  FOVEA_TRY(kwargs, parse_kwargs(request.template_kwargs));
  if (request.continue_final_message && request.add_generation_prompt)
    return invalid(
        "continue_final_message and add_generation_prompt exclude each other: continue the last message "
        "or begin a new one");
  FOVEA_TRY(chosen, choose(request.template_name, !tools.is_null()));
  name_reasoning(messages, chosen->reads_analysis);
  FinalMessage final_message(request.messages + request.tools + request.documents);
  if (request.continue_final_message) FOVEA_RETURN_IF_ERROR(final_message.mark(messages));
  Json::Object variables = special_tokens_;
  for (auto& [name, value] : *kwargs.object())
    set(variables, name, std::move(value));
  set(variables, "messages", std::move(messages));
  set(variables, "tools", std::move(tools));
  set(variables, "documents", std::move(documents));
  set(variables, "add_generation_prompt", Json(request.add_generation_prompt));
  Json all(std::move(variables));
  auto rendered = chosen->program->render(all);
  // Some templates add the arguments of calls to a text, as OpenAI's API has them.
  if (!rendered && write_arguments(*find(all, "messages")))
    if (auto other = chosen->program->render(all)) rendered = std::move(other);
  FOVEA_TRY(prompt, std::move(rendered));
  if (request.continue_final_message) return final_message.cut(std::move(prompt));
  return prompt;
}

Result<std::string> render_chat_prompt(const EngineConfig& config, const ChatRequest& request) {
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  std::unique_ptr<Tokenizer> tokenizer;
  if (auto loaded = Tokenizer::load(dir))
    tokenizer = *std::move(loaded);
  else if (loaded.error().code != ErrorCode::not_found)
    return loaded.error();
  FOVEA_TRY(prompt, ChatPrompt::load(dir, tokenizer.get(), config));
  return prompt.render(request);
}

}  // namespace fovea
