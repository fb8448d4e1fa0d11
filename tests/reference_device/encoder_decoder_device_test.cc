// BART and Whisper on a device whose memory the host cannot access, against the same models on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/float16.h"
#include "model/encoder_test_support.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea {
namespace {

using test::EncoderDecoderRunner;
using test::GuardedDevice;
using test::PackingOps;
using test::PlannedAttention;
using test::RaggedRows;
using test::Request;

/// Attention of the host, called in an operation.
class QueuedAttention final : public StepAttention {
 public:
  QueuedAttention(const GuardedDevice& device, StepAttention& real) : device_(device), real_(real) {}
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    device_.queue([=, this, &stream] { EXPECT_TRUE(real_.forward(index, args, stream).ok()); });
    return {};
  }

 private:
  const GuardedDevice& device_;
  StepAttention& real_;
};

class EncoderDecoderOnDevice : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kPage = 4, kPages = 16, kMaxRows = 64;

  std::string folder() const { return std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/" + GetParam(); }
  std::unique_ptr<Model> load(bool deferred) {
    const auto config = load_model_config(folder());
    EXPECT_TRUE(config.ok()) << config.error().message;
    auto model = Model::load(*config, {.dir = folder(), .dtype = DType::f32, .deferred = deferred}, stream_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return *std::move(model);
  }
  static Request request(const ModelConfig& config, int rows, int tokens, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    Request r;
    if (config.encoder->mel_bins > 0) {
      for (int i = 0; i < 2 * rows * config.encoder->mel_bins; ++i)
        r.features.push_back(normal(rng));
    } else {
      for (int i = 0; i < rows; ++i)
        r.text.push_back(static_cast<int32_t>(rng() % 200));
    }
    for (int i = 0; i < tokens; ++i)
      r.tokens.push_back(static_cast<int32_t>(rng() % 200));
    return r;
  }

  template <class T>
  Tensor upload(const std::vector<T>& values) {
    const Tensor host = host_tensor(std::span(values));
    const Tensor there =
        buffers_.emplace_back(device_, values.size() * sizeof(T)).tensor(host.dtype, {host.size(0)});
    EXPECT_TRUE(copy(host, there, stream_).ok());
    EXPECT_TRUE(device_.synchronize(stream_).ok());
    return there;
  }

  ThreadPool pool_{2};
  Stream stream_{pool_};
  GuardedDevice device_;
  std::vector<Buffer> buffers_;
};

TEST_P(EncoderDecoderOnDevice, HasTheCpusLogits) {
  const auto host = load(false), there = load(true);
  const ModelConfig& config = host->config();
  const std::vector<Request> requests = {request(config, 9, 6, 1), request(config, 5, 4, 2)};
  host->reserve(kMaxRows, kMaxRows);
  EncoderDecoderRunner runner(*host, requests, false, kPage, 1);
  runner.encode();
  std::vector<float> expected = runner.step({5, 3});
  const auto next = runner.step({1, 1}, /*last_only=*/true);
  expected.insert(expected.end(), next.begin(), next.end());

  PackingOps ops(device_);
  const int64_t weights = there->placed_bytes(ops),
                activations = there->activation_bytes(ops, kMaxRows, kMaxRows);
  const Status placed = there->place(ops, stream_);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(there->placed_bytes(ops), weights);
  EXPECT_EQ(there->reserve(kMaxRows, kMaxRows), activations);
  EXPECT_EQ(there->weight_bytes_per_token() > 0, true);
  auto cache =
      KvCache::create(kv_groups(config, KvCacheDType::float32, KvLayout::hnd, kPage), {4 * kPages}, device_);
  ASSERT_TRUE(cache.ok());
  const auto page = [](size_t b, int index, bool cross) {
    return static_cast<int32_t>(4 * (kPages - 1 - index) + 2 * cross + static_cast<int>(b));
  };
  const auto slot = [&](size_t b, int row, bool cross) {
    return int64_t{page(b, row / kPage, cross)} * kPage + row % kPage;
  };

  std::vector<int> lengths;
  std::vector<int32_t> ids;
  std::vector<float> features;
  std::vector<int64_t> cross_slots;
  for (size_t b = 0; b < requests.size(); ++b) {
    lengths.push_back(requests[b].encoder_rows(config));
    ids.insert(ids.end(), requests[b].text.begin(), requests[b].text.end());
    features.insert(features.end(), requests[b].features.begin(), requests[b].features.end());
    for (int i = 0; i < lengths.back(); ++i)
      cross_slots.push_back(slot(b, i, true));
  }
  const RaggedRows rows(lengths);
  PlannedAttention self(
      config, false, kPage,
      [&](AttentionType type) { return type == AttentionType::encoder ? &rows.meta : nullptr; }, stream_);
  QueuedAttention queued_self(device_, self);
  EncodeInput input;
  input.token_ids = ids;
  input.features = features;
  input.offsets = rows.offsets;
  input.attention = &queued_self;
  input.cross_slots = cross_slots;
  input.kv = &*cache;
  const Status encoded = there->encode(input, stream_);
  ASSERT_TRUE(encoded.ok()) << encoded.error().message;

  std::vector<float> got;
  std::vector<int> done = {0, 0};
  for (const std::vector<int>& counts : {std::vector<int>{5, 3}, std::vector<int>{1, 1}}) {
    std::vector<int32_t> tokens, positions, logit_rows, q_offsets = {0}, kv_lens, pages, cross_pages;
    std::vector<int64_t> slots;
    for (size_t b = 0; b < counts.size(); ++b) {
      for (int i = 0; i < counts[b]; ++i, ++done[b]) {
        logit_rows.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(requests[b].tokens[static_cast<size_t>(done[b])]);
        positions.push_back(done[b]);
        slots.push_back(slot(b, done[b], false));
      }
      q_offsets.push_back(static_cast<int32_t>(tokens.size()));
      kv_lens.push_back(done[b]);
      for (int p = 0; p < kPages; ++p) {
        pages.push_back(page(b, p, false));
        cross_pages.push_back(page(b, p, true));
      }
    }
    // In the second step one row of two, so that rows are dropped before the last feed-forward block.
    const bool last_only = counts[0] == 1;
    if (last_only) logit_rows.pop_back();
    BatchMeta own, cross;
    own.q_offsets = cross.q_offsets = q_offsets;
    own.kv_lens = kv_lens;
    cross.kv_lens = rows.kv_lens;
    own.page_table = pages;
    cross.page_table = cross_pages;
    own.page_table_stride = cross.page_table_stride = kPages;
    PlannedAttention attention(
        config, false, kPage,
        [&](AttentionType type) -> const BatchMeta* {
          return type == AttentionType::decoder           ? &own
                 : type == AttentionType::encoder_decoder ? &cross
                                                          : nullptr;
        },
        stream_);
    QueuedAttention queued(device_, attention);
    StepTensors step;
    step.token_ids = upload(tokens);
    step.positions = upload(positions);
    step.slots = upload(slots);
    step.logit_rows = upload(logit_rows);
    step.attention = &queued;
    step.kv = &*cache;
    const auto count = static_cast<int64_t>(logit_rows.size());
    std::vector<float> logits(static_cast<size_t>(count * config.vocab_size), NAN);
    const Tensor on_device = buffers_.emplace_back(device_, logits.size() * sizeof(float))
                                 .tensor(ElementType::f32, {count, config.vocab_size});
    const Status status = there->forward_tensors(step, on_device, stream_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_TRUE(copy(on_device, host_tensor(logits.data(), count, config.vocab_size), stream_).ok());
    ASSERT_TRUE(device_.synchronize(stream_).ok());
    got.insert(got.end(), logits.begin(), logits.end());
  }
  ASSERT_LE(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoderOnDevice,
                         testing::Values("bart_d8_fp32", "bart_scaled_d16_bf16", "whisper_d8_fp32",
                                         "whisper_d16_bf16"),
                         [](const auto& fixture) { return std::string(fixture.param); });

}  // namespace
}  // namespace fovea
