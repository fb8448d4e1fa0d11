#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/ops.h"
#include "model/rope.h"

namespace fovea {
namespace {

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights)
      : config_(config),
        weights_(std::move(weights)),
        frequencies_(rope_frequencies(config.ropes.front(), config.head_dim)) {
    layer_bytes_ = vector_bytes(weights_.final_norm);
    for (const DecoderLayer& layer : weights_.layers)
      layer_bytes_ += vector_bytes(layer.attention_input_norm) + layer.attention.qkv.bytes() +
                      layer.attention.out.bytes() + vector_bytes(layer.attention.q_norm) +
                      vector_bytes(layer.attention.k_norm) + vector_bytes(layer.mlp_input_norm) +
                      layer.mlp.gate_up.bytes() + layer.mlp.down.bytes();
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override {
    return layer_bytes_ + weights_.embedding.bytes() + (weights_.lm_head ? weights_.lm_head->bytes() : 0);
  }
  int64_t weight_bytes_per_token() const override {
    return layer_bytes_ + head().bytes() +
           config_.hidden_size * static_cast<int64_t>(size_of(weights_.embedding.storage()));
  }

  int64_t reserve(int max_tokens, int max_logit_rows) override;
  void forward(const ForwardInput& input, float* logits, Stream& stream) override;

 private:
  static int64_t vector_bytes(const AlignedArray<float>& v) {
    return static_cast<int64_t>(v.size() * sizeof(float));
  }
  const PackedMatrix& head() const { return weights_.lm_head ? *weights_.lm_head : weights_.embedding; }
  void embed(std::span<const int32_t> ids, ThreadPool& pool);
  int64_t keep_rows(std::span<const int32_t> kept, int64_t rows);
  void norm(const AlignedArray<float>& weight, int64_t rows, ThreadPool& pool);
  void add_branch(int64_t rows, ThreadPool& pool);
  void write_logits(int64_t rows, float* logits, ThreadPool& pool);

  ModelConfig config_;
  DecoderWeights weights_;
  std::vector<double> frequencies_;
  int64_t layer_bytes_ = 0;

  int max_tokens_ = 0, max_logit_rows_ = 0;
  AlignedArray<float> arena_;
  float* x_ = nullptr;       // [T, hidden] residual stream
  float* normed_ = nullptr;  // [T, hidden]
  float* branch_ = nullptr;  // [T, hidden] output of attention or MLP
  float* cos_ = nullptr;
  float* sin_ = nullptr;
  LayerScratch scratch_;
  std::vector<int32_t> row_ids_;
  ThreadPool serial_{1};  // for row operations called from inside a parallel region
};

int64_t Decoder::reserve(int max_tokens, int max_logit_rows) {
  FOVEA_CHECK(max_tokens > 0 && max_logit_rows > 0);
  const auto rows = static_cast<size_t>(max_tokens);
  // 16 floats = one cache line: buffers begin on one.
  const auto padded = [&](int64_t width) { return (rows * static_cast<size_t>(width) + 15) / 16 * 16; };
  const int64_t hidden = config_.hidden_size, pairs = config_.head_dim / 2;
  const int64_t heads = static_cast<int64_t>(config_.num_heads) * config_.head_dim;
  const int64_t qkv = heads + 2 * static_cast<int64_t>(config_.num_kv_heads) * config_.head_dim;
  const int64_t intermediate = config_.intermediate_size;
  // Attention's and the MLP's scratch are never alive together and share their place.
  const size_t shared =
      std::max(padded(qkv) + padded(heads), padded(2 * intermediate) + padded(intermediate));
  arena_ = AlignedArray<float>(3 * padded(hidden) + 2 * padded(pairs) + shared);
  float* next = arena_.data();
  const auto take = [&](size_t count) { return std::exchange(next, next + count); };
  x_ = take(padded(hidden));
  normed_ = take(padded(hidden));
  branch_ = take(padded(hidden));
  scratch_.cos = cos_ = take(padded(pairs));
  scratch_.sin = sin_ = take(padded(pairs));
  scratch_.qkv = scratch_.gate_up = next;
  scratch_.heads = next + padded(qkv);
  scratch_.act = next + padded(2 * intermediate);
  row_ids_.resize(rows);
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  max_tokens_ = max_tokens;
  max_logit_rows_ = max_logit_rows;
  return vector_bytes(arena_);
}

void Decoder::forward(const ForwardInput& input, float* logits, Stream& stream) {
  const size_t tokens = input.token_ids.size();
  FOVEA_CHECK(tokens > 0 && tokens <= static_cast<size_t>(max_tokens_));
  FOVEA_CHECK(input.positions.size() == tokens && input.slots.size() == tokens);
  FOVEA_CHECK(input.logit_rows.size() <= static_cast<size_t>(max_logit_rows_));
  ThreadPool& pool = stream.pool();
  auto rows = static_cast<int64_t>(tokens);
  scratch_.row_ids = std::span(row_ids_).first(tokens);
  embed(input.token_ids, pool);
  rope_rows(frequencies_, input.positions, cos_, sin_, pool);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const DecoderLayer& layer = weights_.layers[i];
    norm(layer.attention_input_norm, rows, pool);
    layer.attention.attend(config_, static_cast<int>(i), normed_, input, scratch_, serial_, stream);
    // After the last attention, rows without wanted logits have no use.
    if (i + 1 == weights_.layers.size()) rows = keep_rows(input.logit_rows, rows);
    layer.attention.out.forward(scratch_.heads, layer.attention.out.weight.k(), rows, branch_,
                                config_.hidden_size, pool);
    add_branch(rows, pool);
    norm(layer.mlp_input_norm, rows, pool);
    layer.mlp.forward(normed_, rows, branch_, scratch_, pool);
    add_branch(rows, pool);
  }
  write_logits(rows, logits, pool);
}

void Decoder::embed(std::span<const int32_t> ids, ThreadPool& pool) {
  for (const int32_t id : ids)
    FOVEA_CHECK(id >= 0 && id < config_.vocab_size);
  pool.parallel_ranges(static_cast<int64_t>(ids.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      weights_.embedding.unpack_row(ids[static_cast<size_t>(row)], x_ + row * config_.hidden_size);
  });
}

/// Moves the residual and attention rows `kept` (of `rows`) to the front, in order; returns how many there
/// are.
int64_t Decoder::keep_rows(std::span<const int32_t> kept, int64_t rows) {
  const int64_t hidden = config_.hidden_size,
                heads = static_cast<int64_t>(config_.num_heads) * config_.head_dim;
  int64_t to = 0;
  for (const int32_t from : kept) {
    FOVEA_CHECK(from >= to && from < rows);  // strictly ascending: a row never moves backwards
    if (from != to) {
      std::memcpy(x_ + to * hidden, x_ + from * hidden, static_cast<size_t>(hidden) * sizeof(float));
      std::memcpy(scratch_.heads + to * heads, scratch_.heads + from * heads,
                  static_cast<size_t>(heads) * sizeof(float));
    }
    ++to;
  }
  return to;
}

void Decoder::norm(const AlignedArray<float>& weight, int64_t rows, ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  rms_norm(x_, hidden, weight.data(), config_.norm_eps, normed_, hidden, rows, hidden, pool);
}

void Decoder::add_branch(int64_t rows, ThreadPool& pool) {
  add_rows(x_, config_.hidden_size, branch_, config_.hidden_size, rows, config_.hidden_size, pool);
}

void Decoder::write_logits(int64_t rows, float* logits, ThreadPool& pool) {
  const int64_t vocab = config_.vocab_size;
  norm(weights_.final_norm, rows, pool);
  linear(head(), normed_, config_.hidden_size, rows, logits, vocab, nullptr, pool);
}

}  // namespace

DecoderWeights read_decoder(const ModelConfig& c, WeightReader& reader) {
  DecoderWeights weights;
  weights.embedding = reader.matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int i = 0; i < c.num_layers && reader.status(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    DecoderLayer& layer = weights.layers.emplace_back();
    layer.attention_input_norm = reader.norm(prefix + "input_layernorm.weight", c.hidden_size);
    layer.attention = read_attention(prefix + "self_attn.", c, reader);
    layer.mlp_input_norm = reader.norm(prefix + "post_attention_layernorm.weight", c.hidden_size);
    layer.mlp = read_gated_mlp(prefix + "mlp.", c, reader);
  }
  weights.final_norm = reader.norm("model.norm.weight", c.hidden_size);
  if (!c.tie_word_embeddings) weights.lm_head = reader.matrix("lm_head.weight", c.vocab_size, c.hidden_size);
  return weights;
}

std::unique_ptr<Model> make_decoder(const ModelConfig& config, DecoderWeights weights) {
  return std::make_unique<Decoder>(config, std::move(weights));
}

std::unique_ptr<Model> read_decoder_model(const ModelConfig& config, WeightReader& reader) {
  return make_decoder(config, read_decoder(config, reader));
}

}  // namespace fovea
