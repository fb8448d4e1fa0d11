#pragma once
// What tokenizer_config.json adds to tokenizer.json.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/added_tokens.h"

namespace fovea::text {

/// A token that the file declares special; its id is the vocabulary's.
struct SpecialToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false;
};

struct TokenizerConfig {
  std::map<std::string, std::string, std::less<>> special_tokens;  ///< "bos_token" -> "<s>", ...
  std::vector<AddedToken> added_tokens;                            ///< added_tokens_decoder
  std::vector<SpecialToken> named_special_tokens;  ///< bos, eos, unk, sep, pad, cls, mask and additional ones
  std::optional<bool> add_bos_token, add_eos_token;  ///< where given, they override the post-processor
  std::optional<bool> add_prefix_space, do_lower_case, strip_accents, tokenize_chinese_chars;
  bool clean_up_tokenization_spaces = false;
  std::string tokenizer_class;  ///< without the ending "Fast"; "" = not given
};

/// "" gives the defaults. Special tokens may be strings or {"content": string}. special_tokens_map.json gives
/// the special tokens that tokenizer_config.json does not name.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json,
                                               std::string_view special_tokens_map = {});

}  // namespace fovea::text
