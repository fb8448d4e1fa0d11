#pragma once
// Embedding settings from a model's sentence-transformers files.
#include <optional>
#include <string>
#include <string_view>

#include "fovea/embed.h"
#include "fovea/result_fwd.h"

namespace fovea {

struct SentenceTransformers {
  bool present = false;  ///< modules.json exists
  std::optional<Pooling> pooling;
  bool normalize = false;
  std::optional<int> max_seq_len;  ///< sentence_bert_config.json
};

/// Reads DIR/modules.json and the files that it names; without modules.json nothing is present. Unsupported
/// settings are errors that name them.
Result<SentenceTransformers> load_sentence_transformers(const std::string& dir);

/// 1_Pooling/config.json: one pooling mode, as a name or as flags.
Result<Pooling> parse_pooling_config(std::string_view text, const std::string& file);

}  // namespace fovea
