// Decoders on a device that is not the CPU, compared with transformers' logits and tokens: its operations are
// plain loops, and only they can access its memory. Code that passes here reads no device tensor on the host.
#include "gtest/gtest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/float16.h"
#include "model/kv_groups.h"
#include "model/model_test_support.h"
#include "ops/cpu_ops.h"
#include "ops/op_queue.h"
#include "tensor/buffer.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea {
namespace {

using nlohmann::json;
using test::GuardedDevice;
using test::PackingOps;
using test::ReferenceOps;
using test::Stored;

constexpr double kTolerance = 1e-3;   // fp32 logits and log-probabilities, as in golden_test
constexpr double kDecidedGap = 2e-3;  // twice the tolerance: each of the top two may be off by it

std::string fixture(const std::string& name) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/" + name;
}

std::unique_ptr<Model> load_model(const std::string& name, Stream& stream) {
  const auto config = load_model_config(fixture(name));
  EXPECT_TRUE(config.ok()) << config.error().message;
  auto model = Model::load(*config, {.dir = fixture(name), .dtype = DType::f32}, stream);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *std::move(model);
}

/// Attention on the device: the fp32 reference backend, called in an operation.
class DeviceAttention final : public StepAttention {
 public:
  DeviceAttention(const GuardedDevice& device, test::BackendStep& step) : device_(device), step_(step) {}
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    device_.queue([=, this, &stream] { EXPECT_TRUE(step_.forward(index, args, stream).ok()); });
    return {};
  }

 private:
  const GuardedDevice& device_;
  test::BackendStep& step_;
};

/// The same for bf16 activations, which it widens for the fp32 backend.
class NarrowAttention final : public StepAttention {
 public:
  NarrowAttention(const GuardedDevice& device, test::BackendStep& step, const ModelConfig& config,
                  int64_t rows)
      : device_(device), step_(step), width_(int64_t{config.num_heads} * config.head_dim), rows_(rows) {}
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    device_.queue([=, this, &stream] {
      std::vector<float> q(static_cast<size_t>(rows_ * width_)), out(q.size());
      const auto at = [&](int64_t r, int64_t stride, int64_t i) { return r * stride + i; };
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t i = 0; i < width_; ++i)
          q[static_cast<size_t>(r * width_ + i)] =
              bf16_to_float(static_cast<const uint16_t*>(args.q)[at(r, args.q_row_stride, i)]);
      AttentionArgs wide = args;
      wide.q = q.data();
      wide.out = out.data();
      wide.q_row_stride = wide.out_row_stride = width_;
      EXPECT_TRUE(step_.forward(index, wide, stream).ok());
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t i = 0; i < width_; ++i)
          static_cast<uint16_t*>(args.out)[at(r, args.out_row_stride, i)] =
              float_to_bf16(out[static_cast<size_t>(r * width_ + i)]);
    });
    return {};
  }

 private:
  const GuardedDevice& device_;
  test::BackendStep& step_;
  int64_t width_, rows_;
};

/// One sequence on a device.
class DeviceSequence {
 public:
  static constexpr int kMaxRows = 48, kPageSize = 8, kPages = 40;

  DeviceSequence(Model& model, GuardedDevice& device, Stream& stream)
      : model_(model), device_(device), stream_(stream) {
    auto cache = KvCache::create(kv_groups(model.config(), KvCacheDType::float32, KvLayout::hnd, kPageSize),
                                 {kPages}, device);
    EXPECT_TRUE(cache.ok()) << cache.error().message;
    cache_ = std::make_unique<KvCache>(*std::move(cache));
    for (int page = 0; page < kPages; ++page)
      pages_.push_back(kPages - 1 - page);
  }

  /// Runs `ids` as the next chunk. Returns logits [rows, vocab], or only those of the last row.
  std::vector<float> step(std::span<const int32_t> ids, bool last_only = false) {
    return step(ids, last_only,
                [&](test::BackendStep& step) { return std::make_unique<DeviceAttention>(device_, step); });
  }
  template <class MakeAttention>
  std::vector<float> step(std::span<const int32_t> ids, bool last_only, const MakeAttention& make) {
    const auto rows = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions, wanted;
    std::vector<int64_t> slots;
    for (int32_t r = 0; r < rows; ++r) {
      const int position = length_ + r;
      positions.push_back(position);
      slots.push_back(int64_t{pages_[static_cast<size_t>(position / kPageSize)]} * kPageSize +
                      position % kPageSize);
      if (!last_only || r + 1 == rows) wanted.push_back(r);
    }
    length_ += rows;
    const std::vector<int32_t> q_offsets = {0, rows}, kv_lens = {length_};
    BatchMeta meta;
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = pages_;
    meta.page_table_stride = kPages;
    std::vector<AttentionSpec> specs = attention_specs(model_.config());
    for (AttentionSpec& spec : specs)
      spec.page_size = kPageSize;
    const AttentionLimits limits{1, kMaxRows, kPages * kPageSize, kPages * kPageSize};
    test::BackendStep backend(make_torch_native, specs, limits, meta, stream_);
    const auto attention = make(backend);

    StepTensors tensors;
    tensors.token_ids = upload(ids);
    tensors.positions = upload(std::span<const int32_t>(positions));
    tensors.slots = upload(std::span<const int64_t>(slots));
    tensors.logit_rows = upload(std::span<const int32_t>(wanted));
    tensors.attention = attention.get();
    tensors.kv = cache_.get();
    const int64_t vocab = model_.config().vocab_size, logit_rows = static_cast<int64_t>(wanted.size());
    std::vector<float> logits(static_cast<size_t>(logit_rows * vocab), NAN);
    const Buffer memory(device_, logits.size() * sizeof(float));
    const Tensor there = memory.tensor(ElementType::f32, {logit_rows, vocab});
    const Status status = model_.forward_tensors(tensors, there, stream_);
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_TRUE(copy(there, host_tensor(logits.data(), logit_rows, vocab), stream_).ok());
    EXPECT_TRUE(device_.synchronize(stream_).ok());
    buffers_.clear();
    return logits;
  }

 private:
  template <class T>
  Tensor upload(std::span<const T> values) {
    const Tensor host = host_tensor(values);
    const Buffer& memory = buffers_.emplace_back(device_, values.size_bytes());
    const Tensor there = memory.tensor(host.dtype, {host.size(0)});
    EXPECT_TRUE(copy(host, there, stream_).ok());
    return there;
  }

  Model& model_;
  GuardedDevice& device_;
  Stream& stream_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> pages_;
  std::vector<Buffer> buffers_;
  int length_ = 0;
};

class ReferenceDevice : public testing::Test {
 protected:
  ReferenceDevice() : pool_(1), stream_(pool_) {}

  std::unique_ptr<Model> placed(const std::string& name, Ops& ops) {
    auto model = load_model(name, stream_);
    const Status status = model->place(ops, stream_);
    EXPECT_TRUE(status.ok()) << status.error().message;
    model->reserve(DeviceSequence::kMaxRows, DeviceSequence::kMaxRows);
    return model;
  }
  /// Logits of every row, in chunks of `chunk`.
  std::vector<float> logits(Model& model, const std::vector<int32_t>& ids, size_t chunk) {
    DeviceSequence sequence(model, device_, stream_);
    std::vector<float> all;
    for (size_t first = 0; first < ids.size(); first += chunk) {
      const auto part = sequence.step(std::span(ids).subspan(first, std::min(chunk, ids.size() - first)));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  ThreadPool pool_;
  Stream stream_;
  GuardedDevice device_;  // outlives all members that have its memory
  ReferenceOps ops_{device_};
};

const std::vector<int32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2};

double log_sum_exp_of(std::span<const float> logits) {
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (const float x : logits)
    sum += std::exp(x - most);
  return most + std::log(sum);
}

/// One golden prompt: its logits and log-probabilities, then greedy tokens one by one.
void compare(Model& model, GuardedDevice& device, Stream& stream, const json& prompt) {
  const std::vector<int32_t> ids = prompt.at("ids"), greedy = prompt.at("greedy");
  const std::vector<float> last_logits = prompt.at("last_logits"), logprobs = prompt.at("logprobs"),
                           gaps = prompt.at("gaps");
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  constexpr size_t kChunk = 33;
  DeviceSequence sequence(model, device, stream);
  std::vector<float> last;
  for (size_t first = 0; first < ids.size(); first += kChunk) {
    const size_t count = std::min(kChunk, ids.size() - first);
    const auto logits = sequence.step(std::span(ids).subspan(first, count));
    for (size_t row = 0; row < count; ++row) {
      const auto of_row = std::span(logits).subspan(row * vocab, vocab);
      last.assign(of_row.begin(), of_row.end());
      const size_t next = first + row + 1;
      if (next == ids.size()) break;
      const double logprob = last[static_cast<size_t>(ids[next])] - log_sum_exp_of(last);
      ASSERT_NEAR(logprob, logprobs[next - 1], kTolerance) << "token " << next;
    }
  }
  ASSERT_EQ(last.size(), last_logits.size());
  for (size_t i = 0; i < vocab; ++i)
    ASSERT_NEAR(last[i], last_logits[i], kTolerance) << "logit " << i;
  for (size_t i = 0; i < greedy.size() && gaps[i] > kDecidedGap; ++i) {
    ASSERT_EQ(std::ranges::max_element(last) - last.begin(), greedy[i]) << "answer " << i;
    last = sequence.step(std::span(greedy).subspan(i, 1), /*last_only=*/true);
  }
}

class GoldenOnReferenceDevice : public ReferenceDevice, public testing::WithParamInterface<const char*> {};

TEST_P(GoldenOnReferenceDevice, MatchesTransformers) {
  const auto model = placed(GetParam(), ops_);
  std::ifstream file(fixture(GetParam()) + "/golden.json");
  const json golden = json::parse(file);
  int compared = 0;
  for (const json& prompt : golden.at("prompts")) {
    if (prompt.at("ids").size() > 200) continue;  // the plain loops are slow
    SCOPED_TRACE("prompt of " + std::to_string(prompt.at("ids").size()) + " tokens");
    compare(*model, device_, stream_, prompt);
    if (HasFatalFailure()) return;
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenOnReferenceDevice,
                         testing::Values("llama3_gqa4_d16_bf16", "llama_bias_gqa2_d16_fp32",
                                         "qwen3_gqa2_d32_bf16", "mixtral_gqa2_d16_bf16",
                                         "qwen3moe_gqa2_d16_bf16", "gptoss_gqa2_d16_bf16",
                                         "llama4_gqa2_d16_bf16", "gemma3_gqa2_d32_bf16"),
                         [](const auto& fixture) { return std::string(fixture.param); });

TEST_F(ReferenceDevice, ARowsBitsDontDependOnItsChunk) {
  const auto model = placed("mixtral_gqa2_d16_bf16", ops_);
  const auto whole = logits(*model, kIds, kIds.size());
  EXPECT_EQ(logits(*model, kIds, 1), whole);
  EXPECT_EQ(logits(*model, kIds, 5), whole);
}

TEST_F(ReferenceDevice, EveryStepHasTheSameAddresses) {
  for (const char* name : {"llama3_gqa4_d16_bf16", "mixtral_gqa2_d16_bf16"}) {
    const auto model = placed(name, ops_);
    DeviceSequence sequence(*model, device_, stream_);
    std::vector<const void*> first;
    for (const size_t rows : {17u, 5u, 2u, 16u}) {
      ops_.written.clear();
      sequence.step(std::span(kIds).first(rows), /*last_only=*/true);
      ops_.written.pop_back();  // the logits, which the caller allocates
      if (first.empty()) first = ops_.written;
      EXPECT_GT(first.size(), 4u);
      EXPECT_EQ(ops_.written, first) << rows;
    }
  }
}

// Activations of another type than fp32: every family's pass has the types that the operations require, and
// the logits are those of fp32 up to rounding.
class NarrowActivations : public ReferenceDevice, public testing::WithParamInterface<const char*> {};

TEST_P(NarrowActivations, AreCloseToFp32) {
  ReferenceOps narrow(device_, Stored::as_given, DType::bf16);
  const auto model = placed(GetParam(), narrow), exact = placed(GetParam(), ops_);
  DeviceSequence sequence(*model, device_, stream_);
  std::vector<float> logits;
  for (const size_t rows : {size_t{9}, kIds.size() - 9}) {
    const auto part = std::span(kIds).subspan(logits.empty() ? 0 : 9, rows);
    const auto of_part = sequence.step(part, /*last_only=*/false, [&](test::BackendStep& step) {
      return std::make_unique<NarrowAttention>(device_, step, model->config(), static_cast<int64_t>(rows));
    });
    logits.insert(logits.end(), of_part.begin(), of_part.end());
  }
  const auto expected = this->logits(*exact, kIds, kIds.size());
  ASSERT_EQ(logits.size(), expected.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    error += std::pow(logits[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  // Where two experts' logits are near each other, a rounding chooses the other one.
  EXPECT_LT(std::sqrt(error / size), model->config().moe.num_experts > 0 ? 0.15 : 0.05);
  EXPECT_GT(error, 0);
  DeviceSequence last(*model, device_, stream_);
  const auto of_last = last.step(kIds, /*last_only=*/true, [&](test::BackendStep& step) {
    return std::make_unique<NarrowAttention>(device_, step, model->config(),
                                             static_cast<int64_t>(kIds.size()));
  });
  EXPECT_TRUE(std::ranges::equal(of_last, std::span(logits).last(of_last.size())));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, NarrowActivations,
                         testing::Values("llama3_gqa4_d16_bf16", "olmo2_mha_d16_bf16",
                                         "mixtral_gqa2_d16_bf16", "gptoss_gqa2_d16_bf16",
                                         "llama4_gqa2_d16_bf16", "gemma3_gqa2_d32_bf16"),
                         [](const auto& fixture) { return std::string(fixture.param); });

class DeferredWeights : public ReferenceDevice, public testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Model> load(bool deferred, bool dummy) {
    const auto config = load_model_config(fixture(GetParam()));
    EXPECT_TRUE(config.ok()) << config.error().message;
    auto model = Model::load(
        *config,
        {.dir = fixture(GetParam()), .dtype = DType::f32, .dummy_weights = dummy, .deferred = deferred},
        stream_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return *std::move(model);
  }
};

// Weights that are read when they are placed are those that are packed first, and the memory is what was
// said.
TEST_P(DeferredWeights, AreThoseOfTheHost) {
  ThreadPool readers(3);
  for (const bool dummy : {false, true}) {
    PackingOps ops(device_);
    const auto deferred = load(true, dummy), packed = load(false, dummy), plain = load(false, dummy);
    const int64_t weights = deferred->placed_bytes(ops);
    const int64_t activations =
        deferred->activation_bytes(ops, DeviceSequence::kMaxRows, DeviceSequence::kMaxRows);
    EXPECT_EQ(packed->placed_bytes(ops), weights);
    EXPECT_EQ(weights % 256, 0);
    std::vector<std::pair<int64_t, int64_t>> reports;
    const PlaceOptions options{&readers,
                               [&](int64_t read, int64_t total) { reports.push_back({read, total}); }};
    const size_t before = device_.used();
    Status status = deferred->place(ops, stream_, options);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_GE(static_cast<int64_t>(device_.used() - before), weights);
    EXPECT_EQ(deferred->reserve(DeviceSequence::kMaxRows, DeviceSequence::kMaxRows), activations);
    ASSERT_GE(reports.size(), 2u);
    EXPECT_TRUE(std::ranges::is_sorted(reports));
    EXPECT_EQ(reports.front().first, 0);
    EXPECT_EQ(reports.back().first, reports.back().second);
    EXPECT_GT(reports.back().second, 0);

    status = packed->place(ops, stream_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    packed->reserve(DeviceSequence::kMaxRows, DeviceSequence::kMaxRows);
    ASSERT_TRUE(plain->place(ops_, stream_).ok());
    plain->reserve(DeviceSequence::kMaxRows, DeviceSequence::kMaxRows);
    const auto expected = logits(*plain, kIds, kIds.size());
    EXPECT_EQ(logits(*packed, kIds, kIds.size()), expected);
    EXPECT_EQ(logits(*deferred, kIds, kIds.size()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DeferredWeights,
                         testing::Values("llama3_gqa4_d16_bf16", "llama_padded_gqa5_d16_bf16_sharded",
                                         "phi3_short_gqa2_d24_bf16", "qwen2_gqa2_d16_bf16",
                                         "mixtral_gqa2_d16_bf16", "qwen3moe_raw_gqa4_d16_fp32",
                                         "gptoss_gqa2_d16_bf16", "gptoss_mxfp4_gqa4_d16",
                                         "llama4_gqa2_d16_bf16"),
                         [](const auto& fixture) { return std::string(fixture.param); });

TEST_F(ReferenceDevice, DeferredWeightsNeedADeviceThatTakesSlices) {
  const auto config = load_model_config(fixture("llama3_gqa4_d16_bf16"));
  ASSERT_TRUE(config.ok());
  auto model =
      Model::load(*config, {.dir = fixture("llama3_gqa4_d16_bf16"), .dtype = {}, .deferred = true}, stream_);
  ASSERT_TRUE(model.ok());
  const Status status = (*model)->place(ops_, stream_);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("without `deferred`"), std::string::npos);
}

// Host code that accesses device memory must fault.
TEST_F(ReferenceDevice, HostAccessFaults) {
  const Buffer memory(device_, 64);
  const Tensor there = memory.tensor(ElementType::f32, {16});
  std::vector<float> host(16, 1.0f);
  ASSERT_TRUE(copy(host_tensor(std::span(host)), there, stream_).ok());
  ASSERT_TRUE(device_.synchronize(stream_).ok());
  EXPECT_DEATH((void)static_cast<volatile float*>(there.as<float>())[3], "");
  EXPECT_DEATH(static_cast<volatile float*>(there.as<float>())[3] = 2.0f, "");
  std::vector<float> back(16);
  ASSERT_TRUE(copy(there, host_tensor(std::span(back)), stream_).ok());
  ASSERT_TRUE(device_.synchronize(stream_).ok());
  EXPECT_EQ(back, host);

  // In the middle of a forward pass: attention that runs on the host.
  struct HostAttention : StepAttention {
    Status forward(int, const AttentionArgs& args, Stream&) override {
      *static_cast<float*>(args.out) = *static_cast<const float*>(args.q);
      return {};
    }
  };
  const auto model = placed("llama3_gqa4_d16_bf16", ops_);
  DeviceSequence sequence(*model, device_, stream_);
  const auto on_host = [](test::BackendStep&) { return std::make_unique<HostAttention>(); };
  EXPECT_DEATH(sequence.step(std::span(kIds), false, on_host), "");
  EXPECT_EQ(sequence.step(std::span(kIds)).size(), kIds.size() * 258);
}

// A quantised model is the same model with another weight format: int8 weights give the same bits as the fp32
// values that they decode to.
TEST_F(ReferenceDevice, QuantisedWeightsAreAFormat) {
  for (const char* name : {"llama3_gqa4_d16_bf16", "mixtral_gqa2_d16_bf16"}) {
    ReferenceOps int8(device_, Stored::int8), decoded(device_, Stored::int8_decoded);
    const auto quantised = logits(*placed(name, int8), kIds, 16);
    EXPECT_EQ(quantised, logits(*placed(name, decoded), kIds, 16));
    EXPECT_NE(quantised, logits(*placed(name, ops_), kIds, 16));
  }
}

TEST_F(ReferenceDevice, AFormatThatOperationsCantReadIsRefusedWithItsReasons) {
  struct NoInt8 : ReferenceOps {
    using ReferenceOps::ReferenceOps;
    std::vector<std::string> supports(const WeightFormat& format) const override {
      std::vector<std::string> reasons = ReferenceOps::supports(format);
      if (format.stored == ElementType::i8) reasons.push_back("int8 weights not supported");
      if (format.zero_points) reasons.push_back("zero points not supported");
      return reasons;
    }
  };
  NoInt8 ops(device_, Stored::int8);
  const auto model = load_model("llama3_gqa4_d16_bf16", stream_);
  const Status status = model->place(ops, stream_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "guarded can't run the model: int8 weights not supported; zero points not supported");
}

// Both tables of operations draw the same tokens for every rule. Invalid rows give kNoToken; rows without a
// slot write nothing.
TEST_F(ReferenceDevice, DrawsAreThoseOfTheCpu) {
  constexpr int64_t kRows = 200, kVocab = 67, kWidth = 70, kSlots = 256;
  std::vector<float> logits(kRows * kWidth), temperature, top_p, min_p;
  std::vector<int32_t> slot, top_k;
  std::vector<int64_t> seed, position;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 3);
  std::ranges::generate(logits, [&] { return normal(rng); });
  for (int r = 0; r < kRows; ++r) {
    slot.push_back(r % 10 == 9 ? -1 : kRows - r);
    temperature.push_back(std::array{0.0f, 1.0f, 0.4f, 1.7f}[static_cast<size_t>(r) % 4]);
    top_k.push_back(std::array{0, -1, 1, 5, 1000}[static_cast<size_t>(r) % 5]);
    top_p.push_back(std::array{1.0f, 0.9f, 0.3f}[static_cast<size_t>(r) % 3]);
    min_p.push_back(r % 7 == 0 ? 0.05f : 0.0f);
    seed.push_back(r / 3 - 20);
    position.push_back(r * int64_t{1} << 30);
    logits[static_cast<size_t>(r * kWidth + kVocab)] = NAN;  // padding id, never drawn
  }
  logits[13 * kWidth + 5] = NAN;
  logits[24 * kWidth] = INFINITY;
  std::fill_n(logits.begin() + 35 * kWidth, kVocab, -INFINITY);
  std::fill_n(logits.begin() + 40 * kWidth, kVocab, 1.0f);  // a tie of all ids
  const std::vector<int32_t> before(kSlots, -7);

  const auto draw = [&](Ops& ops) {
    std::vector<Buffer> buffers;
    const auto place = [&]<class T>(const std::vector<T>& values) {
      const Tensor host = host_tensor(std::span(values));
      const Tensor there =
          buffers.emplace_back(ops.device(), values.size() * sizeof(T)).tensor(host.dtype, {host.size(0)});
      EXPECT_TRUE(copy(host, there, stream_).ok());
      return there;
    };
    Tensor rows = place(logits);
    rows = Tensor::dense(rows.data, ops.device(), ElementType::f32, {kRows, kWidth});
    const SampleRows rules{place(slot),  place(temperature), place(top_p),   place(min_p),
                           place(top_k), place(seed),        place(position)};
    const Tensor tokens = place(before);
    OpQueue queue(ops, stream_);
    queue.sample(rows, kVocab, rules, tokens);
    std::vector<int32_t> ids(kSlots), from(kSlots, -1), out(kSlots, 99);
    for (int32_t i = 0; i < kSlots; i += 2)
      from[static_cast<size_t>(i)] = (i * 5) % kSlots;
    const Tensor taken = place(out);
    queue.take_tokens(tokens, place(from), taken);
    EXPECT_TRUE(queue.status().ok());
    EXPECT_TRUE(copy(tokens, host_tensor(std::span(ids)), stream_).ok());
    EXPECT_TRUE(copy(taken, host_tensor(std::span(out)), stream_).ok());
    EXPECT_TRUE(ops.device().synchronize(stream_).ok());
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(out[i], i % 2 ? 99 : ids[static_cast<size_t>(from[i])]) << i;
    return ids;
  };
  const auto cpu = draw(cpu_ops());
  EXPECT_EQ(draw(ops_), cpu);
  for (const size_t r : {13u, 24u, 35u})
    EXPECT_EQ(cpu[kRows - r], Ops::kNoToken) << r;
  EXPECT_EQ(cpu[kRows - 40], 0);  // greedy
  EXPECT_EQ(std::ranges::count(cpu, -7), kSlots - kRows + kRows / 10);
  EXPECT_GT(std::set<int32_t>(cpu.begin(), cpu.end()).size(), 30u);
}

TEST_F(ReferenceDevice, EncoderDecodersNeedPackedWeights) {
  const auto model = load_model("bart_d8_fp32", stream_);
  const Status status = model->place(ops_, stream_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_NE(status.error().message.find("can't run encoder-decoder models"), std::string::npos);
}

class EncoderOnReferenceDevice : public ReferenceDevice, public testing::WithParamInterface<const char*> {
 protected:
  /// Hidden states of two sequences.
  std::vector<float> encode(Model& model, bool on_device) {
    const std::vector<int32_t> offsets = {0, 11, 17}, lengths = {11, 6};
    std::vector<int32_t> rows(17), types;
    for (int32_t r = 0; r < 17; ++r) {
      rows[static_cast<size_t>(r)] = r;
      types.push_back(GetParam()[0] == 'b' ? r % 2 : 0);
    }
    AttentionSpec spec = attention_specs(model.config()).front();
    spec.page_size = 1;
    BatchMeta meta;
    meta.q_offsets = meta.kv_indptr = offsets;
    meta.kv_lens = lengths;
    meta.kv_indices = rows;
    const std::vector<AttentionSpec> specs(model.config().layers.size(), spec);
    test::BackendStep step(make_torch_native, specs, {4, 32, 32, 32}, meta, stream_);
    DeviceAttention there(device_, step);
    model.reserve(32, 1);
    std::vector<float> hidden(rows.size() * static_cast<size_t>(model.config().hidden_size), NAN);
    EncodeInput input;
    input.token_ids = kIds;
    input.token_types = types;
    input.offsets = offsets;
    input.attention = on_device ? static_cast<StepAttention*>(&there) : &step;
    input.hidden = hidden.data();
    const Status status = model.encode(input, stream_);
    EXPECT_TRUE(status.ok()) << status.error().message;
    return hidden;
  }
};

TEST_P(EncoderOnReferenceDevice, HasTheCpusHiddenStates) {
  const auto host = load_model(GetParam(), stream_), there = load_model(GetParam(), stream_);
  const auto expected = encode(*host, false);
  ASSERT_TRUE(there->place(ops_, stream_).ok());
  const auto got = encode(*there, true);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
  EXPECT_EQ(there->weight_bytes(), host->weight_bytes());

  PackingOps packing(device_);
  const auto config = load_model_config(fixture(GetParam()));
  ASSERT_TRUE(config.ok());
  auto deferred =
      Model::load(*config, {.dir = fixture(GetParam()), .dtype = DType::f32, .deferred = true}, stream_);
  ASSERT_TRUE(deferred.ok()) << deferred.error().message;
  const int64_t weights = (*deferred)->placed_bytes(packing),
                act = (*deferred)->activation_bytes(packing, 32, 1);
  ASSERT_TRUE((*deferred)->place(packing, stream_).ok());
  EXPECT_EQ((*deferred)->placed_bytes(packing), weights);
  EXPECT_EQ(encode(**deferred, true), got);
  EXPECT_EQ((*deferred)->reserve(32, 1), act);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderOnReferenceDevice,
                         testing::Values("bert_d8_fp32", "bert_tanh_d16_bf16", "roberta_d8_bf16",
                                         "xlm_roberta_d8_fp32"),
                         [](const auto& fixture) { return std::string(fixture.param); });

// Copies of the weights give the same bits as the model's own weights.
TEST_F(ReferenceDevice, PlacingOnTheCpuChangesNothing) {
  for (const char* name : {"llama_bias_gqa2_d16_fp32", "mixtral_gqa2_d16_bf16"}) {
    const auto own = load_model(name, stream_), copied = load_model(name, stream_);
    ASSERT_TRUE(copied->place(cpu_ops(), stream_).ok());
    test::Runner a(*own, 4, 1), b(*copied, 4, 1);
    EXPECT_EQ(b.step({{0, kIds}}), a.step({{0, kIds}}));
    EXPECT_EQ(copied->weight_bytes(), own->weight_bytes());
  }
}

}  // namespace
}  // namespace fovea
