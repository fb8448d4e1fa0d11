#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "fovea/result.h"
#include "text/json_value.h"
#include "text/vocabulary.h"

namespace fovea::text {
namespace {

constexpr std::string_view kFile = "tokenizer_config.json";
constexpr std::string_view kMapFile = "special_tokens_map.json";

// A special token is a string, or an object with the string as "content" and the flags of an added token.
Result<std::optional<SpecialToken>> parse_special(const Json& value, const std::string& path) {
  SpecialToken token;
  if (value.string()) {
    token.content = *value.string();
    return std::optional<SpecialToken>(std::move(token));
  }
  const Json* content = value.find("content");
  if (!content || !content->string()) return std::optional<SpecialToken>();
  token.content = *content->string();
  FOVEA_TRY(single_word, bool_field(value, path, "single_word", false));
  FOVEA_TRY(lstrip, bool_field(value, path, "lstrip", false));
  FOVEA_TRY(rstrip, bool_field(value, path, "rstrip", false));
  FOVEA_TRY(normalized, bool_field(value, path, "normalized", false));
  token.single_word = single_word;
  token.lstrip = lstrip;
  token.rstrip = rstrip;
  token.normalized = normalized;
  return std::optional<SpecialToken>(std::move(token));
}

// Keys whose token is special; other keys that end in "_token" (image_token) only name a token.
bool names_special(std::string_view key) {
  constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
  return std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames);
}

Status parse_special_tokens(const Json& root, std::string_view file, TokenizerConfig& config) {
  for (const auto& [key, value] : *root.object()) {
    if (!key.ends_with("_token")) continue;
    FOVEA_TRY(token, parse_special(value, std::string(file) + ": " + key));
    if (!token || !config.special_tokens.emplace(key, token->content).second) continue;
    if (names_special(key)) config.named_special_tokens.push_back(*std::move(token));
  }
  const Json* more = root.find("additional_special_tokens");
  if (!more || !more->array()) return {};
  for (const Json& value : *more->array()) {
    FOVEA_TRY(token, parse_special(value, std::string(file) + ": additional_special_tokens"));
    if (token) config.named_special_tokens.push_back(*std::move(token));
  }
  return {};
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

Status parse_fields(const Json& root, TokenizerConfig& config) {
  FOVEA_RETURN_IF_ERROR(parse_special_tokens(root, kFile, config));
  const std::pair<const char*, std::optional<bool>*> flags[] = {
      {"add_bos_token", &config.add_bos_token},
      {"add_eos_token", &config.add_eos_token},
      {"add_prefix_space", &config.add_prefix_space},
      {"do_lower_case", &config.do_lower_case},
      {"strip_accents", &config.strip_accents},
      {"tokenize_chinese_chars", &config.tokenize_chinese_chars},
  };
  for (const auto& [key, field] : flags) {
    FOVEA_TRY(flag, optional_flag(root, key));
    *field = flag;
  }
  FOVEA_TRY(clean_up, bool_field(root, kFile, "clean_up_tokenization_spaces", false));
  config.clean_up_tokenization_spaces = clean_up;
  FOVEA_TRY(name, string_field(root, kFile, "tokenizer_class", ""));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  config.tokenizer_class = std::move(name);
  if (const Json* table = root.find("added_tokens_decoder")) {
    FOVEA_RETURN_IF_ERROR(parse_added(*table, config.added_tokens));
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, std::string_view special_tokens_map) {
  TokenizerConfig config;
  if (!json.empty()) {
    FOVEA_TRY(root, parse_json(json, kFile));
    if (!root.object()) return invalid("tokenizer_config.json must hold an object");
    FOVEA_RETURN_IF_ERROR(parse_fields(root, config));
  }
  if (!special_tokens_map.empty()) {
    FOVEA_TRY(map, parse_json(special_tokens_map, kMapFile));
    if (!map.object()) return invalid("special_tokens_map.json must hold an object");
    FOVEA_RETURN_IF_ERROR(parse_special_tokens(map, kMapFile, config));
  }
  return config;
}

}  // namespace fovea::text
