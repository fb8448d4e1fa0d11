#include "model/encoder_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"
#include "model/placed_encoder.h"

namespace fovea {
namespace {

class EncoderModel final : public Model {
 public:
  EncoderModel(const ModelConfig& config, EncoderModelWeights weights, std::optional<int32_t> padding_id)
      : config_(config), weights_(std::move(weights)), padding_id_(padding_id) {
    shape_ = {config.hidden_size,    config.num_heads, config.intermediate_size,
              config.norm_placement, config.norm_eps,  config.activation};
    table_bytes_ = weights_.words.bytes() + weights_.positions.bytes() + weights_.types.bytes();
    bytes_ = table_bytes_ + weights_.embedding_norm.bytes();
    for (const EncoderLayer& layer : weights_.layers)
      bytes_ += layer.bytes();
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return bytes_; }
  /// An encoder has no decode step: the bytes that one pass reads.
  int64_t weight_bytes_per_token() const override { return bytes_ - table_bytes_; }

  int64_t reserve(int max_tokens, int max_logit_rows) override;
  Status forward(const ForwardInput&, float*, Stream&) override {
    FOVEA_CHECK(false);  // an encoder has no logits
    return {};
  }
  Status encode(const EncodeInput& input, Stream& stream) override;

  Status place(Ops& ops, Stream& stream, const PlaceOptions& options) override;
  int64_t placed_bytes(Ops& ops) const override;
  int64_t activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const override;

 private:
  /// place() is a name of the class too.
  PlacedEncoder placed(WeightPlacement& placement) const {
    return fovea::place(weights_, shape_.eps, placement);
  }
  size_t arena_bytes(Ops& ops, const PlacedEncoder& placed, int64_t rows) const;
  Status encode_on_device(const EncodeInput& input, Stream& stream);
  void number_positions(const EncodeInput& input);
  void embed(const EncodeInput& input, ThreadPool& pool);

  ModelConfig config_;
  EncoderModelWeights weights_;
  std::optional<int32_t> padding_id_;
  BlockShape shape_;
  int64_t bytes_ = 0, table_bytes_ = 0;
  int max_tokens_ = 0;
  AlignedArray<float> arena_;
  BlockScratch scratch_;
  std::vector<int32_t> position_rows_;  // of the position table

  Ops* ops_ = nullptr;  // after place(); then weights_ is empty
  std::vector<Buffer> memory_;
  PlacedEncoder on_device_;
  std::optional<Arena> device_arena_;
  Buffer ids_;                  // i32 [3, max_tokens]: words, positions, types
  std::vector<int32_t> types_;  // where the input has none
};

Status EncoderModel::place(Ops& ops, Stream& stream, const PlaceOptions& options) {
  FOVEA_CHECK(!ops_ && max_tokens_ == 0);
  const bool in_block = ops.packed_format(WeightUse::plain).has_value();
  if (weights_.words.source() && !in_block) return needs_host_weights(ops);
  WeightPlacement placement(ops, stream, in_block ? placed_bytes(ops) : 0);
  PlacedEncoder encoder = placed(placement);
  FOVEA_RETURN_IF_ERROR(placement.finish(options));
  ops_ = &ops;
  on_device_ = std::move(encoder);
  memory_ = placement.take_memory();
  weights_ = {};
  return {};
}

int64_t EncoderModel::placed_bytes(Ops& ops) const {
  if (ops_) return bytes_of(memory_);
  WeightPlacement placement = WeightPlacement::measure(ops);
  (void)placed(placement);
  return placement.bytes();
}

int64_t EncoderModel::activation_bytes(Ops& ops, int max_tokens, int) const {
  const auto ids = static_cast<int64_t>(dense_bytes(ElementType::i32, {3, max_tokens}));
  if (ops_) return ids + static_cast<int64_t>(arena_bytes(ops, on_device_, max_tokens));
  WeightPlacement placement = WeightPlacement::measure(ops);
  return ids + static_cast<int64_t>(arena_bytes(ops, placed(placement), max_tokens));
}

size_t EncoderModel::arena_bytes(Ops& ops, const PlacedEncoder& placed, int64_t rows) const {
  EncoderStep step;
  step.words = step.positions = Tensor::dense(nullptr, ops.device(), ElementType::i32, {rows});
  if (!placed.types.empty()) step.types = step.words;
  Arena dry = Arena::dry_run(ops.device());
  OpQueue queue = OpQueue::dry_run(ops);
  (void)encoder_forward(shape_, placed, rows, step, dry, queue);
  return dry.peak();
}

/// Copies the ids there and the hidden states back, and waits for them.
Status EncoderModel::encode_on_device(const EncodeInput& input, Stream& stream) {
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  const auto there = [&](int array) {
    return ids_.tensor(ElementType::i32, {rows}, static_cast<size_t>(array * max_tokens_) * sizeof(int32_t));
  };
  EncoderStep step{there(0), there(1), {}, input.attention};
  FOVEA_RETURN_IF_ERROR(copy(host_tensor(input.token_ids), step.words, stream));
  const std::span positions = std::span(position_rows_).first(static_cast<size_t>(rows));
  FOVEA_RETURN_IF_ERROR(copy(host_tensor(positions), step.positions, stream));
  if (!on_device_.types.empty()) {
    step.types = there(2);
    types_.resize(input.token_types.empty() ? static_cast<size_t>(rows) : 0);
    const std::span<const int32_t> types = input.token_types.empty() ? types_ : input.token_types;
    FOVEA_RETURN_IF_ERROR(copy(host_tensor(types), step.types, stream));
  }
  OpQueue queue(*ops_, stream);
  const Tensor hidden = encoder_forward(shape_, on_device_, max_tokens_, step, *device_arena_, queue);
  Status status = queue.status();
  if (status) status = copy(hidden, host_tensor(input.hidden, rows, config_.hidden_size), stream);
  const Status done = ops_->device().synchronize(stream);
  return status ? done : status;
}

int64_t EncoderModel::reserve(int max_tokens, int) {
  if (ops_) {
    max_tokens_ = max_tokens;
    position_rows_.resize(static_cast<size_t>(max_tokens));
    ids_ = Buffer(ops_->device(), dense_bytes(ElementType::i32, {3, max_tokens}));
    device_arena_.emplace(ops_->device(), arena_bytes(*ops_, on_device_, max_tokens));
    return static_cast<int64_t>(ids_.size() + device_arena_->bytes());
  }
  FOVEA_CHECK(!weights_.words.source());
  const auto rows = static_cast<size_t>(max_tokens);
  const size_t hidden = rows * static_cast<size_t>(config_.hidden_size);
  arena_ = AlignedArray<float>(3 * hidden + rows * static_cast<size_t>(shape_.wide()));
  float* next = arena_.data();
  scratch_.x = std::exchange(next, next + hidden);
  scratch_.normed = std::exchange(next, next + hidden);
  scratch_.branch = std::exchange(next, next + hidden);
  scratch_.wide = next;
  position_rows_.resize(rows);
  max_tokens_ = max_tokens;
  return static_cast<int64_t>(arena_.size() * sizeof(float));
}

Status EncoderModel::encode(const EncodeInput& input, Stream& stream) {
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  FOVEA_CHECK(rows <= max_tokens_ && !input.offsets.empty() && input.offsets.back() == rows);
  if (rows == 0) return {};
  number_positions(input);
  if (ops_) return encode_on_device(input, stream);
  embed(input, stream.pool());
  weights_.embedding_norm.forward(scratch_.x, scratch_.x, rows, shape_.eps, stream.pool());
  BlockRunner runner(shape_, scratch_, stream);
  for (size_t i = 0; i < weights_.layers.size(); ++i)
    FOVEA_RETURN_IF_ERROR(
        runner.encoder_layer(weights_.layers[i], rows, static_cast<int>(i), *input.attention));
  std::memcpy(input.hidden, scratch_.x, static_cast<size_t>(rows * config_.hidden_size) * sizeof(float));
  return {};
}

/// RoBERTa counts positions from the offset over non-padding tokens; padding tokens all use the row before
/// it.
void EncoderModel::number_positions(const EncodeInput& input) {
  for (size_t b = 0; b + 1 < input.offsets.size(); ++b) {
    int32_t next = config_.position_offset;
    for (int32_t row = input.offsets[b]; row < input.offsets[b + 1]; ++row) {
      const int32_t id = input.token_ids[static_cast<size_t>(row)];
      const int32_t type = input.token_types.empty() ? 0 : input.token_types[static_cast<size_t>(row)];
      FOVEA_CHECK(id >= 0 && id < config_.vocab_size && type >= 0 &&
                  type < std::max(int64_t{1}, ops_ ? on_device_.types.n : weights_.types.n()));
      const bool padding = id == padding_id_;
      position_rows_[static_cast<size_t>(row)] = padding ? config_.position_offset - 1 : next++;
    }
    FOVEA_CHECK(next <= (ops_ ? on_device_.positions.n : weights_.positions.n()));
  }
}

/// x = word + token type + position.
void EncoderModel::embed(const EncodeInput& input, ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  const auto rows = static_cast<int64_t>(input.token_ids.size());
  for_row_ranges(rows, 3 * rows * hidden * PackedMatrix::kUnpackCost, pool, [&](int64_t begin, int64_t end) {
    std::vector<float> part(static_cast<size_t>(hidden));
    for (int64_t row = begin; row < end; ++row) {
      const auto at = static_cast<size_t>(row);
      float* x = scratch_.x + row * hidden;
      const auto add = [&](const WeightMatrix& table, int64_t id) {
        table.unpack_row(id, part.data());
        for (size_t i = 0; i < part.size(); ++i)
          x[i] += part[i];
      };
      weights_.words.unpack_row(input.token_ids[at], x);
      if (weights_.types.n() > 0) add(weights_.types, input.token_types.empty() ? 0 : input.token_types[at]);
      add(weights_.positions, position_rows_[at]);
    }
  });
}

}  // namespace

std::unique_ptr<Model> make_encoder_model(const ModelConfig& config, EncoderModelWeights weights,
                                          std::optional<int32_t> padding_id) {
  return std::make_unique<EncoderModel>(config, std::move(weights), padding_id);
}

}  // namespace fovea
