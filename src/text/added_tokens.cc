#include "text/added_tokens.h"

#include <algorithm>

#include "fovea/result.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace fovea::text {
namespace {

bool stands_alone(std::string_view text, Span span) {
  if (span.begin > 0) {
    const size_t before = previous_character(text, span.begin);
    if (is_word(decode_utf8(text.substr(before)).code_point)) return false;
  }
  return span.end == text.size() || !is_word(decode_utf8(text.substr(span.end)).code_point);
}

}  // namespace

Result<AddedToken> parse_added_token(const Json& entry, const std::string& path, int32_t id) {
  if (!entry.object()) return invalid(path + " is " + entry.describe() + "; an object is needed");
  AddedToken token;
  if (id < 0) {
    const Json* value = entry.find("id");
    FOVEA_TRY(parsed, parse_token_id(value ? *value : Json(), path + ".id"));
    id = parsed;
  }
  token.id = id;
  FOVEA_TRY(content, string_field(entry, path, "content", ""));
  if (content.empty()) return invalid(path + ".content must be a text that is not empty");
  if (content.size() > AddedTokenFinder::kMaxBytes) {
    return invalid(path + ".content has " + std::to_string(content.size()) + " bytes; at most " +
                   std::to_string(AddedTokenFinder::kMaxBytes) + " are allowed");
  }
  token.content = std::move(content);
  FOVEA_TRY(special, bool_field(entry, path, "special", false));
  FOVEA_TRY(single_word, bool_field(entry, path, "single_word", false));
  FOVEA_TRY(lstrip, bool_field(entry, path, "lstrip", false));
  FOVEA_TRY(rstrip, bool_field(entry, path, "rstrip", false));
  FOVEA_TRY(normalized, bool_field(entry, path, "normalized", !special));
  token.special = special;
  token.single_word = single_word;
  token.lstrip = lstrip;
  token.rstrip = rstrip;
  token.normalized = normalized;
  return token;
}

void AddedTokenFinder::add(std::string_view text, const AddedToken& token) {
  starts_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const uint64_t key = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
    const auto [it, inserted] = children_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
    if (inserted) nodes_.emplace_back();
    node = it->second;
  }
  if (!nodes_[node].token) nodes_[node].token = &token;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t& length) const {
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto it = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[i]));
    if (it == children_.end()) break;
    node = it->second;
    if (nodes_[node].token) {
      best = nodes_[node].token;
      length = i + 1;
    }
  }
  return best;
}

void AddedTokenFinder::split(std::string_view text, bool parse_special, std::vector<Section>& out) const {
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t length = 0;
    const AddedToken* token =
        starts_[static_cast<uint8_t>(text[pos])] ? longest_at(text.substr(pos), length) : nullptr;
    if (!token) {
      ++pos;
      continue;
    }
    Span span{pos, pos + length};
    pos = span.end;  // a rejected match is skipped as a whole
    if (token->special && !parse_special) continue;
    if (token->single_word && !stands_alone(text, span)) continue;
    if (token->lstrip) span.begin -= trailing_white_space(text.substr(done, span.begin - done));
    if (token->rstrip) span.end += leading_white_space(text.substr(span.end));
    if (done < span.begin) out.push_back({{done, span.begin}, nullptr});
    out.push_back({span, token});
    done = pos = span.end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, nullptr});
}

}  // namespace fovea::text
