#include "model/encoder_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"
#include "model/keep_rows.h"
#include "model/placed_encoder_decoder.h"

namespace fovea {
namespace {

constexpr BlockNames kNames = {.q = "self_attn.q_proj",
                               .k = "self_attn.k_proj",
                               .v = "self_attn.v_proj",
                               .out = "self_attn.out_proj",
                               .attention_norm = "self_attn_layer_norm",
                               .in = "fc1",
                               .mlp_out = "fc2",
                               .mlp_norm = "final_layer_norm"};

class EncoderDecoder final : public Model {
 public:
  EncoderDecoder(const ModelConfig& config, EncoderDecoderWeights weights);

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t weight_bytes_per_token() const override { return weight_bytes_per_token_; }

  int64_t reserve(int max_tokens, int max_logit_rows) override;
  Status forward(const ForwardInput& input, float* logits, Stream& stream) override;
  Status encode(const EncodeInput& input, Stream& stream) override;

  Status place(Ops& ops, Stream& stream, const PlaceOptions& options) override;
  int64_t placed_bytes(Ops& ops) const override;
  int64_t activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const override;
  Status forward_tensors(const StepTensors& step, const Tensor& logits, Stream& stream) override;

 private:
  PlacedEncoderDecoder placed(WeightPlacement& placement) const {
    return fovea::place(config_, weights_, placement);
  }
  EncoderDecoderShape device_shape(int max_tokens, int max_logit_rows) const {
    return {encoder_shape_,
            decoder_shape_,
            config_.embedding_scale,
            std::max(max_tokens, config_.encoder->max_position),
            max_tokens,
            max_logit_rows};
  }
  EncoderDecoderInput device_input(Arena& ids, int64_t rows) const;
  /// Bytes of the inputs of the encoder, and of the arena.
  std::array<size_t, 2> device_bytes(Ops& ops, const PlacedEncoderDecoder& placed,
                                     const EncoderDecoderShape& shape) const;
  Status encode_on_device(const EncodeInput& input, Stream& stream);
  const WeightMatrix& head() const { return weights_.lm_head ? *weights_.lm_head : weights_.embedding; }
  int64_t embedding_bytes() const {
    return weights_.embedding.bytes() + weights_.encoder_positions.bytes() +
           weights_.decoder_positions.bytes() + (weights_.lm_head ? weights_.lm_head->bytes() : 0);
  }
  void embed(std::span<const int32_t> ids, ThreadPool& pool);
  template <class PositionOf>
  void add_positions(const WeightMatrix& table, int64_t rows, const PositionOf& position_of,
                     ThreadPool& pool);
  void embed_input(const EncodeInput& input, ThreadPool& pool);
  void write_cross(const EncodeInput& input, int64_t rows, Stream& stream);
  void normalize(const BiasedNorm& norm, int64_t rows, ThreadPool& pool);

  ModelConfig config_;
  EncoderDecoderWeights weights_;
  BlockShape encoder_shape_, decoder_shape_;
  int64_t encoder_bytes_ = 0, decoder_bytes_ = 0;

  int max_tokens_ = 0, max_rows_ = 0, max_logit_rows_ = 0;
  AlignedArray<float> arena_;
  BlockScratch scratch_;
  float* window_ = nullptr;  // of the convolutions

  bool audio_ = false;
  int64_t weight_bytes_ = 0, weight_bytes_per_token_ = 0;
  Ops* ops_ = nullptr;  // after place(); then weights_ is empty
  std::vector<Buffer> memory_;
  PlacedEncoderDecoder on_device_;
  EncoderDecoderShape device_shape_;
  std::optional<Arena> device_arena_, input_arena_;
};

EncoderDecoder::EncoderDecoder(const ModelConfig& config, EncoderDecoderWeights weights)
    : config_(config), weights_(std::move(weights)) {
  const EncoderConfig& encoder = *config.encoder;
  decoder_shape_ = {config.hidden_size,    config.num_heads, config.intermediate_size,
                    config.norm_placement, config.norm_eps,  config.activation};
  encoder_shape_ = decoder_shape_;
  encoder_shape_.heads = encoder.num_heads;
  encoder_shape_.intermediate = encoder.intermediate_size;
  encoder_bytes_ = weights_.encoder_embedding_norm.bytes() + weights_.encoder_final_norm.bytes() +
                   (weights_.audio ? weights_.audio->bytes() : 0);
  for (const EncoderLayer& layer : weights_.encoder)
    encoder_bytes_ += layer.bytes();
  decoder_bytes_ = weights_.decoder_embedding_norm.bytes() + weights_.decoder_final_norm.bytes() +
                   static_cast<int64_t>(weights_.logit_bias.size() * sizeof(float));
  weight_bytes_per_token_ =
      head().bytes() +
      config_.hidden_size * static_cast<int64_t>(size_of(weights_.embedding.storage()) +
                                                 size_of(weights_.decoder_positions.storage()));
  for (const CrossDecoderLayer& layer : weights_.decoder) {
    decoder_bytes_ += layer.bytes();
    weight_bytes_per_token_ -= layer.cross.kv.bytes();
  }
  // The decoder only: its layers except the cross K and V projections, the head, and two embedding rows.
  weight_bytes_per_token_ += decoder_bytes_;
  weight_bytes_ = encoder_bytes_ + decoder_bytes_ + embedding_bytes();
  audio_ = weights_.audio.has_value();
}

Status EncoderDecoder::place(Ops& ops, Stream& stream, const PlaceOptions& options) {
  FOVEA_CHECK(!ops_ && max_tokens_ == 0);
  if (!ops.packed_format(WeightUse::plain))
    return unsupported(std::string(ops.device().name()) +
                       " can't run encoder-decoder models: its operations have no packed format of weights");
  WeightPlacement placement(ops, stream, placed_bytes(ops));
  PlacedEncoderDecoder there = placed(placement);
  FOVEA_RETURN_IF_ERROR(placement.finish(options));
  ops_ = &ops;
  on_device_ = std::move(there);
  memory_ = placement.take_memory();
  weights_ = {};
  return {};
}

int64_t EncoderDecoder::placed_bytes(Ops& ops) const {
  if (ops_) return bytes_of(memory_);
  WeightPlacement placement = WeightPlacement::measure(ops);
  (void)placed(placement);
  return placement.bytes();
}

int64_t EncoderDecoder::activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const {
  const EncoderDecoderShape shape = device_shape(max_tokens, max_logit_rows);
  const auto sum = [](const std::array<size_t, 2>& bytes) {
    return static_cast<int64_t>(bytes[0] + bytes[1]);
  };
  if (ops_) return sum(device_bytes(ops, on_device_, shape));
  WeightPlacement placement = WeightPlacement::measure(ops);
  return sum(device_bytes(ops, placed(placement), shape));
}

/// The inputs of the encoder for `rows` rows, in memory of their arena.
EncoderDecoderInput EncoderDecoder::device_input(Arena& ids, int64_t rows) const {
  EncoderDecoderInput input;
  input.positions = ids.take(ElementType::i32, {rows});
  input.slots = ids.take(ElementType::i64, {rows});
  if (!audio_) {
    input.ids = ids.take(ElementType::i32, {rows});
    return input;
  }
  for (Tensor& tap : input.taps)
    tap = ids.take(ElementType::i32, {rows});
  input.windows = ids.take(
      ElementType::f32,
      {AudioConvolutions::kStride * rows, AudioConvolutions::kWidth * int64_t{config_.encoder->mel_bins}});
  return input;
}

std::array<size_t, 2> EncoderDecoder::device_bytes(Ops& ops, const PlacedEncoderDecoder& placed,
                                                   const EncoderDecoderShape& shape) const {
  const auto shape_only = [&](ElementType type, std::initializer_list<int64_t> sizes) {
    return Tensor::dense(nullptr, ops.device(), type, sizes);
  };
  Arena inputs = Arena::dry_run(ops.device()), dry = Arena::dry_run(ops.device());
  OpQueue queue = OpQueue::dry_run(ops);
  struct : StepAttention {
    Status forward(int, const AttentionArgs&, Stream&) override { return {}; }
  } none;
  EncoderDecoderInput input = device_input(inputs, shape.max_encoder_rows);
  input.attention = &none;
  (void)encode_cross(shape, placed, input, dry, queue);
  StepTensors step;
  const int64_t logit_rows = std::min(shape.max_tokens, shape.max_logit_rows);
  step.token_ids = step.positions = shape_only(ElementType::i32, {shape.max_tokens});
  step.slots = shape_only(ElementType::i64, {shape.max_tokens});
  step.logit_rows = shape_only(ElementType::i32, {logit_rows});
  cross_decoder_forward(shape, placed, step, shape_only(ElementType::f32, {logit_rows, config_.vocab_size}),
                        dry, queue);
  return {inputs.peak(), dry.peak()};
}

/// Copies the inputs there, and waits for the pass, since they may change afterwards.
Status EncoderDecoder::encode_on_device(const EncodeInput& input, Stream& stream) {
  const auto rows = int64_t{input.offsets.back()};
  const Arena::Scope scope(*input_arena_);
  EncoderDecoderInput there = device_input(*input_arena_, rows);
  there.attention = input.attention;
  there.kv = input.kv;
  std::vector<int32_t> positions;
  std::array<std::vector<int32_t>, AudioConvolutions::kWidth> taps;
  for (size_t b = 0; b + 1 < input.offsets.size(); ++b)
    for (int32_t row = input.offsets[b]; row < input.offsets[b + 1]; ++row) {
      positions.push_back(row - input.offsets[b]);
      const int32_t first = AudioConvolutions::kStride * input.offsets[b],
                    end = AudioConvolutions::kStride * input.offsets[b + 1];
      for (int tap = 0; tap < AudioConvolutions::kWidth; ++tap) {
        const int32_t frame = AudioConvolutions::kStride * row + tap - 1;
        const bool inside = frame >= first && frame < end;
        taps[static_cast<size_t>(tap)].push_back(
            inside ? frame : AudioConvolutions::kStride * static_cast<int32_t>(rows));
      }
    }
  std::vector<float> windows;
  Status status = copy(host_tensor(std::span<const int32_t>(positions)), there.positions, stream);
  if (status) status = copy(host_tensor(input.cross_slots), there.slots, stream);
  if (audio_) {
    windows = AudioConvolutions::windows(input.features, input.offsets, config_.encoder->mel_bins);
    if (status)
      status = copy(host_tensor(windows.data(), there.windows.size(0), there.windows.size(1)), there.windows,
                    stream);
    for (size_t tap = 0; tap < taps.size() && status; ++tap)
      status = copy(host_tensor(std::span<const int32_t>(taps[tap])), there.taps[tap], stream);
  } else if (status) {
    FOVEA_CHECK(std::cmp_equal(input.token_ids.size(), rows));
    status = copy(host_tensor(input.token_ids), there.ids, stream);
  }
  if (status) {
    OpQueue queue(*ops_, stream);
    const Tensor hidden = encode_cross(device_shape_, on_device_, there, *device_arena_, queue);
    status = queue.status();
    if (status && input.hidden)
      status = copy(hidden, host_tensor(input.hidden, rows, config_.hidden_size), stream);
  }
  const Status done = ops_->device().synchronize(stream);
  return status ? done : status;
}

Status EncoderDecoder::forward_tensors(const StepTensors& step, const Tensor& logits, Stream& stream) {
  FOVEA_CHECK(device_arena_ && step.attention && step.kv && &step.kv->device() == &ops_->device());
  OpQueue queue(*ops_, stream);
  cross_decoder_forward(device_shape_, on_device_, step, logits, *device_arena_, queue);
  return queue.status();
}

int64_t EncoderDecoder::reserve(int max_tokens, int max_logit_rows) {
  FOVEA_CHECK(max_tokens > 0 && max_logit_rows > 0);
  max_tokens_ = max_tokens;
  max_logit_rows_ = max_logit_rows;
  max_rows_ = std::max(max_tokens, config_.encoder->max_position);
  if (ops_) {
    device_shape_ = device_shape(max_tokens, max_logit_rows);
    const auto [inputs, arena] = device_bytes(*ops_, on_device_, device_shape_);
    input_arena_.emplace(ops_->device(), inputs);
    device_arena_.emplace(ops_->device(), arena);
    return static_cast<int64_t>(inputs + arena);
  }
  FOVEA_CHECK(!weights_.embedding.source());
  const auto rows = static_cast<size_t>(max_rows_);
  const size_t hidden = rows * static_cast<size_t>(config_.hidden_size);
  const size_t wide = rows * static_cast<size_t>(std::max(encoder_shape_.wide(), decoder_shape_.wide()));
  const size_t window = weights_.audio ? static_cast<size_t>(weights_.audio->window_floats()) : 0;
  arena_ = AlignedArray<float>(3 * hidden + wide + window);
  float* next = arena_.data();
  scratch_.x = std::exchange(next, next + hidden);
  scratch_.normed = std::exchange(next, next + hidden);
  scratch_.branch = std::exchange(next, next + hidden);
  scratch_.wide = std::exchange(next, next + wide);
  window_ = next;
  return static_cast<int64_t>(arena_.size() * sizeof(float));
}

Status EncoderDecoder::encode(const EncodeInput& input, Stream& stream) {
  FOVEA_CHECK(!input.offsets.empty() && input.offsets.back() <= max_rows_);
  const int64_t rows = input.offsets.back();
  FOVEA_CHECK(std::cmp_equal(input.cross_slots.size(), rows));
  if (rows == 0) return {};
  if (ops_) return encode_on_device(input, stream);
  embed_input(input, stream.pool());
  normalize(weights_.encoder_embedding_norm, rows, stream.pool());
  BlockRunner runner(encoder_shape_, scratch_, stream);
  const auto first_index = 2 * static_cast<int>(weights_.decoder.size());  // after own and cross
  for (size_t i = 0; i < weights_.encoder.size(); ++i)
    FOVEA_RETURN_IF_ERROR(
        runner.encoder_layer(weights_.encoder[i], rows, first_index + static_cast<int>(i), *input.attention));
  normalize(weights_.encoder_final_norm, rows, stream.pool());
  if (input.hidden)
    std::memcpy(input.hidden, scratch_.x, static_cast<size_t>(rows * config_.hidden_size) * sizeof(float));
  write_cross(input, rows, stream);
  return {};
}

void EncoderDecoder::embed_input(const EncodeInput& input, ThreadPool& pool) {
  const int64_t rows = input.offsets.back();
  if (weights_.audio) {
    FOVEA_CHECK(
        std::cmp_equal(input.features.size(), rows * AudioConvolutions::kStride * config_.encoder->mel_bins));
    // wide is large enough for [2 T, hidden]: its rows are at least 4 * hidden.
    weights_.audio->forward(input.features.data(), input.offsets, scratch_.wide, window_, scratch_.x, pool);
  } else {
    FOVEA_CHECK(std::cmp_equal(input.token_ids.size(), rows));
    embed(input.token_ids, pool);
  }
  for (size_t b = 0; b + 1 < input.offsets.size(); ++b)
    FOVEA_CHECK(input.offsets[b + 1] - input.offsets[b] <= config_.encoder->max_position);
  add_positions(
      weights_.encoder_positions, rows,
      [&](int64_t row) {
        const auto after = std::ranges::upper_bound(input.offsets, static_cast<int32_t>(row));
        return row - *(after - 1);
      },
      pool);
}

/// Writes each decoder layer's cross keys and values of x to the same layer of the cache.
void EncoderDecoder::write_cross(const EncodeInput& input, int64_t rows, Stream& stream) {
  const int64_t hidden = config_.hidden_size, width = 2 * hidden;
  for (size_t i = 0; i < weights_.decoder.size(); ++i) {
    weights_.decoder[i].cross.kv.forward(scratch_.x, hidden, rows, scratch_.wide, width, stream.pool());
    input.kv->append(static_cast<int>(i), input.cross_slots, scratch_.wide, width, scratch_.wide + hidden,
                     width, stream);
  }
}

Status EncoderDecoder::forward(const ForwardInput& input, float* logits, Stream& stream) {
  const size_t tokens = input.token_ids.size();
  FOVEA_CHECK(tokens > 0 && tokens <= static_cast<size_t>(max_tokens_));
  FOVEA_CHECK(input.positions.size() == tokens && input.slots.size() == tokens);
  FOVEA_CHECK(input.logit_rows.size() <= static_cast<size_t>(max_logit_rows_));
  ThreadPool& pool = stream.pool();
  auto rows = static_cast<int64_t>(tokens);
  embed(input.token_ids, pool);
  add_positions(
      weights_.decoder_positions, rows,
      [&](int64_t row) { return int64_t{input.positions[static_cast<size_t>(row)]}; }, pool);
  normalize(weights_.decoder_embedding_norm, rows, pool);
  BlockRunner runner(decoder_shape_, scratch_, stream);
  const auto layers = static_cast<int>(weights_.decoder.size());
  for (int i = 0; i < layers; ++i) {
    const CrossDecoderLayer& layer = weights_.decoder[static_cast<size_t>(i)];
    FOVEA_RETURN_IF_ERROR(runner.self_attention(layer.attention, i, input));
    FOVEA_RETURN_IF_ERROR(runner.cross_attention(layer.cross, i, layers + i, input));
    if (i + 1 == layers) rows = keep_rows(input.logit_rows, rows, {{scratch_.x, config_.hidden_size}});
    runner.feed_forward(layer.mlp, rows);
  }
  normalize(weights_.decoder_final_norm, rows, pool);
  linear(head(), scratch_.x, config_.hidden_size, rows, logits, config_.vocab_size,
         weights_.logit_bias.size() ? weights_.logit_bias.data() : nullptr, pool);
  return {};
}

void EncoderDecoder::embed(std::span<const int32_t> ids, ThreadPool& pool) {
  for (const int32_t id : ids)
    FOVEA_CHECK(id >= 0 && id < config_.vocab_size);
  const int64_t hidden = config_.hidden_size;
  const auto rows = static_cast<int64_t>(ids.size());
  for_rows(rows, rows * hidden * PackedMatrix::kUnpackCost, pool, [&](int64_t row) {
    float* x = scratch_.x + row * hidden;
    weights_.embedding.unpack_row(ids[static_cast<size_t>(row)], x);
    for (int64_t i = 0; i < hidden; ++i)
      x[i] *= config_.embedding_scale;
  });
}

template <class PositionOf>
void EncoderDecoder::add_positions(const WeightMatrix& table, int64_t rows, const PositionOf& position_of,
                                   ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  for_row_ranges(rows, rows * hidden * PackedMatrix::kUnpackCost, pool, [&](int64_t begin, int64_t end) {
    std::vector<float> position(static_cast<size_t>(hidden));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = config_.position_offset + position_of(row);
      FOVEA_CHECK(at >= 0 && at < table.n());
      table.unpack_row(at, position.data());
      float* x = scratch_.x + row * hidden;
      for (size_t i = 0; i < position.size(); ++i)
        x[i] += position[i];
    }
  });
}

void EncoderDecoder::normalize(const BiasedNorm& norm, int64_t rows, ThreadPool& pool) {
  if (norm) norm.forward(scratch_.x, scratch_.x, rows, config_.norm_eps, pool);
}

}  // namespace

std::unique_ptr<Model> make_encoder_decoder(const ModelConfig& config, EncoderDecoderWeights weights) {
  return std::make_unique<EncoderDecoder>(config, std::move(weights));
}

void read_encoder_decoder_sizes(Fields& fields, ModelConfig& c) {
  EncoderConfig& encoder = c.encoder.emplace();
  c.vocab_size = fields.small("vocab_size", 1, 10'000'000);
  c.hidden_size = fields.small("d_model", 1, 1 << 20);
  c.intermediate_size = fields.small("decoder_ffn_dim", 1, 1 << 22);
  c.num_layers = fields.small("decoder_layers", 1, 10'000);
  c.num_heads = c.num_kv_heads = fields.small("decoder_attention_heads", 1, 1 << 16);
  encoder.intermediate_size = fields.small("encoder_ffn_dim", 1, 1 << 22);
  encoder.num_layers = fields.small("encoder_layers", 1, 10'000);
  encoder.num_heads = fields.small("encoder_attention_heads", 1, 1 << 16);
  const std::string divide = "it must divide d_model = " + std::to_string(c.hidden_size);
  if (c.hidden_size % c.num_heads != 0) fields.refuse("decoder_attention_heads", divide);
  if (c.hidden_size % encoder.num_heads != 0) fields.refuse("encoder_attention_heads", divide);
  c.head_dim = c.hidden_size / c.num_heads;
  c.layers.assign(static_cast<size_t>(c.num_layers), {.rope = -1});
}

void read_encoder_decoder_blocks(Fields& fields, ModelConfig& c) {
  c.norm = NormKind::layer;
  c.norm_eps = 1e-5f;  // no config key: torch's LayerNorm default
  c.activation = read_activation(fields, "activation_function", Activation::gelu);
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
}

void read_encoder_decoder_layers(const std::string& prefix, const ModelConfig& c, bool key_bias,
                                 WeightReader& reader, EncoderDecoderWeights& weights) {
  const int64_t hidden = c.hidden_size;
  for (int i = 0; i < c.encoder->num_layers && reader.status(); ++i) {
    const std::string layer = prefix + "encoder.layers." + std::to_string(i) + ".";
    weights.encoder.push_back(
        {read_self_attention(layer, kNames, hidden, key_bias, reader),
         read_feed_forward(layer, kNames, hidden, c.encoder->intermediate_size, reader)});
  }
  for (int i = 0; i < c.num_layers && reader.status(); ++i) {
    const std::string layer = prefix + "decoder.layers." + std::to_string(i) + ".";
    CrossDecoderLayer& out = weights.decoder.emplace_back();
    out.attention = read_self_attention(layer, kNames, hidden, key_bias, reader);
    const std::string cross = layer + "encoder_attn.";
    out.cross.q = reader.fused(cross, {{"q_proj", hidden}}, hidden, /*bias=*/true);
    out.cross.kv =
        reader.fused(cross, {{"k_proj", hidden, key_bias}, {"v_proj", hidden}}, hidden, /*bias=*/true);
    out.cross.out = reader.fused(cross, {{"out_proj", hidden}}, hidden, /*bias=*/true);
    out.cross.norm = read_biased_norm(layer + "encoder_attn_layer_norm", hidden, reader);
    out.mlp = read_feed_forward(layer, kNames, hidden, c.intermediate_size, reader);
  }
}

}  // namespace fovea
