#include "model/placed_blocks.h"

#include "fovea/attention.h"

namespace fovea {

NormWeight place(const BiasedNorm& norm, float eps, WeightPlacement& placement) {
  if (!norm) return {};
  return {placement.vector<float>(norm.weight), placement.vector<float>(norm.bias), eps};
}

PlacedSelfAttention place(const SelfAttention& block, float eps, WeightPlacement& placement) {
  return {placement.linear(block.qkv), placement.linear(block.out), place(block.norm, eps, placement)};
}

PlacedCrossAttention place(const CrossAttention& block, float eps, WeightPlacement& placement) {
  return {placement.linear(block.q), placement.linear(block.kv), placement.linear(block.out),
          place(block.norm, eps, placement)};
}

PlacedFeedForward place(const FeedForward& block, float eps, WeightPlacement& placement) {
  return {placement.linear(block.in), placement.linear(block.out), place(block.norm, eps, placement)};
}

Tensor take_rows(Arena& arena, ElementType type, int64_t max_rows, int64_t rows, int64_t width) {
  const int64_t group = size_of(type) == 2 ? 8 : 1, stride = (width + group - 1) / group * group;
  const Tensor taken = arena.take(type, {max_rows, stride}).first_rows(rows);
  return stride == width ? taken : taken.slice(1, 0, width);
}

BlockPass::BlockPass(const BlockShape& shape, int64_t rows, int64_t max_rows, int64_t max_kept, Arena& arena,
                     OpQueue& queue)
    : shape_(shape), rows_(rows), max_rows_(max_rows), arena_(arena), q_(queue) {
  x_ = take(ElementType::f32, shape.hidden);
  if (max_kept > 0) kept_ = take_rows(arena, ElementType::f32, max_kept, max_kept, shape.hidden);
  input_ = take(q_.activations(), shape.hidden);
  branch_ = take(q_.activations(), shape.hidden);
}

Tensor BlockPass::input(const NormWeight& norm) {
  if (norm) {
    q_.norm(norm, x_, input_);
    return input_;
  }
  if (q_.activations() == ElementType::f32) return x_;
  q_.cast(x_, input_);
  return input_;
}

/// The input of a block.
Tensor BlockPass::enter(const NormWeight& norm) {
  return input(shape_.placement == NormPlacement::pre ? norm : NormWeight());
}

/// Adds the block's output, a linear layer of `inner`, to the residual stream.
void BlockPass::leave(const NormWeight& norm, const LinearWeight& out, const Tensor& inner) {
  q_.linear(out, inner, branch_);
  q_.add(x_, branch_, 1.0f);
  if (shape_.placement == NormPlacement::residual) q_.norm(norm, x_, x_);
}

void BlockPass::encoder_layer(const PlacedEncoderLayer& layer, int index, StepAttention* attention) {
  {
    const Arena::Scope scope(arena_);
    const PlacedSelfAttention& block = layer.attention;
    const Tensor in = enter(block.norm);
    const Tensor qkv = take(q_.activations(), 3 * int64_t{shape_.hidden});
    const Tensor heads = take(q_.activations(), shape_.hidden);
    q_.linear(block.qkv, in, qkv);
    AttentionArgs args;
    args.q = qkv.data;
    args.q_row_stride = qkv.stride(0);
    args.out = heads.data;
    args.out_row_stride = heads.stride(0);
    args.kv.dtype = resolve(KvCacheDType::auto_, q_.activation_dtype());
    args.kv.num_pages = rows_;
    args.kv.k_page_stride = args.kv.v_page_stride = qkv.stride(0);  // one page for each row
    args.kv.k_head_stride = args.kv.v_head_stride = shape_.head_dim();
    args.kv.k = qkv.slice(1, shape_.hidden, shape_.hidden).data;
    args.kv.v = qkv.slice(1, 2 * int64_t{shape_.hidden}, shape_.hidden).data;
    q_.call([&](Stream& stream) { return attention->forward(index, args, stream); });
    leave(block.norm, block.out, heads);
  }
  feed_forward(layer.mlp);
}

void BlockPass::self_attention(const PlacedSelfAttention& block, int layer, const StepTensors& step) {
  const Arena::Scope scope(arena_);
  const Tensor in = enter(block.norm);
  const Tensor qkv = take(q_.activations(), 3 * int64_t{shape_.hidden});
  const Tensor heads = take(q_.activations(), shape_.hidden);
  q_.linear(block.qkv, in, qkv);
  AttentionInput append;
  append.qkv = qkv;
  append.heads = append.kv_heads = shape_.heads;
  append.head_dim = shape_.head_dim();
  append.positions = step.positions;
  append.slots = step.slots;
  if (step.kv) append.kv = step.kv->layer(layer);
  q_.norm_rope_append(append);
  AttentionArgs args;
  args.q = qkv.data;
  args.q_row_stride = qkv.stride(0);
  args.out = heads.data;
  args.out_row_stride = heads.stride(0);
  args.kv = append.kv;
  q_.call([&](Stream& stream) { return step.attention->forward(layer, args, stream); });
  leave(block.norm, block.out, heads);
}

void BlockPass::cross_attention(const PlacedCrossAttention& block, int layer, int index,
                                const StepTensors& step) {
  const Arena::Scope scope(arena_);
  const Tensor in = enter(block.norm);
  const Tensor q = take(q_.activations(), shape_.hidden), heads = take(q_.activations(), shape_.hidden);
  q_.linear(block.q, in, q);
  AttentionArgs args;
  args.q = q.data;
  args.q_row_stride = q.stride(0);
  args.out = heads.data;
  args.out_row_stride = heads.stride(0);
  if (step.kv) args.kv = step.kv->layer(layer);
  q_.call([&](Stream& stream) { return step.attention->forward(index, args, stream); });
  leave(block.norm, block.out, heads);
}

void BlockPass::feed_forward(const PlacedFeedForward& block) {
  const Arena::Scope scope(arena_);
  const Tensor in = enter(block.norm), wide = take(q_.activations(), shape_.intermediate);
  q_.linear(block.in, in, wide);
  q_.activate(shape_.activation, wide);
  leave(block.norm, block.out, wide);
}

void BlockPass::keep_rows(const Tensor& ids) {
  const int64_t kept = ids.size(0);
  if (kept == rows_) return;  // ascending, so all of them
  rows_ = kept;
  kept_ = kept_.first_rows(kept);
  q_.gather_rows(x_, ids, kept_);
  x_ = kept_;
  input_ = input_.first_rows(kept);
  branch_ = branch_.first_rows(kept);
}

void append_kv(const Tensor& kv, const BlockShape& shape, const Tensor& positions, const Tensor& slots,
               const KvView& view, OpQueue& queue) {
  AttentionInput append;
  append.qkv = kv;
  append.heads = 0;
  append.kv_heads = shape.heads;
  append.head_dim = shape.head_dim();
  append.positions = positions;
  append.slots = slots;
  append.kv = view;
  queue.norm_rope_append(append);
}

}  // namespace fovea
