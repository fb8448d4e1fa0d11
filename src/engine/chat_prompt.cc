#include "engine/chat_prompt.h"

#include <filesystem>

#include "model/mapped_file.h"

namespace fovea {
namespace {

constexpr size_t kMaxTemplateBytes = 4u << 20;

void append_json_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

/// The special tokens that templates print by name.
std::string special_tokens_json(const Tokenizer& tokenizer) {
  std::string json = "{";
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const std::string_view text = tokenizer.special_token(name);
    if (text.empty()) continue;
    if (json.size() > 1) json += ',';
    append_json_string(name, json);
    json += ':';
    append_json_string(text, json);
  }
  return json + "}";
}

}  // namespace

ChatPrompt ChatPrompt::load(const std::string& dir, const Tokenizer* tokenizer) {
  ChatPrompt prompt;
  std::string source;
  const std::string path = dir + "/chat_template.jinja";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    auto text = read_text_file(path, kMaxTemplateBytes);
    if (!text) {
      prompt.failure_ = text.error();
      return prompt;
    }
    source = *std::move(text);
  } else if (tokenizer) {
    source = tokenizer->chat_template();
  }
  if (source.empty()) return prompt;
  if (auto parsed = ChatTemplate::parse(source))
    prompt.template_ = *std::move(parsed);
  else
    prompt.failure_ = parsed.error();
  if (tokenizer) prompt.variables_ = special_tokens_json(*tokenizer);
  return prompt;
}

Result<std::string> ChatPrompt::render(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const {
  if (failure_) return *failure_;
  if (!template_)
    return not_found(
        "this model has no chat template (chat_template.jinja, or chat_template in "
        "tokenizer_config.json); give a plain prompt instead");
  std::vector<ChatMessage> messages;
  for (const ChatTurn& turn : turns)
    messages.push_back({turn.role, turn.content});
  return template_->render(messages, add_generation_prompt, variables_);
}

}  // namespace fovea
