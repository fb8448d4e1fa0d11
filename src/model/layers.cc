#include "model/layers.h"

#include <algorithm>

namespace fovea {

int64_t AttentionBlock::bytes() const {
  return qkv.bytes() + out.bytes() + q_norm.bytes() + k_norm.bytes() +
         static_cast<int64_t>(sinks.size() * sizeof(float));
}

Norm read_norm(const std::string& prefix, int64_t size, const ModelConfig& config, WeightReader& reader) {
  Norm norm;
  norm.eps = config.norm_eps;
  const bool plus_one = config.norm == NormKind::rms_plus_one;
  norm.weight = reader.vector(prefix + ".weight", size, plus_one ? 0.0f : 1.0f);
  if (plus_one)
    for (size_t i = 0; i < norm.weight.size(); ++i)
      norm.weight[i] += 1.0f;
  if (config.norm == NormKind::layer) norm.bias = reader.vector(prefix + ".bias", size, 0.0f);
  return norm;
}

AttentionBlock read_attention(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                              Stored stored) {
  const int64_t q_size = static_cast<int64_t>(config.num_heads) * config.head_dim;
  const int64_t kv_size = static_cast<int64_t>(config.num_kv_heads) * config.head_dim;
  AttentionBlock block;
  block.qkv =
      stored == Stored::stacked
          ? reader.fused(prefix, {{"qkv_proj", q_size + 2 * kv_size}}, config.hidden_size, config.qkv_bias)
          : reader.fused(prefix, {{"q_proj", q_size}, {"k_proj", kv_size}, {"v_proj", kv_size}},
                         config.hidden_size, config.qkv_bias);
  block.out = reader.fused(prefix, {{"o_proj", config.hidden_size}}, q_size, config.o_bias);
  if (config.qk_norm == QkNorm::head || config.qk_norm == QkNorm::row) {
    const bool row = config.qk_norm == QkNorm::row;
    block.q_norm = read_norm(prefix + "q_norm", row ? q_size : config.head_dim, config, reader);
    block.k_norm = read_norm(prefix + "k_norm", row ? kv_size : config.head_dim, config, reader);
  } else if (config.qk_norm == QkNorm::l2_after_rope) {
    for (Norm* norm : {&block.q_norm, &block.k_norm}) {
      norm->eps = config.norm_eps;
      norm->weight = AlignedArray<float>(static_cast<size_t>(config.head_dim));
      std::fill_n(norm->weight.data(), norm->weight.size(), 1.0f);
    }
  }
  if (config.sinks) block.sinks = reader.vector(prefix + "sinks", config.num_heads, 0.0f);
  return block;
}

GatedMlp read_gated_mlp(const std::string& prefix, const ModelConfig& config, WeightReader& reader,
                        Stored stored) {
  const int64_t intermediate = config.intermediate_size;
  GatedMlp mlp;
  mlp.activation = config.activation;
  mlp.gate_up =
      stored == Stored::stacked
          ? reader.fused(prefix, {{"gate_up_proj", 2 * intermediate}}, config.hidden_size, config.mlp_bias)
          : reader.fused(prefix, {{"gate_proj", intermediate}, {"up_proj", intermediate}}, config.hidden_size,
                         config.mlp_bias);
  mlp.down = reader.fused(prefix, {{"down_proj", config.hidden_size}}, intermediate, config.mlp_bias);
  return mlp;
}

}  // namespace fovea
