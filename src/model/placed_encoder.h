#pragma once
// An encoder (BERT, RoBERTa) on a device: its weights as the operations read them, and its forward pass as a
// list of operations.
#include <vector>

#include "model/encoder_model.h"
#include "model/placed_blocks.h"

namespace fovea {

struct PlacedEncoder {
  LinearWeight words, positions, types;  ///< tables; no types = empty
  NormWeight embedding_norm;
  std::vector<PlacedEncoderLayer> layers;
};

PlacedEncoder place(const EncoderModelWeights& weights, float eps, WeightPlacement& placement);

/// The rows of one pass, whole sequences one after the other; all i32 [T].
struct EncoderStep {
  Tensor words, positions, types;      ///< rows of the tables; types empty without one
  StepAttention* attention = nullptr;  ///< on the device; keys and values are the step's rows
};

/// Queues a pass of up to `max_rows` rows and returns the hidden states, f32 [T, hidden], in the arena's
/// memory: valid until it is used again. With a dry arena and queue it only measures the arena's size.
Tensor encoder_forward(const BlockShape& shape, const PlacedEncoder& weights, int64_t max_rows,
                       const EncoderStep& step, Arena& arena, OpQueue& queue);

}  // namespace fovea
