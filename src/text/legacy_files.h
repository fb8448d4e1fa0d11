#pragma once
// Vocabulary files that predate tokenizer.json.
#include <optional>
#include <string>

#include "fovea/result_fwd.h"
#include "text/tokenizer_config.h"

namespace fovea::text {

/// The files of a model's folder; nullopt for one that is missing.
struct LegacyFiles {
  std::optional<std::string> vocab_txt{}, vocab_json{}, merges_txt{};
  bool has_sentencepiece_model = false;  ///< tokenizer.model
};

/// The equivalent tokenizer.json. config.tokenizer_class selects how the files are read: BertTokenizer,
/// DistilBertTokenizer, ElectraTokenizer for vocab.txt; GPT2Tokenizer, RobertaTokenizer, BartTokenizer,
/// LongformerTokenizer for vocab.json and merges.txt. Errors name what is missing or can't be read.
Result<std::string> tokenizer_json_from(const LegacyFiles& files, const TokenizerConfig& config);

}  // namespace fovea::text
