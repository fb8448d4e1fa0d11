#pragma once
// What a model's sentence-transformers files say about its embeddings.
#include <optional>
#include <string>
#include <string_view>

#include "fovea/embed.h"
#include "fovea/result.h"

namespace fovea {

struct SentenceTransformers {
  bool present = false;  ///< there is a modules.json
  std::optional<Pooling> pooling;
  bool normalize = false;
  std::optional<int> max_seq_len;  ///< sentence_bert_config.json
};

/// Reads DIR/modules.json and the files that it names; none of them = nothing is present. What they ask for
/// and this program lacks is refused by name.
Result<SentenceTransformers> load_sentence_transformers(const std::string& dir);

/// 1_Pooling/config.json: one mode, as a name or as flags.
Result<Pooling> parse_pooling_config(std::string_view text, const std::string& file);

}  // namespace fovea
