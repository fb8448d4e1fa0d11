#include "model/decoder.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/ops.h"
#include "model/keep_rows.h"
#include "model/rope.h"

namespace fovea {
namespace {

int64_t mlp_bytes(const MlpBlock& mlp) {
  if (const auto* experts = std::get_if<MoeBlock>(&mlp)) return experts->bytes();
  const auto& dense = std::get<GatedMlp>(mlp);
  return dense.gate_up.bytes() + dense.down.bytes();
}

/// Weight bytes read per token.
int64_t mlp_bytes_per_token(const MlpBlock& mlp) {
  const auto* experts = std::get_if<MoeBlock>(&mlp);
  return experts ? experts->bytes_per_token() : mlp_bytes(mlp);
}

/// One of config.ropes with the cos/sin rows of the step.
struct Rope {
  RopeConfig config;
  std::vector<double> frequencies;
  float* cos = nullptr;  // [T, frequencies.size()]
  float* sin = nullptr;
};

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights, const DecoderScales& scales)
      : config_(config), weights_(std::move(weights)), scales_(scales) {
    FOVEA_CHECK(config.norm_placement != NormPlacement::residual);
    for (const RopeConfig& rope : config.ropes)
      ropes_.push_back({rope, rope_frequencies(rope, config.head_dim)});
    layer_bytes_ = layer_bytes_per_token_ = weights_.final_norm.bytes();
    for (const DecoderLayer& layer : weights_.layers) {
      const int64_t shared = layer.attention_input_norm.bytes() + layer.attention_output_norm.bytes() +
                             layer.attention.bytes() + layer.mlp_input_norm.bytes() +
                             layer.mlp_output_norm.bytes();
      layer_bytes_ += shared + mlp_bytes(layer.mlp);
      layer_bytes_per_token_ += shared + mlp_bytes_per_token(layer.mlp);
    }
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override {
    return layer_bytes_ + weights_.embedding.bytes() + (weights_.lm_head ? weights_.lm_head->bytes() : 0);
  }
  int64_t weight_bytes_per_token() const override {
    return layer_bytes_per_token_ + head().bytes() +
           config_.hidden_size * static_cast<int64_t>(size_of(weights_.embedding.storage()));
  }

  int64_t reserve(int max_tokens, int max_logit_rows) override;
  void forward(const ForwardInput& input, float* logits, Stream& stream) override;

 private:
  const PackedMatrix& head() const { return weights_.lm_head ? *weights_.lm_head : weights_.embedding; }
  void embed(std::span<const int32_t> ids, ThreadPool& pool);
  const float* branch_input(const Norm& norm, int64_t rows, ThreadPool& pool);
  void add_branch(const Norm& norm, int64_t rows, ThreadPool& pool);
  void write_logits(int64_t rows, float* logits, ThreadPool& pool);

  ModelConfig config_;
  DecoderWeights weights_;
  DecoderScales scales_;
  std::vector<Rope> ropes_;
  int64_t layer_bytes_ = 0, layer_bytes_per_token_ = 0;

  int max_tokens_ = 0, max_logit_rows_ = 0;
  AlignedArray<float> arena_;
  float* x_ = nullptr;       // [T, hidden] residual stream
  float* normed_ = nullptr;  // [T, hidden]
  float* branch_ = nullptr;  // [T, hidden] output of attention or MLP
  LayerScratch scratch_;
  std::vector<int32_t> row_ids_;
};

int64_t Decoder::reserve(int max_tokens, int max_logit_rows) {
  FOVEA_CHECK(max_tokens > 0 && max_logit_rows > 0);
  const auto rows = static_cast<size_t>(max_tokens);
  // 16 floats = one cache line: keeps the buffers aligned.
  const auto padded = [&](int64_t width) { return (rows * static_cast<size_t>(width) + 15) / 16 * 16; };
  const int64_t hidden = config_.hidden_size;
  const int64_t heads = static_cast<int64_t>(config_.num_heads) * config_.head_dim;
  const int64_t qkv = heads + 2 * static_cast<int64_t>(config_.num_kv_heads) * config_.head_dim;
  const bool dense = !std::ranges::all_of(config_.layers, &LayerConfig::moe);
  const int64_t intermediate = dense ? config_.intermediate_size : 0;
  // The scratch of attention and of the MLP share memory: they are never live at the same time.
  const size_t shared =
      std::max(padded(qkv) + padded(heads), padded(2 * intermediate) + padded(intermediate));
  size_t rotations = 0;
  for (const Rope& rope : ropes_)
    rotations += 2 * padded(static_cast<int64_t>(rope.frequencies.size()));
  arena_ = AlignedArray<float>(3 * padded(hidden) + rotations + shared);
  float* next = arena_.data();
  const auto take = [&](size_t count) { return std::exchange(next, next + count); };
  x_ = take(padded(hidden));
  normed_ = take(padded(hidden));
  branch_ = take(padded(hidden));
  scratch_.ropes.clear();
  for (Rope& rope : ropes_) {
    const auto pairs = static_cast<int64_t>(rope.frequencies.size());
    rope.cos = take(padded(pairs));
    rope.sin = take(padded(pairs));
    scratch_.ropes.push_back({rope.cos, rope.sin, static_cast<int>(2 * pairs), rope.config.interleaved});
  }
  scratch_.qkv = scratch_.gate_up = next;
  scratch_.heads = next + padded(qkv);
  scratch_.act = next + padded(2 * intermediate);
  int64_t bytes = static_cast<int64_t>(arena_.size() * sizeof(float));
  if (std::ranges::any_of(config_.layers, &LayerConfig::moe))
    bytes += scratch_.experts.emplace(config_, max_tokens).bytes();
  row_ids_.resize(rows);
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  max_tokens_ = max_tokens;
  max_logit_rows_ = max_logit_rows;
  return bytes;
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
  for (const Rope& rope : ropes_)
    rope_rows(rope.frequencies, rope.config.attention_factor, input.positions, rope.cos, rope.sin, pool);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const DecoderLayer& layer = weights_.layers[i];
    layer.attention.attend(config_, static_cast<int>(i), branch_input(layer.attention_input_norm, rows, pool),
                           input, scratch_, stream);
    const int64_t heads = layer.attention.out.weight.k();
    if (i + 1 == weights_.layers.size())
      rows = keep_rows(input.logit_rows, rows, {{x_, config_.hidden_size}, {scratch_.heads, heads}});
    layer.attention.out.forward(scratch_.heads, heads, rows, branch_, config_.hidden_size, pool);
    add_branch(layer.attention_output_norm, rows, pool);
    const float* mlp_input = branch_input(layer.mlp_input_norm, rows, pool);
    if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp))
      dense->forward(mlp_input, rows, branch_, scratch_, pool);
    else
      std::get<MoeBlock>(layer.mlp).forward(mlp_input, rows, branch_, *scratch_.experts, pool);
    add_branch(layer.mlp_output_norm, rows, pool);
  }
  write_logits(rows, logits, pool);
}

void Decoder::embed(std::span<const int32_t> ids, ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size, rows = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids)
    FOVEA_CHECK(id >= 0 && id < config_.vocab_size);
  for_rows(rows, rows * hidden * PackedMatrix::kUnpackCost, pool, [&](int64_t row) {
    weights_.embedding.unpack_row(ids[static_cast<size_t>(row)], x_ + row * hidden);
  });
  if (config_.embedding_scale != 1.0f) scale_rows(x_, hidden, config_.embedding_scale, rows, hidden, pool);
}

/// The input of a branch: the residual stream, normed if the placement has a norm there.
const float* Decoder::branch_input(const Norm& norm, int64_t rows, ThreadPool& pool) {
  if (!norm) return x_;
  norm.apply(x_, config_.hidden_size, normed_, config_.hidden_size, rows, pool);
  return normed_;
}

void Decoder::add_branch(const Norm& norm, int64_t rows, ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  if (norm) norm.apply(branch_, hidden, branch_, hidden, rows, pool);
  add_rows(x_, hidden, branch_, hidden, scales_.residual, rows, hidden, pool);
}

void Decoder::write_logits(int64_t rows, float* logits, ThreadPool& pool) {
  const int64_t vocab = config_.vocab_size;
  const float* normed = branch_input(weights_.final_norm, rows, pool);
  linear(head(), normed, config_.hidden_size, rows, logits, vocab, nullptr, pool);
  if (scales_.logits != 1.0f) scale_rows(logits, vocab, scales_.logits, rows, vocab, pool);
  if (scales_.logit_softcap > 0.0f) softcap_rows(logits, vocab, scales_.logit_softcap, rows, vocab, pool);
}

}  // namespace

DecoderWeights read_decoder(const ModelConfig& c, WeightReader& reader, const DecoderTensors& tensors) {
  const bool before = c.norm_placement != NormPlacement::post, after = c.norm_placement != NormPlacement::pre;
  DecoderWeights weights;
  weights.embedding = reader.matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int i = 0; i < c.num_layers && reader.status(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const auto norm = [&](const char* name) { return read_norm(prefix + name, c.hidden_size, c, reader); };
    DecoderLayer& layer = weights.layers.emplace_back();
    if (before) layer.attention_input_norm = norm("input_layernorm");
    layer.attention = read_attention(prefix + "self_attn.", c, reader, tensors.stored);
    if (after) layer.attention_output_norm = norm("post_attention_layernorm");
    if (before) layer.mlp_input_norm = norm(after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    if (c.layers[static_cast<size_t>(i)].moe)
      layer.mlp = read_moe(prefix, c, reader);
    else
      layer.mlp = read_gated_mlp(prefix + std::string(tensors.mlp), c, reader, tensors.stored);
    if (after) layer.mlp_output_norm = norm("post_feedforward_layernorm");
  }
  weights.final_norm = read_norm("model.norm", c.hidden_size, c, reader);
  if (!c.tie_word_embeddings) weights.lm_head = reader.matrix("lm_head.weight", c.vocab_size, c.hidden_size);
  return weights;
}

std::unique_ptr<Model> make_decoder(const ModelConfig& config, DecoderWeights weights,
                                    const DecoderScales& scales) {
  return std::make_unique<Decoder>(config, std::move(weights), scales);
}

std::unique_ptr<Model> read_decoder_model(const ModelConfig& config, WeightReader& reader) {
  return make_decoder(config, read_decoder(config, reader));
}

}  // namespace fovea
