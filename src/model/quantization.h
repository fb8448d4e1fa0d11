#pragma once
// The quantised weights that a config.json announces in quantization_config.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fovea {

/// How the linear layers of a checkpoint are quantised; which of them are, the types of their tensors show.
struct WeightQuantization {
  bool fp8 = false;     ///< e4m3 weights with scales
  bool blocks = false;  ///< a scale for 128 x 128 weights, else one for each output or for the matrix
};

/// Reads e4m3 weights: quant_method "compressed-tensors" with 8-bit float weights by tensor, by channel or by
/// block of 128 x 128; "fp8" by tensor or, with weight_block_size, by block; "modelopt" with quant_algo FP8.
/// What the activations are quantised to does not matter: they stay 16-bit. `problem` says why a
/// configuration is not supported; it stays empty for one without quantised weights.
WeightQuantization read_weight_quantization(const nlohmann::json& config, std::string& problem);

}  // namespace fovea
