#pragma once
// What tokenizer_config.json adds to tokenizer.json.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"
#include "text/added_tokens.h"

namespace fovea::text {

struct TokenizerConfig {
  std::map<std::string, std::string, std::less<>> special_tokens;  ///< "bos_token" -> "<s>", ...
  std::vector<AddedToken> added_tokens;                            ///< added_tokens_decoder
  std::optional<bool> add_bos_token, add_eos_token;  ///< where given, they overrule the post-processor
};

/// "" gives the defaults. Special tokens may be strings or {"content": string}.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);

}  // namespace fovea::text
