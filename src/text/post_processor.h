#pragma once
// Stage 5 of tokenizing: ids added around one text (BOS, EOS).
#include <cstdint>
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

}  // namespace fovea::text
