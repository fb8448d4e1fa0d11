#include "server/openai/logprobs_json.h"

#include <unordered_set>

#include "server/openai/json_writer.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

constexpr float kExcluded = -9999;  // as vLLM

bool is_continuation(char c) {
  return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
}

std::string name_of(int32_t id, const std::string& bytes, const TokenText& words) {
  return words.as_ids ? "token_id:" + std::to_string(id) : text::to_valid_utf8(bytes);
}

/// "token":...,"logprob":...,"bytes":[...]
void append_chat_token(std::string& out, const TokenLogprob& token, const TokenText& words) {
  const std::string bytes = words.bytes(token.token_id);
  out += "\"token\":";
  append_string(out, name_of(token.token_id, bytes, words));
  out += ",\"logprob\":";
  append_logprob(out, token.logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i) out += ',';
    append_integer(out, static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

void append_prompt_token(std::string& out, const TokenLogprob& token, const TokenText& words) {
  out += '"';
  append_integer(out, token.token_id);
  out += "\":{\"logprob\":";
  append_logprob(out, token.logprob);
  out += ",\"rank\":";
  append_integer(out, token.rank);
  out += ",\"decoded_token\":";
  append_string(out, name_of(token.token_id, words.bytes(token.token_id), words));
  out += '}';
}

}  // namespace

void append_logprob(std::string& out, float logprob) {
  append_float(out, logprob > kExcluded ? logprob : kExcluded);
}

void append_chat_logprobs(std::string& out, std::span<const TokenLogprobs> tokens, const TokenText& words) {
  out += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i ? ",{" : "{";
    append_chat_token(out, tokens[i].token, words);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < tokens[i].top.size(); ++k) {
      out += k ? ",{" : "{";
      append_chat_token(out, tokens[i].top[k], words);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

void CompletionLogprobs::add_text(int32_t id) {
  if (!tokens_.empty())
    for (std::string* list : {&tokens_, &logprobs_, &top_, &offsets_})
      *list += ',';
  const std::string bytes = words_.bytes(id);
  append_string(tokens_, name_of(id, bytes, words_));
  // A token that begins inside a character has that character's offset.
  const bool inside = !bytes.empty() && is_continuation(bytes[0]) && offset_ > 0;
  append_integer(offsets_, inside ? offset_ - 1 : offset_);
  offset_ += static_cast<int>(text::count_code_points(bytes));
}

void CompletionLogprobs::add_first(int32_t id) {
  add_text(id);
  logprobs_ += "null";
  top_ += "null";
}

void CompletionLogprobs::add(const TokenLogprobs& token) {
  add_text(token.token.token_id);
  append_logprob(logprobs_, token.token.logprob);
  // Tokens may have the same text, which can be a key only once: the most probable token gets it. The token
  // itself comes last, as it is among the top ones or less probable than they are.
  std::unordered_set<std::string> names;
  top_ += '{';
  const auto append = [&](const TokenLogprob& entry) {
    const bool is_first = names.empty();
    const auto [at, is_new] = names.insert(name_of(entry.token_id, words_.bytes(entry.token_id), words_));
    if (!is_new) return;
    if (!is_first) top_ += ',';
    append_string(top_, *at);
    top_ += ':';
    append_logprob(top_, entry.logprob);
  };
  for (const TokenLogprob& entry : token.top)
    append(entry);
  append(token.token);
  top_ += '}';
}

void CompletionLogprobs::append_to(std::string& out) const {
  out += "{\"tokens\":[" + tokens_ + "],\"token_logprobs\":[" + logprobs_ + "],\"top_logprobs\":[" + top_ +
         "],\"text_offset\":[" + offsets_ + "]}";
}

void append_prompt_logprobs(std::string& out, std::span<const int32_t> ids,
                            std::span<const TokenLogprobs> tokens, const TokenText& words) {
  out += '[';
  if (!ids.empty()) out += "null";
  for (const TokenLogprobs& token : tokens) {
    out += ",{";
    append_prompt_token(out, token.token, words);
    for (const TokenLogprob& entry : token.top) {
      if (entry.token_id == token.token.token_id) continue;
      out += ',';
      append_prompt_token(out, entry, words);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace fovea::openai
