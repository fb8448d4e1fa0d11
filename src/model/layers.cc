#include "model/layers.h"

#include "kernels/cpu/ops.h"

namespace fovea {

void AttentionBlock::attend(const ModelConfig& config, int layer, const float* x, const ForwardInput& input,
                            const LayerScratch& scratch, ThreadPool& serial, Stream& stream) const {
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  const int64_t dim = config.head_dim, width = qkv.weight.n();
  const int heads = config.num_heads, kv_heads = config.num_kv_heads;
  ThreadPool& pool = stream.pool();
  qkv.forward(x, config.hidden_size, rows, scratch.qkv, width, pool);
  if (q_norm.size()) {
    // A row's heads are the rows of a matrix [heads, D]; the rows of the step are shared out among the
    // threads.
    pool.parallel_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        float* q = scratch.qkv + row * width;
        float* k = q + heads * dim;
        rms_norm(q, dim, q_norm.data(), config.norm_eps, q, dim, heads, dim, serial);
        rms_norm(k, dim, k_norm.data(), config.norm_eps, k, dim, kv_heads, dim, serial);
      }
    });
  }
  // q and k heads lie side by side and rotate alike.
  rope_neox(scratch.qkv, width, heads + kv_heads, config.head_dim, config.head_dim, scratch.row_ids,
            scratch.cos, scratch.sin, pool);
  const float* k = scratch.qkv + heads * dim;
  input.kv->append(layer, input.slots, k, width, k + kv_heads * dim, width, stream);
  AttentionArgs args;
  args.q = scratch.qkv;
  args.q_row_stride = width;
  args.out = scratch.heads;
  args.out_row_stride = heads * dim;
  args.kv = input.kv->layer(layer);
  input.attention->forward(layer, args, stream);
}

void GatedMlp::forward(const float* x, int64_t rows, float* out, const LayerScratch& scratch,
                       ThreadPool& pool) const {
  const int64_t hidden = gate_up.weight.k(), intermediate = down.weight.k();
  gate_up.forward(x, hidden, rows, scratch.gate_up, 2 * intermediate, pool);
  silu_mul(scratch.gate_up, scratch.gate_up + intermediate, 2 * intermediate, scratch.act, intermediate, rows,
           intermediate, pool);
  down.forward(scratch.act, intermediate, rows, out, hidden, pool);
}

AttentionBlock read_attention(const std::string& prefix, const ModelConfig& config, WeightReader& reader) {
  const int64_t q_size = static_cast<int64_t>(config.num_heads) * config.head_dim;
  const int64_t kv_size = static_cast<int64_t>(config.num_kv_heads) * config.head_dim;
  AttentionBlock block;
  block.qkv = reader.fused(prefix, {{"q_proj", q_size}, {"k_proj", kv_size}, {"v_proj", kv_size}},
                           config.hidden_size, config.qkv_bias);
  block.out = reader.fused(prefix, {{"o_proj", config.hidden_size}}, q_size, config.o_bias);
  if (config.qk_norm == QkNorm::head) {
    block.q_norm = reader.norm(prefix + "q_norm.weight", config.head_dim);
    block.k_norm = reader.norm(prefix + "k_norm.weight", config.head_dim);
  }
  return block;
}

GatedMlp read_gated_mlp(const std::string& prefix, const ModelConfig& config, WeightReader& reader) {
  const int64_t intermediate = config.intermediate_size;
  GatedMlp mlp;
  mlp.gate_up = reader.fused(prefix, {{"gate_proj", intermediate}, {"up_proj", intermediate}},
                             config.hidden_size, config.mlp_bias);
  mlp.down = reader.fused(prefix, {{"down_proj", config.hidden_size}}, intermediate, config.mlp_bias);
  return mlp;
}

}  // namespace fovea
