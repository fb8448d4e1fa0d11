#include "model/moe.h"

namespace fovea {
int64_t MoeBlock::bytes_per_token() const {
  const int64_t one = experts.empty() ? 0 : experts.front().bytes();
  return router.bytes() + bias_bytes() + shared.bytes() + config.experts_per_token * one;
}

int64_t MoeBlock::bytes() const {
  int64_t bytes = router.bytes() + bias_bytes() + shared.bytes();
  for (const Expert& expert : experts)
    bytes += expert.bytes();
  return bytes;
}

namespace {

Expert read_gated(const std::string& prefix, std::string_view gate, std::string_view up,
                  std::string_view down, int64_t intermediate, int64_t hidden, WeightReader& reader) {
  Expert expert;
  expert.gate_up = reader.fused(prefix, {{gate, intermediate}, {up, intermediate}}, hidden, false);
  expert.down = reader.fused(prefix, {{down, hidden}}, intermediate, false);
  return expert;
}

/// Whether `block` stores its experts fused, one tensor for all.
bool fused_experts(const std::string& block, const WeightReader& reader) {
  return reader.has(block + "experts.gate_up_proj") || reader.has(block + "experts.down_proj");
}

/// The prefix of the layer's router and experts, such as "mlp.".
std::string block_name(MoeLayout layout, const std::string& layer_prefix, const WeightReader& reader) {
  if (layout == MoeLayout::llama4) return "feed_forward.";
  // transformers 5 names Mixtral's block mlp when it saves its fused form.
  if (layout == MoeLayout::mixtral && !fused_experts(layer_prefix + "mlp.", reader))
    return "block_sparse_moe.";
  return "mlp.";
}

void read_fused_experts(const std::string& prefix, const ModelConfig& c, WeightReader& reader,
                        std::vector<Expert>& experts) {
  const MoeConfig& moe = c.moe;
  WeightReader::ExpertTensor gate_up{prefix + "gate_up_proj", moe.num_experts, 2L * moe.intermediate_size,
                                     c.hidden_size};
  WeightReader::ExpertTensor down{prefix + "down_proj", moe.num_experts, c.hidden_size,
                                  moe.intermediate_size};
  if (moe.layout == MoeLayout::longcat) gate_up.experts = moe.choices();  // transformers stores unused ones
  gate_up.transposed = down.transposed = moe.layout == MoeLayout::gpt_oss || moe.layout == MoeLayout::llama4;
  gate_up.interleaved = moe.layout == MoeLayout::gpt_oss;
  // modules_to_not_convert may leave some experts unquantised; the tensor names show which.
  gate_up.mxfp4 = moe.mxfp4 && !reader.has(gate_up.name);
  down.mxfp4 = moe.mxfp4 && !reader.has(down.name);
  const bool bias = moe.layout == MoeLayout::gpt_oss;
  for (int e = 0; e < moe.num_experts && reader.status(); ++e) {
    Expert& expert = experts.emplace_back();
    expert.gate_up = reader.expert(gate_up, e, bias);
    expert.down = reader.expert(down, e, bias);
  }
}

}  // namespace

MoeBlock read_moe(const std::string& layer_prefix, const ModelConfig& c, WeightReader& reader) {
  const MoeConfig& moe = c.moe;
  const bool mixtral = moe.layout == MoeLayout::mixtral;
  const std::string prefix = layer_prefix + block_name(moe.layout, layer_prefix, reader);
  const bool longcat = moe.layout == MoeLayout::longcat;
  const bool apart =
      mixtral || longcat || moe.layout == MoeLayout::qwen3 || moe.layout == MoeLayout::deepseek;
  const std::string_view router = longcat ? "router.classifier" : apart ? "gate" : "router";
  MoeBlock block;
  block.config = moe;
  block.activation = c.activation;
  block.router = reader.fused(prefix, {{router, moe.choices()}}, c.hidden_size,
                              /*bias=*/moe.layout == MoeLayout::gpt_oss);
  if (moe.choice_bias)
    block.choice_bias = reader.exact_vector(
        prefix + (longcat ? "router" : "gate") + ".e_score_correction_bias", moe.choices(), 0.0f);
  const std::string shared = moe.layout == MoeLayout::deepseek ? "shared_experts." : "shared_expert.";
  if (moe.shared_intermediate_size > 0)
    block.shared = read_gated(prefix + shared, "gate_proj", "up_proj", "down_proj",
                              moe.shared_intermediate_size, c.hidden_size, reader);
  const std::string experts = prefix + "experts.";
  const bool single = apart && !fused_experts(prefix, reader);
  if (!single) {
    read_fused_experts(experts, c, reader, block.experts);
    return block;
  }
  for (int e = 0; e < moe.num_experts && reader.status(); ++e) {
    const std::string name = experts + std::to_string(e) + ".";
    block.experts.push_back(
        mixtral ? read_gated(name, "w1", "w3", "w2", moe.intermediate_size, c.hidden_size, reader)
                : read_gated(name, "gate_proj", "up_proj", "down_proj", moe.intermediate_size, c.hidden_size,
                             reader));
  }
  return block;
}

}  // namespace fovea
