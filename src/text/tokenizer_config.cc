#include "text/tokenizer_config.h"

#include <charconv>

#include "text/json_value.h"
#include "text/vocabulary.h"

namespace fovea::text {
namespace {

constexpr std::string_view kFile = "tokenizer_config.json";

// A special token is a string or an object with the string as "content".
const std::string* token_text(const Json& value) {
  if (value.string()) return value.string();
  const Json* content = value.find("content");
  return content ? content->string() : nullptr;
}

Result<std::optional<bool>> optional_flag(const Json& root, const char* key) {
  const Json* value = root.find(key);
  if (!value || value->is_null()) return std::optional<bool>();
  FOVEA_TRY(flag, bool_field(root, kFile, key, false));
  return std::optional<bool>(flag);
}

Status parse_added(const Json& table, std::vector<AddedToken>& out) {
  if (!table.object()) return invalid("tokenizer_config.json: added_tokens_decoder must be an object");
  for (const auto& [key, entry] : *table.object()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > Vocabulary::kMaxId) {
      return invalid("tokenizer_config.json: added_tokens_decoder has the key " + Json(key).describe() +
                     "; a token id is needed");
    }
    FOVEA_TRY(token, parse_added_token(entry, "tokenizer_config.json: added_tokens_decoder." + key, id));
    out.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json) {
  TokenizerConfig config;
  if (json.empty()) return config;
  FOVEA_TRY(root, parse_json(json, kFile));
  if (!root.object()) return invalid("tokenizer_config.json must hold an object");
  for (const auto& [key, value] : *root.object()) {
    const std::string* text = key.ends_with("_token") ? token_text(value) : nullptr;
    if (text) config.special_tokens.insert_or_assign(key, *text);
  }
  FOVEA_TRY(add_bos, optional_flag(root, "add_bos_token"));
  FOVEA_TRY(add_eos, optional_flag(root, "add_eos_token"));
  config.add_bos_token = add_bos;
  config.add_eos_token = add_eos;
  if (const Json* table = root.find("added_tokens_decoder")) {
    FOVEA_RETURN_IF_ERROR(parse_added(*table, config.added_tokens));
  }
  return config;
}

}  // namespace fovea::text
