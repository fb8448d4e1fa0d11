#include "model/placed_encoder.h"

namespace fovea {

PlacedEncoder place(const EncoderModelWeights& weights, float eps, WeightPlacement& placement) {
  PlacedEncoder out;
  out.words = placement.linear(weights.words);
  out.positions = placement.linear(weights.positions);
  out.types = placement.linear(weights.types);
  out.embedding_norm = place(weights.embedding_norm, eps, placement);
  for (const EncoderLayer& layer : weights.layers)
    out.layers.push_back({place(layer.attention, eps, placement), place(layer.mlp, eps, placement)});
  return out;
}

Tensor encoder_forward(const BlockShape& shape, const PlacedEncoder& weights, int64_t max_rows,
                       const EncoderStep& step, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  BlockPass pass(shape, step.words.size(0), max_rows, 0, arena, queue);
  const Tensor& x = pass.x();
  {
    const Arena::Scope inner(arena);
    const Tensor part = pass.take(ElementType::f32, shape.hidden);
    queue.embed(weights.words, step.words, 1.0f, x);
    const auto add = [&](const LinearWeight& table, const Tensor& ids) {
      queue.embed(table, ids, 1.0f, part);
      queue.add(x, part, 1.0f);
    };
    if (!weights.types.empty()) add(weights.types, step.types);
    add(weights.positions, step.positions);
  }
  if (weights.embedding_norm) queue.norm(weights.embedding_norm, x, x);
  for (size_t i = 0; i < weights.layers.size(); ++i)
    pass.encoder_layer(weights.layers[i], static_cast<int>(i), step.attention);
  return x;
}

}  // namespace fovea
