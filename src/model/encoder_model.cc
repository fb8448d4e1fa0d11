#include "model/encoder_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"

namespace fovea {
namespace {

class EncoderModel final : public Model {
 public:
  EncoderModel(const ModelConfig& config, EncoderModelWeights weights, std::optional<int32_t> padding_id)
      : config_(config), weights_(std::move(weights)), padding_id_(padding_id) {
    shape_ = {config.hidden_size,    config.num_heads, config.intermediate_size,
              config.norm_placement, config.norm_eps,  config.activation};
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override {
    int64_t bytes = weights_.words.bytes() + weights_.positions.bytes() + weights_.types.bytes() +
                    weights_.embedding_norm.bytes();
    for (const EncoderLayer& layer : weights_.layers)
      bytes += layer.bytes();
    return bytes;
  }
  /// An encoder has no decode step: the bytes that one pass reads.
  int64_t weight_bytes_per_token() const override {
    return weight_bytes() - weights_.words.bytes() - weights_.positions.bytes() - weights_.types.bytes();
  }

  int64_t reserve(int max_tokens, int max_logit_rows) override;
  Status forward(const ForwardInput&, float*, Stream&) override {
    FOVEA_CHECK(false);  // an encoder has no logits
    return {};
  }
  Status encode(const EncodeInput& input, Stream& stream) override;

 private:
  void embed(const EncodeInput& input, ThreadPool& pool);

  ModelConfig config_;
  EncoderModelWeights weights_;
  std::optional<int32_t> padding_id_;
  BlockShape shape_;
  int max_tokens_ = 0;
  AlignedArray<float> arena_;
  BlockScratch scratch_;
  std::vector<int32_t> position_rows_;  // of the position table
};

int64_t EncoderModel::reserve(int max_tokens, int) {
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
  embed(input, stream.pool());
  weights_.embedding_norm.forward(scratch_.x, scratch_.x, rows, shape_.eps, stream.pool());
  BlockRunner runner(shape_, scratch_, stream);
  for (size_t i = 0; i < weights_.layers.size(); ++i)
    FOVEA_RETURN_IF_ERROR(
        runner.encoder_layer(weights_.layers[i], rows, static_cast<int>(i), *input.attention));
  std::memcpy(input.hidden, scratch_.x, static_cast<size_t>(rows * config_.hidden_size) * sizeof(float));
  return {};
}

/// x = word + token type + position. RoBERTa counts positions from the offset over non-padding tokens;
/// padding tokens all use the row before it.
void EncoderModel::embed(const EncodeInput& input, ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  for (size_t b = 0; b + 1 < input.offsets.size(); ++b) {
    int32_t next = config_.position_offset;
    for (int32_t row = input.offsets[b]; row < input.offsets[b + 1]; ++row) {
      const int32_t id = input.token_ids[static_cast<size_t>(row)];
      const int32_t type = input.token_types.empty() ? 0 : input.token_types[static_cast<size_t>(row)];
      FOVEA_CHECK(id >= 0 && id < config_.vocab_size && type >= 0 &&
                  type < std::max(int64_t{1}, weights_.types.n()));
      const bool padding = id == padding_id_;
      position_rows_[static_cast<size_t>(row)] = padding ? config_.position_offset - 1 : next++;
    }
    FOVEA_CHECK(next <= weights_.positions.n());
  }
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
