#include "model/encoder_blocks.h"

#include "base/thread_pool.h"
#include "kernels/cpu/ops.h"

namespace fovea {

void BiasedNorm::forward(const float* x, float* y, int64_t rows, float eps, ThreadPool& pool) const {
  const auto dim = static_cast<int64_t>(weight.size());
  layer_norm(x, dim, weight.data(), bias.data(), eps, y, dim, rows, dim, pool);
}

namespace {

int64_t bytes_of(const SelfAttention& a) {
  return a.qkv.bytes() + a.out.bytes() + a.norm.bytes();
}
int64_t bytes_of(const CrossAttention& a) {
  return a.q.bytes() + a.kv.bytes() + a.out.bytes() + a.norm.bytes();
}
int64_t bytes_of(const FeedForward& m) {
  return m.in.bytes() + m.out.bytes() + m.norm.bytes();
}

}  // namespace

int64_t EncoderLayer::bytes() const {
  return bytes_of(attention) + bytes_of(mlp);
}

int64_t CrossDecoderLayer::bytes() const {
  return bytes_of(attention) + bytes_of(cross) + bytes_of(mlp);
}

/// The input of a block.
const float* BlockRunner::enter(const BiasedNorm& norm, int64_t rows) {
  if (shape_.placement != NormPlacement::pre) return s_.x;
  norm.forward(s_.x, s_.normed, rows, shape_.eps, stream_.pool());
  return s_.normed;
}

/// Adds the block's output, a linear layer of `inner`, to the residual stream.
void BlockRunner::leave(const BiasedNorm& norm, const Linear& out, const float* inner, int64_t rows) {
  const int64_t hidden = shape_.hidden;
  ThreadPool& pool = stream_.pool();
  out.forward(inner, out.weight.k(), rows, s_.branch, hidden, pool);
  add_rows(s_.x, hidden, s_.branch, hidden, 1.0f, rows, hidden, pool);
  if (shape_.placement == NormPlacement::residual) norm.forward(s_.x, s_.x, rows, shape_.eps, pool);
}

Status BlockRunner::encoder_layer(const EncoderLayer& layer, int64_t rows, int index,
                                  StepAttention& attention) {
  const int64_t hidden = shape_.hidden, width = 3 * hidden;
  const SelfAttention& block = layer.attention;
  const float* x = enter(block.norm, rows);
  block.qkv.forward(x, hidden, rows, s_.wide, width, stream_.pool());
  AttentionArgs args;
  args.q = s_.wide;
  args.q_row_stride = width;
  args.out = s_.wide + rows * width;
  args.out_row_stride = hidden;
  args.kv.k = s_.wide + hidden;
  args.kv.v = s_.wide + 2 * hidden;
  args.kv.num_pages = rows;
  args.kv.k_page_stride = args.kv.v_page_stride = width;  // one page per row
  args.kv.k_head_stride = args.kv.v_head_stride = shape_.head_dim();
  FOVEA_RETURN_IF_ERROR(attention.forward(index, args, stream_));
  leave(block.norm, block.out, s_.wide + rows * width, rows);
  feed_forward(layer.mlp, rows);
  return {};
}

Status BlockRunner::self_attention(const SelfAttention& block, int layer, const ForwardInput& input) {
  const int64_t hidden = shape_.hidden, width = 3 * hidden;
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  const float* x = enter(block.norm, rows);
  block.qkv.forward(x, hidden, rows, s_.wide, width, stream_.pool());
  input.kv->append(layer, input.slots, s_.wide + hidden, width, s_.wide + 2 * hidden, width, stream_);
  AttentionArgs args;
  args.q = s_.wide;
  args.q_row_stride = width;
  args.out = s_.wide + rows * width;
  args.out_row_stride = hidden;
  args.kv = input.kv->layer(layer);
  FOVEA_RETURN_IF_ERROR(input.attention->forward(layer, args, stream_));
  leave(block.norm, block.out, s_.wide + rows * width, rows);
  return {};
}

Status BlockRunner::cross_attention(const CrossAttention& block, int layer, int index,
                                    const ForwardInput& input) {
  const int64_t hidden = shape_.hidden;
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  const float* x = enter(block.norm, rows);
  block.q.forward(x, hidden, rows, s_.wide, hidden, stream_.pool());
  AttentionArgs args;
  args.q = s_.wide;
  args.q_row_stride = hidden;
  args.out = s_.wide + rows * hidden;
  args.out_row_stride = hidden;
  args.kv = input.kv->layer(layer);
  FOVEA_RETURN_IF_ERROR(input.attention->forward(index, args, stream_));
  leave(block.norm, block.out, s_.wide + rows * hidden, rows);
  return {};
}

void BlockRunner::feed_forward(const FeedForward& block, int64_t rows) {
  const int64_t intermediate = shape_.intermediate;
  const float* x = enter(block.norm, rows);
  block.in.forward(x, shape_.hidden, rows, s_.wide, intermediate, stream_.pool());
  activate(shape_.activation, s_.wide, intermediate, s_.wide, intermediate, rows, intermediate,
           stream_.pool());
  leave(block.norm, block.out, s_.wide, rows);
}

BiasedNorm read_biased_norm(const std::string& name, int64_t size, WeightReader& reader) {
  const bool old = !reader.has(name + ".weight") && reader.has(name + ".gamma");
  BiasedNorm norm;
  norm.weight = reader.vector(name + (old ? ".gamma" : ".weight"), size, 1.0f);
  norm.bias = reader.vector(name + (old ? ".beta" : ".bias"), size, 0.0f);
  return norm;
}

SelfAttention read_self_attention(const std::string& prefix, const BlockNames& names, int64_t hidden,
                                  bool key_bias, WeightReader& reader) {
  SelfAttention block;
  block.qkv = reader.fused(prefix, {{names.q, hidden}, {names.k, hidden, key_bias}, {names.v, hidden}},
                           hidden, /*bias=*/true);
  block.out = reader.fused(prefix, {{names.out, hidden}}, hidden, /*bias=*/true);
  block.norm = read_biased_norm(prefix + std::string(names.attention_norm), hidden, reader);
  return block;
}

FeedForward read_feed_forward(const std::string& prefix, const BlockNames& names, int64_t hidden,
                              int64_t intermediate, WeightReader& reader) {
  FeedForward block;
  block.in = reader.fused(prefix, {{names.in, intermediate}}, hidden, /*bias=*/true);
  block.out = reader.fused(prefix, {{names.mlp_out, hidden}}, intermediate, /*bias=*/true);
  block.norm = read_biased_norm(prefix + std::string(names.mlp_norm), hidden, reader);
  return block;
}

std::string find_prefix(const WeightReader& reader, const std::string& tensor,
                        std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    if (reader.has(std::string(prefix) + tensor)) return std::string(prefix);
  return std::string(*prefixes.begin());
}

}  // namespace fovea
