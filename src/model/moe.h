#pragma once
// Mixture of experts: a router sends each row to the top k of many gated MLPs. A row's expert outputs are
// summed in ascending order of expert id, independent of other rows, chunks and threads.
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace fovea {

/// One gated MLP.
struct Expert {
  Linear gate_up;  ///< outputs: gate, then up (interleaved rows are reordered when loaded)
  Linear down;
  int64_t bytes() const { return gate_up.bytes() + down.bytes(); }
};

/// The MLP of a layer with LayerConfig::moe.
struct MoeBlock {
  MoeConfig config;
  Activation activation = Activation::silu;  ///< used if config.swiglu_limit is 0
  Linear router;                             ///< [config.choices(), hidden]
  AlignedArray<float> choice_bias;           ///< [config.choices()]; empty unless config.choice_bias
  std::vector<Expert> experts;
  Expert shared;  ///< applied to every row with weight 1; empty (n() == 0) if none

  int64_t bytes() const;
  /// Weight bytes that one row reads: router, shared expert, and experts_per_token of the experts.
  int64_t bytes_per_token() const;

 private:
  int64_t bias_bytes() const { return static_cast<int64_t>(choice_bias.size() * sizeof(float)); }
};

/// Reads a layer's router and experts. `layer_prefix` is "model.layers.N.": the block's name under it depends
/// on config.moe.layout and on the checkpoint's tensors.
MoeBlock read_moe(const std::string& layer_prefix, const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
