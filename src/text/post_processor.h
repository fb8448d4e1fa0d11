#pragma once
// Stage 5 of tokenizing: ids added around one text (BOS, EOS), or around two.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"

namespace fovea::text {

/// What surrounds the ids of a single text.
struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

/// From tokenizer.json's "post_processor": null, ByteLevel (offsets only), BertProcessing, RobertaProcessing,
/// TemplateProcessing (its "single" template must hold the text A exactly once; its "pair" template is
/// checked only), or a Sequence of those, applied in order.
Result<PostProcessor> parse_post_processor(const Json* spec);

/// What surrounds the ids of two texts that an encoder reads together, with their segments (token types).
struct PairFrame {
  struct Id {
    int32_t id = 0, type = 0;
    bool operator==(const Id&) const = default;
  };
  std::vector<Id> before, between, after;
  int32_t first_type = 0, second_type = 0;  ///< of the texts' own ids
};

/// From the same "post_processor": its "pair" template, or what BertProcessing and RobertaProcessing do.
/// nullopt = it has neither.
Result<std::optional<PairFrame>> parse_pair_frame(const Json* spec);

/// The same for a model's folder, whose files Tokenizer::load() accepts.
Result<std::optional<PairFrame>> load_pair_frame(const std::string& dir);

}  // namespace fovea::text
