#include "model/layers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

void rotate(const RopeRows& rope, float* x, int64_t width, int heads, int head_dim,
            std::span<const int32_t> row_ids, ThreadPool& pool) {
  const auto rotation = rope.interleaved ? rope_interleaved : rope_neox;
  rotation(x, width, heads, head_dim, rope.rotary_dim, row_ids, rope.cos, rope.sin, pool);
}

void sharpen(const ModelConfig& config, const QueryTemperature& temperature,
             std::span<const int32_t> positions, float* q, int64_t width, ThreadPool& pool) {
  const int64_t dim = static_cast<int64_t>(config.num_heads) * config.head_dim;
  for (size_t row = 0; row < positions.size(); ++row) {
    const double steps = std::floor((positions[row] + 1) / temperature.floor);
    const double factor = 1 + temperature.scale * std::log1p(steps);
    scale_rows(q + static_cast<int64_t>(row) * width, width, static_cast<float>(factor), 1, dim, pool);
  }
}

}  // namespace

void Norm::apply(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows,
                 ThreadPool& pool) const {
  const auto dim = static_cast<int64_t>(weight.size());
  if (bias.size())
    layer_norm(x, x_stride, weight.data(), bias.data(), eps, y, y_stride, rows, dim, pool);
  else
    rms_norm(x, x_stride, weight.data(), eps, y, y_stride, rows, dim, pool);
}

void Norm::apply_to_heads(float* x, int64_t row_stride, int heads, int64_t rows, ThreadPool& pool) const {
  FOVEA_CHECK(bias.size() == 0);
  rms_norm_heads(x, row_stride, heads, static_cast<int>(weight.size()), weight.data(), eps, rows, pool);
}

int64_t AttentionBlock::bytes() const {
  return qkv.bytes() + out.bytes() + q_norm.bytes() + k_norm.bytes() +
         static_cast<int64_t>(sinks.size() * sizeof(float));
}

/// q [rows, Hq * D], followed by k in each row.
void AttentionBlock::norm_heads(const ModelConfig& config, float* q, int64_t rows, ThreadPool& pool) const {
  const int64_t width = qkv.weight.n();
  float* k = q + int64_t{config.num_heads} * config.head_dim;
  if (config.qk_norm == QkNorm::row) {
    q_norm.apply(q, width, q, width, rows, pool);
    k_norm.apply(k, width, k, width, rows, pool);
    return;
  }
  q_norm.apply_to_heads(q, width, config.num_heads, rows, pool);
  k_norm.apply_to_heads(k, width, config.num_kv_heads, rows, pool);
}

void AttentionBlock::attend(const ModelConfig& config, int layer, const float* x, const ForwardInput& input,
                            const LayerScratch& scratch, Stream& stream) const {
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  const int64_t dim = config.head_dim, width = qkv.weight.n();
  const int heads = config.num_heads, kv_heads = config.num_kv_heads;
  const int rope = config.layers[static_cast<size_t>(layer)].rope;
  ThreadPool& pool = stream.pool();
  qkv.forward(x, config.hidden_size, rows, scratch.qkv, width, pool);
  if (config.qk_norm == QkNorm::head || config.qk_norm == QkNorm::row)
    norm_heads(config, scratch.qkv, rows, pool);
  if (rope >= 0) {
    // q and k heads are adjacent and rotate in one call.
    rotate(scratch.ropes[static_cast<size_t>(rope)], scratch.qkv, width, heads + kv_heads, config.head_dim,
           scratch.row_ids, pool);
    if (config.qk_norm == QkNorm::l2_after_rope) norm_heads(config, scratch.qkv, rows, pool);
  } else if (temperature.scale != 0) {
    sharpen(config, temperature, input.positions, scratch.qkv, width, pool);
  }
  const float* k = scratch.qkv + heads * dim;
  input.kv->append(layer, input.slots, k, width, k + kv_heads * dim, width, stream);
  AttentionArgs args;
  args.q = scratch.qkv;
  args.q_row_stride = width;
  args.out = scratch.heads;
  args.out_row_stride = heads * dim;
  args.kv = input.kv->layer(layer);
  args.sinks = sinks.size() ? sinks.data() : nullptr;
  input.attention->forward(layer, args, stream);
}

void GatedMlp::forward(const float* x, int64_t rows, float* out, const LayerScratch& scratch,
                       ThreadPool& pool) const {
  const int64_t hidden = gate_up.weight.k(), intermediate = down.weight.k();
  gate_up.forward(x, hidden, rows, scratch.gate_up, 2 * intermediate, pool);
  activate_mul(activation, scratch.gate_up, scratch.gate_up + intermediate, 2 * intermediate, scratch.act,
               intermediate, rows, intermediate, pool);
  down.forward(scratch.act, intermediate, rows, out, hidden, pool);
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
