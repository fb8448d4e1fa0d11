#pragma once
// An encoder-decoder of random matrices, small enough to read: everything that the engine has to do for such
// a model, and no model family's code.
#include <utility>
#include <vector>

#include "fovea/result.h"
#include "model/model.h"

namespace fovea::test {

class FakeEncoderDecoder final : public Model {
 public:
  static constexpr int kLayers = 2, kEncoderLayers = 2, kHeads = 2, kHeadDim = 16, kVocab = 50;
  static constexpr int kHidden = kHeads * kHeadDim;

  explicit FakeEncoderDecoder(int encoder_positions) {
    config_.kind = ModelKind::encoder_decoder;
    config_.architecture = "FakeForConditionalGeneration";
    config_.vocab_size = kVocab;
    config_.hidden_size = kHidden;
    config_.num_layers = kLayers;
    config_.num_heads = config_.num_kv_heads = kHeads;
    config_.head_dim = kHeadDim;
    config_.max_position = 256;
    config_.layers.resize(kLayers);
    config_.encoder = EncoderConfig{kEncoderLayers, kHeads, 0, encoder_positions, 0};
  }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t weight_bytes_per_token() const override { return 0; }
  int64_t reserve(int, int) override { return 0; }

  Status encode(const EncodeInput& input, Stream& stream) override {
    const auto rows = static_cast<size_t>(input.offsets.back());
    Rows x(rows * kHidden);
    for (size_t b = 0; b + 1 < input.offsets.size(); ++b)
      for (auto row = static_cast<size_t>(input.offsets[b]); row < static_cast<size_t>(input.offsets[b + 1]);
           ++row)
        embed(input.token_ids[row], static_cast<int>(row) - input.offsets[b], &x[row * kHidden]);
    for (int layer = 0; layer < kEncoderLayers; ++layer) {
      const Rows k = project(x, salt(2, layer, 1)), v = project(x, salt(2, layer, 2));
      KvView view;
      view.k = k.data();
      view.v = v.data();
      view.k_page_stride = view.v_page_stride = kHidden;
      view.k_slot_stride = view.v_slot_stride = kHidden;
      view.k_head_stride = view.v_head_stride = kHeadDim;
      FOVEA_RETURN_IF_ERROR(
          attend(2 * kLayers + layer, project(x, salt(2, layer, 0)), view, *input.attention, x, stream));
    }
    for (int layer = 0; layer < kLayers; ++layer)
      append(*input.kv, layer, input.cross_slots, x, salt(1, layer, 1), stream);
    ++encodes;
    encoded_rows += input.offsets.back();
    return {};
  }

  Status forward(const ForwardInput& input, float* logits, Stream& stream) override {
    Rows x(input.token_ids.size() * kHidden);
    for (size_t row = 0; row < input.token_ids.size(); ++row)
      embed(input.token_ids[row], input.positions[row], &x[row * kHidden]);
    for (int layer = 0; layer < kLayers; ++layer) {
      append(*input.kv, layer, input.slots, x, salt(0, layer, 1), stream);
      const KvView view = input.kv->layer(layer);
      FOVEA_RETURN_IF_ERROR(attend(layer, project(x, salt(0, layer, 0)), view, *input.attention, x, stream));
      FOVEA_RETURN_IF_ERROR(
          attend(kLayers + layer, project(x, salt(1, layer, 0)), view, *input.attention, x, stream));
    }
    for (const int32_t row : input.logit_rows)
      for (int id = 0; id < kVocab; ++id) {
        float sum = 0;
        for (int i = 0; i < kHidden; ++i)
          sum += x[static_cast<size_t>(row) * kHidden + static_cast<size_t>(i)] * noise(9000 + id, i);
        *logits++ = sum;
      }
    return {};
  }

  int encodes = 0, encoded_rows = 0;

 private:
  using Rows = std::vector<float>;

  static int salt(int part, int layer, int which) { return 100 + part * 30 + layer * 3 + which; }
  /// In [-1, 1).
  static float noise(int a, int b) {
    uint64_t h = (static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32) | static_cast<uint32_t>(b);
    h = (h ^ (h >> 31)) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ull;
    return static_cast<float>(static_cast<double>(h >> 40) / (1 << 23) - 1);
  }
  static void embed(int32_t id, int position, float* out) {
    for (int i = 0; i < kHidden; ++i)
      out[i] = noise(id, i) + 0.5f * noise(5000 + position, i);
  }
  static Rows project(const Rows& x, int salt) {
    Rows y(x.size());
    for (size_t row = 0; row < x.size(); row += kHidden)
      for (int i = 0; i < kHidden; ++i)
        for (int j = 0; j < kHidden; ++j)
          y[row + static_cast<size_t>(i)] +=
              0.3f * noise(salt * 1000 + i, j) * x[row + static_cast<size_t>(j)];
    return y;
  }
  static void append(KvCache& kv, int layer, std::span<const int64_t> slots, const Rows& x, int first_salt,
                     Stream& stream) {
    const Rows k = project(x, first_salt), v = project(x, first_salt + 1);
    kv.append(layer, slots, k.data(), kHidden, v.data(), kHidden, stream);
  }
  static Status attend(int index, const Rows& q, const KvView& view, StepAttention& attention, Rows& x,
                       Stream& stream) {
    Rows out(x.size(), -1e30f);
    AttentionArgs args;
    args.q = q.data();
    args.out = out.data();
    args.q_row_stride = args.out_row_stride = kHidden;
    args.kv = view;
    FOVEA_RETURN_IF_ERROR(attention.forward(index, args, stream));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += out[i];
    return {};
  }

  ModelConfig config_;
};

}  // namespace fovea::test
