#pragma once
// Reads config.json's attention fields for models without a Family, and for layers that their Family does not
// implement.
#include <optional>
#include <string>
#include <vector>

#include "model/attention_shapes.h"
#include "model/config_fields.h"

namespace fovea {

/// The language model's part of a config.json (the whole file, or its text_config).
struct TextPart {
  Fields& fields;
  std::string type;    ///< its model_type
  bool spans = false;  ///< tokens of one image attend to each other bidirectionally
  /// Heads, their size, scale, cap and sinks, if a Family has read them but does not implement the masks.
  std::optional<AttentionSpec> heads;
  AttentionShapes& out;
};

/// Counts `layers` more layers of `spec`.
void add_layers(AttentionShapes& out, const AttentionSpec& spec, int layers = 1);

/// Notes that an indexer chooses `topk` keys.
void note_indexer(AttentionShapes& out, int topk);

/// Adds the layers by `part.type` or, for an unknown type, by the names of the keys (and notes that).
void read_attention_fields(TextPart& part);

}  // namespace fovea
