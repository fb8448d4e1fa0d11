#pragma once
// Readers of config.json's attention fields, for models that no Family describes.
#include <string>
#include <vector>

#include "model/attention_shapes.h"
#include "model/config_fields.h"

namespace fovea {

/// The language model's part of a config.json (the whole file, or its text_config).
struct TextPart {
  Fields& fields;
  std::string type;    ///< its model_type
  bool spans = false;  ///< tokens of one image see each other in both directions
  AttentionShapes& out;
};

/// Counts `layers` more layers of `spec`.
void add_layers(AttentionShapes& out, const AttentionSpec& spec, int layers = 1);

/// Adds the layers by `part.type`, or by the names of the keys where that isn't known (and says so in the
/// notes).
void read_attention_fields(TextPart& part);

}  // namespace fovea
