#include "model/placed_encoder_decoder.h"

#include <algorithm>

#include "base/check.h"

namespace fovea {
namespace {

constexpr int64_t kTaps = AudioConvolutions::kWidth;

std::shared_ptr<const WeightSource> source_of(const WeightMatrix& matrix) {
  return matrix.source() ? matrix.source() : packed_source(matrix);
}

/// gelu(second(gelu(first(windows)))) + positions.
void convolve(const EncoderDecoderShape& shape, const PlacedEncoderDecoder& w,
              const EncoderDecoderInput& input, const Tensor& x, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  const int64_t rows = x.size(0), most = shape.max_encoder_rows, hidden = shape.encoder.hidden;
  const ElementType act = queue.activations();
  Tensor windows = input.windows;
  if (act != ElementType::f32) {
    windows = take_rows(arena, act, 2 * most, 2 * rows, input.windows.size(1));
    queue.cast(input.windows, windows);
  }
  // Row 2 T is zero: frames outside of a sequence.
  const Tensor frames = take_rows(arena, act, 2 * most + 1, 2 * rows + 1, hidden);
  const Tensor inside = frames.first_rows(2 * rows),
               window = take_rows(arena, act, most, rows, kTaps * hidden);
  queue.linear(w.first_convolution, windows, inside);
  queue.activate(Activation::gelu, inside);
  const Tensor last = frames.slice(0, 2 * rows, 1);
  queue.call([&](Stream& stream) {
    static constexpr std::array<std::byte, size_t{1} << 16> kZeros{};  // lives as long as any copy
    const size_t bytes = static_cast<size_t>(hidden) * size_of(act);
    FOVEA_CHECK(bytes <= kZeros.size());
    return last.device->copy_from_host(last.data, kZeros.data(), bytes, stream);
  });
  for (int64_t tap = 0; tap < kTaps; ++tap)
    queue.gather_rows(frames, input.taps[static_cast<size_t>(tap)], window.slice(1, tap * hidden, hidden));
  const Tensor out = take_rows(arena, act, most, rows, hidden);
  queue.linear(w.second_convolution, window, out);
  queue.activate(Activation::gelu, out);
  queue.embed(w.encoder_positions, input.positions, 1.0f, x);
  queue.add(x, out, 1.0f);
}

void embed_tokens(const PlacedEncoderDecoder& w, const LinearWeight& positions_table, const Tensor& ids,
                  const Tensor& positions, float scale, BlockPass& pass, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  const Tensor part = pass.take(ElementType::f32, w.embedding.k);
  queue.embed(w.embedding, ids, scale, pass.x());
  queue.embed(positions_table, positions, 1.0f, part);
  queue.add(pass.x(), part, 1.0f);
}

}  // namespace

PlacedEncoderDecoder place(const ModelConfig& config, const EncoderDecoderWeights& weights,
                           WeightPlacement& placement) {
  const float eps = config.norm_eps;
  PlacedEncoderDecoder out;
  if (weights.audio) {
    out.first_convolution = placement.linear(weights.audio->first);
    out.second_convolution = placement.linear(taps_first(source_of(weights.audio->second.weight), kTaps),
                                              weights.audio->second.bias);
  }
  out.embedding = placement.linear(weights.embedding);
  out.head = weights.lm_head ? placement.linear(*weights.lm_head) : out.embedding;
  if (weights.logit_bias.size()) out.head.bias = placement.vector<float>(weights.logit_bias);
  out.encoder_positions =
      placement.linear(rows_from(source_of(weights.encoder_positions), config.position_offset));
  out.decoder_positions =
      placement.linear(rows_from(source_of(weights.decoder_positions), config.position_offset));
  out.encoder_embedding_norm = place(weights.encoder_embedding_norm, eps, placement);
  out.decoder_embedding_norm = place(weights.decoder_embedding_norm, eps, placement);
  out.encoder_final_norm = place(weights.encoder_final_norm, eps, placement);
  out.decoder_final_norm = place(weights.decoder_final_norm, eps, placement);
  for (const EncoderLayer& layer : weights.encoder)
    out.encoder.push_back({place(layer.attention, eps, placement), place(layer.mlp, eps, placement)});
  for (const CrossDecoderLayer& layer : weights.decoder)
    out.decoder.push_back({place(layer.attention, eps, placement), place(layer.cross, eps, placement),
                           place(layer.mlp, eps, placement)});
  return out;
}

Tensor encode_cross(const EncoderDecoderShape& shape, const PlacedEncoderDecoder& w,
                    const EncoderDecoderInput& input, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  BlockPass pass(shape.encoder, input.positions.size(0), shape.max_encoder_rows, 0, arena, queue);
  if (w.first_convolution.empty())
    embed_tokens(w, w.encoder_positions, input.ids, input.positions, shape.embedding_scale, pass, arena,
                 queue);
  else
    convolve(shape, w, input, pass.x(), arena, queue);
  if (w.encoder_embedding_norm) queue.norm(w.encoder_embedding_norm, pass.x(), pass.x());
  const auto first = 2 * static_cast<int>(w.decoder.size());  // after the decoder's own and cross attentions
  for (size_t i = 0; i < w.encoder.size(); ++i)
    pass.encoder_layer(w.encoder[i], first + static_cast<int>(i), input.attention);
  if (w.encoder_final_norm) queue.norm(w.encoder_final_norm, pass.x(), pass.x());
  const Tensor hidden = pass.input({});
  for (size_t i = 0; i < w.decoder.size(); ++i) {
    const Arena::Scope inner(arena);
    const Tensor kv = pass.take(queue.activations(), 2 * int64_t{shape.decoder.hidden});
    queue.linear(w.decoder[i].cross.kv, hidden, kv);
    const KvView view = input.kv ? input.kv->layer(static_cast<int>(i)) : KvView();
    append_kv(kv, shape.decoder, input.positions, input.slots, view, queue);
  }
  return pass.x();
}

void cross_decoder_forward(const EncoderDecoderShape& shape, const PlacedEncoderDecoder& w,
                           const StepTensors& step, const Tensor& logits, Arena& arena, OpQueue& queue) {
  const Arena::Scope scope(arena);
  BlockPass pass(shape.decoder, step.token_ids.size(0), shape.max_tokens,
                 std::min(shape.max_tokens, shape.max_logit_rows), arena, queue);
  embed_tokens(w, w.decoder_positions, step.token_ids, step.positions, shape.embedding_scale, pass, arena,
               queue);
  if (w.decoder_embedding_norm) queue.norm(w.decoder_embedding_norm, pass.x(), pass.x());
  const auto layers = static_cast<int>(w.decoder.size());
  for (int i = 0; i < layers; ++i) {
    const PlacedCrossDecoderLayer& layer = w.decoder[static_cast<size_t>(i)];
    pass.self_attention(layer.attention, i, step);
    pass.cross_attention(layer.cross, i, layers + i, step);
    if (i + 1 == layers) pass.keep_rows(step.logit_rows);
    pass.feed_forward(layer.mlp);
  }
  queue.logits(w.head, pass.input(w.decoder_final_norm), {}, logits);
}

}  // namespace fovea
