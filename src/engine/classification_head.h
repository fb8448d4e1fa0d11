#pragma once
// The classification head of an encoder (transformers' ...ForSequenceClassification).
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"
#include "model/config.h"

namespace fovea {

/// A dense layer, its activation and the output layer, over the first token's hidden state.
struct ClassificationHead {
  int labels = 0;
  bool relu = false;         ///< the activation; false = tanh
  bool sigmoid = false;      ///< scores are the sigmoid of the output; false = the output
  int token_types = 0;       ///< segments that the model knows; 0 = it has none
  std::vector<float> dense;  ///< [hidden, hidden]
  std::vector<float> dense_bias;
  std::vector<float> out;  ///< [labels, hidden]
  std::vector<float> out_bias;

  /// [labels]; sums are fp64, in order of the index.
  std::vector<float> logits(std::span<const float> hidden) const;
  /// The score, of a head with one label.
  float score(std::span<const float> hidden) const;
};

/// nullopt for architectures without a head, and, with a warning, where the checkpoint lacks its tensors.
/// With one label the score is the sigmoid, unless config.json names Identity as sentence-transformers'
/// activation; other activations are errors.
Result<std::optional<ClassificationHead>> load_classification_head(const std::string& dir,
                                                                   const ModelConfig& config);

}  // namespace fovea
