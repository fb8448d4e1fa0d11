#pragma once
// A decoder's weights as its device's operations read them: views of the model's own weights on the CPU,
// copies on another device.
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "ops/ops.h"

namespace fovea {

/// Makes views or device copies of weights, and owns the memory of the copies.
class WeightPlacement {
 public:
  /// On the CPU: makes views, so the weights must not move.
  WeightPlacement() = default;
  /// Makes copies on the device of `ops`, in the formats that it chooses. Functions throw std::bad_alloc.
  WeightPlacement(Ops& ops, Stream& stream) : ops_(&ops), stream_(&stream) {}

  /// Empty if the weights are.
  LinearWeight linear(const PackedView& weight, std::span<const float> bias = {});
  LinearWeight linear(const Linear& layer) { return linear(layer.weight.view(), layer.bias); }
  NormWeight norm(const Norm& norm);
  template <class T>
  Tensor vector(std::span<const T> values) {
    return values.empty() ? Tensor() : copied(host_tensor(values));
  }

  /// The first error: a copy that failed, or a format that the operations cannot read.
  const Status& status() const { return status_; }
  /// The memory of the copies; they are valid as long as it lives.
  std::vector<Buffer> take_memory() { return std::move(memory_); }

 private:
  Tensor copied(const Tensor& host);

  Ops* ops_ = nullptr;  // null: views
  Stream* stream_ = nullptr;
  std::vector<Buffer> memory_;
  Status status_;
};

struct PlacedAttention {
  LinearWeight qkv, out;
  NormWeight q_norm, k_norm;
  Tensor sinks;  ///< f32 [heads]; empty = none
  QueryTemperature temperature;
};

struct PlacedMoe {
  LinearWeight router;
  RouteRule rule;
  std::vector<GatedMlpWeights> experts;
  GatedMlpWeights shared;
  GatedActivation activation;

  ExpertWeights weights() const {
    return {experts, shared, activation, rule.router == MoeRouter::sigmoid_top};
  }
};

/// As DecoderLayer.
struct PlacedLayer {
  NormWeight attention_input_norm, attention_output_norm;
  PlacedAttention attention;
  NormWeight mlp_input_norm, mlp_output_norm;
  GatedMlpWeights mlp;  ///< empty if the layer has `moe`
  GatedActivation activation;
  std::optional<PlacedMoe> moe;
};

/// One of config.ropes.
struct PlacedRope {
  Tensor frequencies;  ///< f64 [pairs]
  double factor = 1.0;
  bool interleaved = false;
};

struct PlacedDecoder {
  LinearWeight embedding, head;
  std::vector<PlacedRope> ropes;
  std::vector<PlacedLayer> layers;
  NormWeight final_norm;
  DecoderScales scales;
};

PlacedMoe place(const MoeBlock& block, WeightPlacement& placement);
/// `frequencies` of each of config.ropes.
PlacedDecoder place(const ModelConfig& config, const DecoderWeights& weights,
                    std::span<const std::vector<double>> frequencies, const DecoderScales& scales,
                    WeightPlacement& placement);

}  // namespace fovea
