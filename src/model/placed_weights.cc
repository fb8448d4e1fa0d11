#include "model/placed_weights.h"

#include "base/check.h"
#include "ops/cpu_ops.h"

namespace fovea {

LinearWeight WeightPlacement::linear(const PackedView& weight, std::span<const float> bias) {
  if (weight.n == 0 || !status_) return {};
  const LinearWeight host = packed_weight(weight, bias);
  if (!ops_) return host;
  auto placed = ops_->place(host, WeightUse::plain, *stream_);
  if (!placed) {
    status_ = placed.error();
    return {};
  }
  std::string reasons;
  for (const std::string& reason : ops_->supports(placed->weight.format))
    reasons += (reasons.empty() ? "" : "; ") + reason;
  if (!reasons.empty())
    status_ = unsupported(std::string(ops_->device().name()) + " can't run the model: " + reasons);
  memory_.push_back(std::move(placed->memory));
  return placed->weight;
}

NormWeight WeightPlacement::norm(const Norm& norm) {
  return {vector<float>(norm.weight), vector<float>(norm.bias), norm.eps};
}

Tensor WeightPlacement::copied(const Tensor& host) {
  if (!ops_ || !status_) return host;
  const Buffer& memory = memory_.emplace_back(ops_->device(), dense_bytes(host.dtype, {host.size(0)}));
  const Tensor there = memory.tensor(host.dtype, {host.size(0)});
  status_ = copy(host, there, *stream_);
  return there;
}

namespace {

GatedMlpWeights place(const Linear& gate_up, const Linear& down, WeightPlacement& placement) {
  return {placement.linear(gate_up), placement.linear(down)};
}

PlacedAttention place(const AttentionBlock& block, WeightPlacement& placement) {
  return {placement.linear(block.qkv),  placement.linear(block.out),          placement.norm(block.q_norm),
          placement.norm(block.k_norm), placement.vector<float>(block.sinks), block.temperature};
}

}  // namespace

PlacedMoe place(const MoeBlock& block, WeightPlacement& placement) {
  PlacedMoe moe;
  moe.router = placement.linear(block.router);
  moe.rule = {block.config.router, block.config.num_experts, block.config.experts_per_token,
              block.config.renormalize};
  for (const Expert& expert : block.experts)
    moe.experts.push_back(place(expert.gate_up, expert.down, placement));
  moe.shared = place(block.shared.gate_up, block.shared.down, placement);
  moe.activation = {block.activation, block.config.swiglu_limit};
  return moe;
}

PlacedDecoder place(const ModelConfig& config, const DecoderWeights& weights,
                    std::span<const std::vector<double>> frequencies, const DecoderScales& scales,
                    WeightPlacement& placement) {
  PlacedDecoder out;
  out.embedding = placement.linear(weights.embedding);
  out.head = weights.lm_head ? placement.linear(*weights.lm_head) : out.embedding;
  FOVEA_CHECK(frequencies.size() == config.ropes.size());
  for (size_t i = 0; i < frequencies.size(); ++i)
    out.ropes.push_back({placement.vector<double>(frequencies[i]), config.ropes[i].attention_factor,
                         config.ropes[i].interleaved});
  for (const DecoderLayer& layer : weights.layers) {
    PlacedLayer& placed = out.layers.emplace_back();
    placed.attention_input_norm = placement.norm(layer.attention_input_norm);
    placed.attention_output_norm = placement.norm(layer.attention_output_norm);
    placed.attention = place(layer.attention, placement);
    placed.mlp_input_norm = placement.norm(layer.mlp_input_norm);
    placed.mlp_output_norm = placement.norm(layer.mlp_output_norm);
    if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp)) {
      placed.mlp = place(dense->gate_up, dense->down, placement);
      placed.activation.f = dense->activation;
    } else {
      placed.moe = place(std::get<MoeBlock>(layer.mlp), placement);
    }
  }
  out.final_norm = placement.norm(weights.final_norm);
  out.scales = scales;
  return out;
}

}  // namespace fovea
