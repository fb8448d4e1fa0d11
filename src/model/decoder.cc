#include "model/decoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/decoder_forward.h"
#include "model/placed_weights.h"
#include "model/rope.h"
#include "ops/cpu_ops.h"

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

/// A device's 16-bit matrices read rows from multiples of 16 bytes, and heads of latent attention are parts
/// of rows.
Status check_heads(const ModelConfig& config, const Ops& ops) {
  constexpr int kGroup = 8;
  const MlaConfig& m = config.mla;
  if (!m || ops.activations() == DType::f32) return {};
  for (const auto& [key, size] : {std::pair{"qk_nope_head_dim", m.nope_dim},
                                  {"qk_rope_head_dim", m.rope_dim},
                                  {"v_head_dim", m.v_dim},
                                  {"kv_lora_rank", m.kv_rank}})
    if (size % kGroup != 0)
      return unsupported(std::string(ops.device().name()) + " can't run " + config.architecture + " with " +
                         key + " = " + std::to_string(size) +
                         " in 16 bits; a multiple of 8 is needed, or --dtype float32");
  return {};
}

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights, const DecoderScales& scales)
      : config_(config), weights_(std::move(weights)), scales_(scales) {
    FOVEA_CHECK(config.norm_placement != NormPlacement::residual);
    for (const RopeConfig& rope : config.ropes)
      frequencies_.push_back(rope_frequencies(rope, config.head_dim));
    const WeightMatrix& head = weights_.lm_head ? *weights_.lm_head : weights_.embedding;
    bytes_ = bytes_per_token_ = weights_.final_norm.bytes() + draft_bytes();
    bytes_ += weights_.embedding.bytes() + (weights_.lm_head ? head.bytes() : 0);
    bytes_per_token_ +=
        head.bytes() + config.hidden_size * static_cast<int64_t>(size_of(weights_.embedding.storage()));
    for (const DecoderLayer& layer : weights_.layers) {
      const int64_t shared = layer.attention_input_norm.bytes() + layer.attention_output_norm.bytes() +
                             (layer.latent ? layer.latent->bytes() : layer.attention.bytes()) +
                             layer.mlp_input_norm.bytes() + layer.mlp_output_norm.bytes();
      bytes_ += shared + mlp_bytes(layer.mlp);
      bytes_per_token_ += shared + mlp_bytes_per_token(layer.mlp);
      if (!layer.shortcut) continue;
      bytes_ += layer.shortcut->bytes();
      bytes_per_token_ += layer.shortcut->bytes_per_token();
    }
    if (deferred()) return;  // the weights are not read yet
    WeightPlacement host;
    placed_ = fovea::place(config_, weights_, frequencies_, scales_, host);
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return bytes_; }
  int64_t weight_bytes_per_token() const override { return bytes_per_token_; }

  Status keep_hidden(std::vector<int> ids) override;
  const LinearWeight* embedding_weight() const override { return &placed_.embedding; }
  const LinearWeight* head_weight() const override { return &placed_.head; }

  Status place(Ops& ops, Stream& stream, const PlaceOptions& options) override;
  int64_t placed_bytes(Ops& ops) const override;
  int64_t activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const override;
  Status allow_lora(const LoraLimits& limits) override;
  int64_t reserve(int max_tokens, int max_logit_rows) override;
  Status forward(const ForwardInput& input, float* logits, Stream& stream) override;
  Status forward_tensors(const StepTensors& step, const Tensor& logits, Stream& stream) override;

 private:
  /// Whether the weights are described and not read. A draft head's embedding may be the model's, and a load
  /// that has failed may have no layer.
  bool deferred() const {
    if (weights_.layers.empty()) return false;
    const DecoderLayer& layer = weights_.layers.front();
    return (layer.latent ? layer.latent->out : layer.attention.out).weight.source() != nullptr;
  }
  /// The weights without memory. What a draft head shares with its model may not be placed yet.
  PlacedDecoder measured(WeightPlacement& placement) const {
    PlacedDecoder placed = fovea::place(config_, weights_, frequencies_, scales_, placement);
    for (LinearWeight* shared : {&placed.embedding, &placed.head})
      if (shared->empty()) *shared = placement.shape_only(config_.vocab_size, config_.hidden_size);
    return placed;
  }
  /// Bytes of a draft head's input.
  int64_t draft_bytes() const {
    if (!weights_.draft) return 0;
    const DraftInput& draft = *weights_.draft;
    int64_t bytes =
        draft.embedding_norm.bytes() + draft.state_norm.bytes() + draft.fc.bytes() + draft.fc_norm.bytes();
    for (const Norm& norm : draft.part_norms)
      bytes += norm.bytes();
    return bytes;
  }
  /// Bytes of the arena of steps within the limits.
  size_t arena_bytes(Ops& ops, const PlacedDecoder& placed, const DecoderLimits& limits) const;

  ModelConfig config_;
  DecoderWeights weights_;  // empty after place(): then the weights are in memory_
  DecoderScales scales_;
  std::vector<std::vector<double>> frequencies_;  // of each of config.ropes
  int64_t bytes_ = 0, bytes_per_token_ = 0;

  Ops* ops_ = &cpu_ops();
  std::vector<Buffer> memory_;  // of placed_; empty without place()
  PlacedDecoder placed_;
  DecoderLimits limits_;
  std::optional<Arena> arena_;
};

Status Decoder::keep_hidden(std::vector<int> ids) {
  FOVEA_CHECK(!arena_ && std::ranges::is_sorted(ids));
  FOVEA_CHECK(ids.empty() || (ids.front() >= 0 && ids.back() <= config_.num_layers + 1));
  limits_.hidden = std::move(ids);
  return {};
}

Status Decoder::place(Ops& ops, Stream& stream, const PlaceOptions& options) {
  FOVEA_CHECK(!arena_ && memory_.empty());
  FOVEA_RETURN_IF_ERROR(check_heads(config_, ops));
  const bool in_block = ops.packed_format(WeightUse::plain).has_value();
  if (deferred() && !in_block) return needs_host_weights(ops);
  WeightPlacement placement(ops, stream, in_block ? placed_bytes(ops) : 0);
  PlacedDecoder placed = fovea::place(config_, weights_, frequencies_, scales_, placement);
  // Its copies read weights_, which is freed below, and write to memory that is freed on an error.
  FOVEA_RETURN_IF_ERROR(placement.finish(options));
  ops_ = &ops;
  placed_ = std::move(placed);
  memory_ = placement.take_memory();
  weights_ = {};
  return {};
}

int64_t Decoder::placed_bytes(Ops& ops) const {
  if (!memory_.empty()) return bytes_of(memory_);
  WeightPlacement placement = WeightPlacement::measure(ops);
  measured(placement);
  return placement.bytes();
}

int64_t Decoder::activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const {
  const DecoderLimits limits{max_tokens, max_logit_rows, limits_.hidden, limits_.lora};
  if (!memory_.empty()) return static_cast<int64_t>(arena_bytes(ops, placed_, limits));
  WeightPlacement placement = WeightPlacement::measure(ops);
  return static_cast<int64_t>(arena_bytes(ops, measured(placement), limits));
}

size_t Decoder::arena_bytes(Ops& ops, const PlacedDecoder& placed, const DecoderLimits& limits) const {
  const auto shape_only = [&](ElementType type, std::initializer_list<int64_t> shape) {
    return Tensor::dense(nullptr, ops.device(), type, shape);
  };
  const int64_t logit_rows = std::min(limits.max_tokens, limits.max_logit_rows);
  StepTensors step;
  step.token_ids = step.positions = shape_only(ElementType::i32, {limits.max_tokens});
  step.slots = shape_only(ElementType::i64, {limits.max_tokens});
  step.logit_rows = shape_only(ElementType::i32, {logit_rows});
  if (placed.draft) {
    const bool by_fc = placed.draft->joins_in_attention && !placed.draft->fc.empty();
    step.states =
        shape_only(ElementType::f32, {limits.max_tokens, by_fc ? placed.draft->fc.k : config_.hidden_size});
  }
  Arena dry = Arena::dry_run(ops.device());
  OpQueue queue = OpQueue::dry_run(ops);
  decoder_forward(config_, placed, limits, step,
                  shape_only(ElementType::f32, {logit_rows, config_.vocab_size}), dry, queue);
  return dry.peak();
}

Status Decoder::allow_lora(const LoraLimits& limits) {
  FOVEA_CHECK(!arena_ && limits.max_rank > 0);
  limits_.lora = limits;
  return {};
}

int64_t Decoder::reserve(int max_tokens, int max_logit_rows) {
  FOVEA_CHECK(max_tokens > 0 && max_logit_rows > 0 && !placed_.layers.empty());
  limits_.max_tokens = max_tokens;
  limits_.max_logit_rows = max_logit_rows;
  arena_.emplace(ops_->device(), arena_bytes(*ops_, placed_, limits_));
  return static_cast<int64_t>(arena_->bytes());
}

Status Decoder::forward(const ForwardInput& input, float* logits, Stream& stream) {
  FOVEA_CHECK(ops_ == &cpu_ops());
  StepTensors step{host_tensor(input.token_ids),
                   host_tensor(input.positions),
                   host_tensor(input.slots),
                   host_tensor(input.logit_rows),
                   input.attention,
                   input.kv,
                   input.batch};
  const auto tokens = static_cast<int64_t>(input.token_ids.size()), width = int64_t{config_.hidden_size};
  FOVEA_CHECK(placed_.draft.has_value() == (input.states != nullptr));
  FOVEA_CHECK(limits_.hidden.empty() || input.hidden != nullptr);
  if (input.states != nullptr) step.states = host_tensor(input.states, tokens, input.states_width);
  step.lora = input.lora;
  const auto rows = static_cast<int64_t>(input.logit_rows.size());
  const int64_t kept = placed_.draft ? rows : tokens;
  for (size_t i = 0; i < limits_.hidden.size(); ++i)
    step.hidden.push_back(host_tensor(input.hidden + static_cast<int64_t>(i) * kept * width, kept, width));
  return forward_tensors(step, host_tensor(logits, rows, config_.vocab_size), stream);
}

Status Decoder::forward_tensors(const StepTensors& step, const Tensor& logits, Stream& stream) {
  FOVEA_CHECK(arena_ && step.attention && step.kv && &step.kv->device() == &ops_->device());
  FOVEA_CHECK((step.lora == nullptr && step.lora_slots == nullptr) || limits_.lora.max_rank > 0);
  OpQueue queue(*ops_, stream);
  decoder_forward(config_, placed_, limits_, step, logits, *arena_, queue);
  return queue.status();
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
    if (c.mla)
      layer.latent =
          read_latent(prefix + "self_attn.", c, reader, c.sparse && c.indexer.full[static_cast<size_t>(i)]);
    else
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
