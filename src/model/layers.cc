#include "model/layers.h"

#include <algorithm>
#include <iterator>

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

int64_t LatentBlock::bytes() const {
  int64_t bytes = down.bytes() + q_norm.bytes() + q_up.bytes() + kv_norm.bytes() + out.bytes();
  for (const auto* heads : {&key_up, &value_up, &key_down})
    for (const Linear& head : *heads)
      bytes += head.bytes();
  return bytes + (indexer ? indexer->bytes() : 0);
}

namespace {

/// The norm of a latent, times `scale`. Its eps is not the model's: DeepSeek's code and transformers leave
/// RMSNorm's default.
Norm read_latent_norm(const std::string& prefix, int64_t size, float scale, const ModelConfig& config,
                      WeightReader& reader) {
  Norm norm = read_norm(prefix, size, config, reader);
  norm.eps = 1e-6f;
  for (size_t i = 0; scale != 1.0f && i < norm.weight.size(); ++i)
    norm.weight[i] *= scale;
  return norm;
}

IndexerBlock read_indexer(const std::string& prefix, const ModelConfig& c, WeightReader& reader) {
  const int64_t heads = c.indexer.heads, dim = c.indexer.dim;
  IndexerBlock block;
  block.queries = reader.fused(prefix, {{"wq_b", heads * dim}}, c.mla.q_rank, false);
  block.key = reader.fused(prefix, {{"wk", dim}}, c.hidden_size, false);
  block.key_norm.eps = 1e-6f;
  block.key_norm.weight = reader.vector(prefix + "k_norm.weight", dim, 1.0f);
  block.key_norm.bias = reader.vector(prefix + "k_norm.bias", dim, 0.0f);
  block.weights = reader.fused(prefix, {{"weights_proj", heads}}, c.hidden_size, false);
  return block;
}

}  // namespace

LatentBlock read_latent(const std::string& prefix, const ModelConfig& c, WeightReader& reader, bool indexer) {
  const MlaConfig& m = c.mla;
  const int64_t heads = c.num_heads, q_size = heads * m.qk_dim();
  const WeightReader::Part record{"kv_a_proj_with_mqa", m.record(), c.qkv_bias};
  LatentBlock block;
  if (m.q_rank > 0) {
    block.down =
        reader.fused(prefix, {{"q_a_proj", m.q_rank, c.qkv_bias}, record}, c.hidden_size, c.qkv_bias);
    block.q_norm = read_latent_norm(prefix + "q_a_layernorm", m.q_rank, m.q_scale, c, reader);
    block.q_up = reader.fused(prefix, {{"q_b_proj", q_size}}, m.q_rank, false);
  } else {
    block.down = reader.fused(prefix, {{"q_proj", q_size, false}, record}, c.hidden_size, c.qkv_bias);
  }
  block.kv_norm = read_latent_norm(prefix + "kv_a_layernorm", m.kv_rank, m.kv_scale, c, reader);
  // A head's rows: those of its keys, then those of its values.
  std::vector<WeightReader::Cut> cuts;
  const int64_t rows = m.nope_dim + m.v_dim;
  for (int64_t h = 0; h < heads; ++h)
    cuts.push_back({h * rows, m.nope_dim, true});
  for (int64_t h = 0; h < heads; ++h)
    cuts.push_back({h * rows + m.nope_dim, m.v_dim, false});
  for (int64_t h = 0; m.expanded_keys > 0 && h < heads; ++h)
    cuts.push_back({h * rows, m.nope_dim, false});
  std::vector<Linear> parts = reader.cuts(prefix + "kv_b_proj.weight", heads * rows, m.kv_rank, cuts);
  const auto middle = parts.begin() + heads, end = middle + heads;
  block.key_up.assign(std::make_move_iterator(parts.begin()), std::make_move_iterator(middle));
  block.value_up.assign(std::make_move_iterator(middle), std::make_move_iterator(end));
  block.key_down.assign(std::make_move_iterator(end), std::make_move_iterator(parts.end()));
  block.out = reader.fused(prefix, {{"o_proj", c.hidden_size}}, heads * m.v_dim, c.o_bias);
  if (indexer) block.indexer = read_indexer(prefix + "indexer.", c, reader);
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
