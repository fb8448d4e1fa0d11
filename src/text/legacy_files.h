#pragma once
// The vocabulary files that models had before tokenizer.json.
#include <optional>
#include <string>

#include "fovea/result.h"
#include "text/tokenizer_config.h"

namespace fovea::text {

/// What a model's folder has; nullopt where there is no such file.
struct LegacyFiles {
  std::optional<std::string> vocab_txt{}, vocab_json{}, merges_txt{};
  bool has_sentencepiece_model = false;  ///< tokenizer.model
};

/// The tokenizer.json that says the same. config.tokenizer_class tells how the files are meant:
/// BertTokenizer, DistilBertTokenizer, ElectraTokenizer for vocab.txt; GPT2Tokenizer, RobertaTokenizer,
/// BartTokenizer, LongformerTokenizer for vocab.json and merges.txt. Errors name what is missing or can't be
/// read.
Result<std::string> tokenizer_json_from(const LegacyFiles& files, const TokenizerConfig& config);

}  // namespace fovea::text
