#pragma once
// The model families that this program knows: what config.json's architecture names.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/decoder.h"
#include "model/weights.h"

namespace fovea {

/// What one family adds to the common decoder. A family file fills one of these; family.cc lists them.
struct Family {
  std::string_view architecture;  ///< as in config.json's "architectures"
  std::string_view model_type;
  int default_head_dim = 0;  ///< where config.json has no head_dim; 0 = hidden_size / num_attention_heads
  bool qk_norm = false;
  /// Reads every weight through `reader`. Called twice, first to check names and shapes and to add up sizes
  /// (the reader then returns empty weights), then to load.
  DecoderWeights (*read)(const ModelConfig& config, WeightReader& reader);
};

extern const Family kLlamaFamily;
extern const Family kQwen3Family;

std::span<const Family* const> families();
/// Null when unknown.
const Family* find_family(std::string_view architecture);

}  // namespace fovea
