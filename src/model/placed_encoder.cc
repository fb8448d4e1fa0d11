#include "model/placed_encoder.h"

namespace fovea {
namespace {

NormWeight place_norm(const BiasedNorm& norm, float eps, WeightPlacement& placement) {
  if (!norm) return {};
  return {placement.vector<float>(norm.weight), placement.vector<float>(norm.bias), eps};
}

/// The residual stream x is fp32; blocks read it rounded to the type of activations.
class EncoderPass {
 public:
  EncoderPass(const BlockShape& shape, const PlacedEncoder& weights, int64_t max_rows,
              const EncoderStep& step, Arena& arena, OpQueue& queue)
      : shape_(shape),
        w_(weights),
        max_rows_(max_rows),
        step_(step),
        arena_(arena),
        q_(queue),
        rows_(step.words.size(0)) {}

  Tensor run() {
    x_ = take(ElementType::f32, shape_.hidden);
    input_ = take(q_.activations(), shape_.hidden);
    branch_ = take(q_.activations(), shape_.hidden);
    embed();
    for (size_t i = 0; i < w_.layers.size(); ++i) {
      const PlacedEncoderLayer& layer = w_.layers[i];
      attention(layer, static_cast<int>(i));
      mlp(layer);
    }
    return x_;
  }

 private:
  /// [rows, width], in arena memory for [max_rows, width]. Rows of 16-bit types begin at multiples of 16
  /// bytes.
  Tensor take(ElementType type, int64_t width) {
    const int64_t group = size_of(type) == 2 ? 8 : 1, stride = (width + group - 1) / group * group;
    const Tensor rows = arena_.take(type, {max_rows_, stride}).first_rows(rows_);
    return stride == width ? rows : rows.slice(1, 0, width);
  }

  void embed() {
    const Arena::Scope scope(arena_);
    const Tensor part = take(ElementType::f32, shape_.hidden);
    q_.embed(w_.words, step_.words, 1.0f, x_);
    const auto add = [&](const LinearWeight& table, const Tensor& ids) {
      q_.embed(table, ids, 1.0f, part);
      q_.add(x_, part, 1.0f);
    };
    if (!w_.types.empty()) add(w_.types, step_.types);
    add(w_.positions, step_.positions);
    if (w_.embedding_norm) q_.norm(w_.embedding_norm, x_, x_);
  }

  /// The input of a block.
  Tensor enter(const NormWeight& norm) {
    if (shape_.placement == NormPlacement::pre) {
      q_.norm(norm, x_, input_);
      return input_;
    }
    if (q_.activations() == ElementType::f32) return x_;
    q_.cast(x_, input_);
    return input_;
  }
  /// Adds the block's output, a linear layer of `inner`, to the residual stream.
  void leave(const NormWeight& norm, const LinearWeight& out, const Tensor& inner) {
    q_.linear(out, inner, branch_);
    q_.add(x_, branch_, 1.0f);
    if (shape_.placement == NormPlacement::residual) q_.norm(norm, x_, x_);
  }

  void attention(const PlacedEncoderLayer& layer, int index) {
    const Arena::Scope scope(arena_);
    const Tensor input = enter(layer.attention_norm);
    const Tensor qkv = take(q_.activations(), 3 * int64_t{shape_.hidden});
    const Tensor heads = take(q_.activations(), shape_.hidden);
    q_.linear(layer.qkv, input, qkv);
    q_.call([&](Stream& stream) { return step_.attention->forward(index, args_of(qkv, heads), stream); });
    leave(layer.attention_norm, layer.out, heads);
  }

  /// Keys and values are this step's rows, a ragged KvView with one page for each row.
  AttentionArgs args_of(const Tensor& qkv, const Tensor& heads) const {
    AttentionArgs args;
    args.q = qkv.data;
    args.q_row_stride = qkv.stride(0);
    args.out = heads.data;
    args.out_row_stride = heads.stride(0);
    args.kv.dtype = resolve(KvCacheDType::auto_, q_.activation_dtype());
    args.kv.num_pages = rows_;
    args.kv.k = qkv.slice(1, shape_.hidden, shape_.hidden).data;
    args.kv.v = qkv.slice(1, 2 * int64_t{shape_.hidden}, shape_.hidden).data;
    args.kv.k_page_stride = args.kv.v_page_stride = qkv.stride(0);
    args.kv.k_head_stride = args.kv.v_head_stride = shape_.head_dim();
    return args;
  }

  void mlp(const PlacedEncoderLayer& layer) {
    const Arena::Scope scope(arena_);
    const Tensor input = enter(layer.mlp_norm), wide = take(q_.activations(), shape_.intermediate);
    q_.linear(layer.in, input, wide);
    q_.activate(shape_.activation, wide);
    leave(layer.mlp_norm, layer.mlp_out, wide);
  }

  const BlockShape& shape_;
  const PlacedEncoder& w_;
  const int64_t max_rows_;
  const EncoderStep& step_;
  Arena& arena_;
  OpQueue& q_;
  const int64_t rows_;
  Tensor x_, input_, branch_;
};

}  // namespace

PlacedEncoder place(const EncoderModelWeights& weights, float eps, WeightPlacement& placement) {
  PlacedEncoder out;
  out.words = placement.linear(weights.words);
  out.positions = placement.linear(weights.positions);
  out.types = placement.linear(weights.types);
  out.embedding_norm = place_norm(weights.embedding_norm, eps, placement);
  for (const EncoderLayer& layer : weights.layers) {
    PlacedEncoderLayer& placed = out.layers.emplace_back();
    placed.qkv = placement.linear(layer.attention.qkv);
    placed.out = placement.linear(layer.attention.out);
    placed.attention_norm = place_norm(layer.attention.norm, eps, placement);
    placed.in = placement.linear(layer.mlp.in);
    placed.mlp_out = placement.linear(layer.mlp.out);
    placed.mlp_norm = place_norm(layer.mlp.norm, eps, placement);
  }
  return out;
}

Tensor encoder_forward(const BlockShape& shape, const PlacedEncoder& weights, int64_t max_rows,
                       const EncoderStep& step, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  return EncoderPass(shape, weights, max_rows, step, arena, queue).run();
}

}  // namespace fovea
