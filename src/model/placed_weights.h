#pragma once
// A decoder's weights as its device's operations read them: views of the model's own weights on the CPU,
// copies on another device.
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "model/model.h"
#include "model/weight_transfer.h"
#include "ops/ops.h"

namespace fovea {

/// Makes views or device copies of weights, and owns the memory of the copies. In one of three ways: views on
/// the CPU; copies by Ops::place(), one allocation each; or, where the operations have a packed_format(), one
/// block of memory whose size measure() knows and whose matrices read() fills.
class WeightPlacement {
 public:
  /// On the CPU: makes views, so the weights must not move.
  WeightPlacement() = default;
  /// Makes copies on the device of `ops`, in the formats that it chooses. With a packed_format(), `bytes` are
  /// those of measure() after the same calls. Functions throw std::bad_alloc.
  WeightPlacement(Ops& ops, Stream& stream, int64_t bytes);
  /// Makes weights without memory and adds up their bytes. The operations have a packed_format().
  static WeightPlacement measure(Ops& ops);

  /// Empty if the weights are.
  LinearWeight linear(const WeightMatrix& weight, std::span<const float> bias = {},
                      WeightUse use = WeightUse::plain);
  LinearWeight linear(const Linear& layer, WeightUse use = WeightUse::plain) {
    return linear(layer.weight, layer.bias, use);
  }
  /// Layers of one shape. In a block of memory their matrices lie at a constant distance, and their biases
  /// one after the other: [layers, n].
  std::vector<LinearWeight> linears(std::span<const Linear* const> layers, WeightUse use);
  NormWeight norm(const Norm& norm);
  template <class T>
  Tensor vector(std::span<const T> values) {
    return values.empty() ? Tensor() : copied(host_tensor(values));
  }

  /// Reads the matrices of a block of memory, and waits for all copies, after an error too. Errors: the
  /// first, as of status().
  Status finish(const PlaceOptions& options);

  /// A plain weight [n, k] without memory.
  LinearWeight shape_only(int64_t n, int64_t k) const;

  /// The first error: a copy that failed, or a format that the operations cannot read.
  const Status& status() const { return status_; }
  /// Of measure(), and of the block of memory.
  int64_t bytes() const { return used_; }
  /// The memory of the copies; they are valid as long as it lives.
  std::vector<Buffer> take_memory() { return std::move(memory_); }

 private:
  WeightPlacement(Ops& ops, Stream* stream) : ops_(&ops), stream_(stream) {}
  bool in_block() const { return ops_ && format_of(WeightUse::plain).has_value(); }
  std::optional<WeightFormat> format_of(WeightUse use) const { return ops_->packed_format(use); }
  WeightFormat format_of(const WeightMatrix& weight, WeightUse use) const;
  Tensor take(ElementType type, std::initializer_list<int64_t> shape);
  Tensor copied(const Tensor& host);
  void copy_to(const Tensor& there, const Tensor& host);
  /// `scales`: where those of codes go, after those of `index` layers; empty = memory of their own.
  LinearWeight packed(const WeightMatrix& weight, WeightUse use, const Tensor& scales = {},
                      int64_t index = 0);
  Tensor scales_of(const Tensor& all, int64_t index, const LinearWeight& weight) const;
  void send_scales(const LinearWeight& weight, const WeightSource& source);
  void check_format(const WeightFormat& format);

  Ops* ops_ = nullptr;        // null: views
  Stream* stream_ = nullptr;  // null: measure()
  int64_t used_ = 0;          // of the block
  std::vector<Buffer> memory_;
  std::vector<WeightTransfer> matrices_;
  std::deque<std::vector<float>> sent_;  // what copies to the device read
  Status status_;
};

int64_t bytes_of(const std::vector<Buffer>& memory);
/// The error of deferred weights on a device whose operations have no packed_format().
Error needs_host_weights(const Ops& ops);

struct PlacedAttention {
  LinearWeight qkv, out;
  NormWeight q_norm, k_norm;
  Tensor sinks;  ///< f32 [heads]; empty = none
  QueryTemperature temperature;
};

/// As IndexerBlock.
struct PlacedIndexer {
  LinearWeight queries, key, weights;
  NormWeight key_norm;
};

/// As LatentBlock.
struct PlacedLatent {
  LinearWeight down, q_up, out;
  NormWeight q_norm, kv_norm;
  std::vector<LinearWeight> key_up, value_up, key_down;  ///< [heads] of one shape, without biases
  std::optional<PlacedIndexer> indexer;
};

struct PlacedMoe {
  LinearWeight router;
  RouteRule rule;
  std::vector<GatedMlpWeights> experts;
  GatedMlpWeights shared;
  GatedActivation activation;
  int identity_experts = 0;  ///< the rule's last choices

  ExpertWeights weights() const {
    return {experts, shared, activation, rule.router == MoeRouter::sigmoid_top, identity_experts};
  }
};

/// As DecoderLayer.
struct PlacedLayer {
  NormWeight attention_input_norm, attention_output_norm;
  PlacedAttention attention;
  std::optional<PlacedLatent> latent;  ///< in place of `attention`
  NormWeight mlp_input_norm, mlp_output_norm;
  GatedMlpWeights mlp;  ///< empty if the layer has `moe`
  GatedActivation activation;
  std::optional<PlacedMoe> moe;
  std::optional<PlacedMoe> shortcut;  ///< beside `mlp`
};

/// One of config.ropes.
struct PlacedRope {
  Tensor frequencies;  ///< f64 [pairs]
  double factor = 1.0;
  bool interleaved = false;
};

/// As DraftInput.
struct PlacedDraftInput {
  bool joins_in_attention = false, norm_before_residual = false;
  NormWeight embedding_norm, state_norm, fc_norm;
  LinearWeight fc;
  std::vector<NormWeight> part_norms;
};

struct PlacedDecoder {
  std::optional<PlacedDraftInput> draft;
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
