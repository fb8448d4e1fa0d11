// Decoders on a GPU: their logits and tokens are transformers', the weights are read straight to the device,
// and the memory is what was said.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "attention/kv_view.h"
#include "base/float8.h"
#include "fovea/attention_backend.h"
#include "fovea/attention_spec.h"
#include "model/encoder_test_support.h"
#include "model/kv_groups.h"
#include "model/model.h"
#include "model/model_test_support.h"
#include "ops/cuda/cuda_ops.h"
#include "tensor/buffer.h"
#include "tensor/cuda_device.h"

namespace fovea {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-3;   // fp32 logits and log-probabilities, as in golden_test
constexpr double kDecidedGap = 2e-3;  // twice the tolerance: each of the top two may be off by it

/// The source folder: FOVEA_SOURCE_DIR of the environment where the compiled-in one is not here.
std::string source_dir() {
  if (std::filesystem::exists(FOVEA_SOURCE_DIR)) return FOVEA_SOURCE_DIR;
  const char* given = std::getenv("FOVEA_SOURCE_DIR");
  return given ? given : FOVEA_SOURCE_DIR;
}
std::string fixture(const std::string& name) {
  return source_dir() + "/tests/goldens/" + name;
}

/// A GPU, its operations and a stream.
struct Gpu {
  std::unique_ptr<Device> device;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
};

/// TRITON_ATTN planned for one step, with a separate plan for each attention.
class DeviceAttention final : public StepAttention {
 public:
  using MetaOf = std::function<const BatchMeta*(AttentionType)>;  ///< null = not part of the step

  DeviceAttention(const std::vector<AttentionSpec>& specs, const AttentionLimits& limits,
                  const BatchMeta& meta, Device& device, Stream& stream)
      : DeviceAttention(specs, limits, [&](AttentionType) { return &meta; }, meta.phase, device, stream) {}
  DeviceAttention(const std::vector<AttentionSpec>& specs, const AttentionLimits& limits,
                  const MetaOf& meta_of, Phase phase, Device& device, Stream& stream)
      : phase_(phase) {
    const BackendRegistry registry = builtin_backends();
    const BackendRegistry::Entry* entry = registry.find("TRITON_ATTN");
    EXPECT_TRUE(entry && entry->create);
    backend_ = entry->create();
    for (const AttentionSpec& spec : specs) {
      const BatchMeta* meta = meta_of(spec.type);
      if (!meta) {
        plans_.emplace_back();
        continue;
      }
      const auto bytes = backend_->workspace_bytes(spec, limits);
      EXPECT_TRUE(bytes.ok()) << bytes.error().message;
      Buffer& workspace = workspaces_.emplace_back(device, *bytes);
      auto plan = backend_->plan(spec, limits, *meta, {workspace.data(), workspace.size()}, stream);
      EXPECT_TRUE(plan.ok()) << plan.error().message;
      plans_.push_back(*std::move(plan));
    }
  }
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    const Plan& plan = *plans_[static_cast<size_t>(index)];
    return phase_ == Phase::prefill ? backend_->forward_extend(plan, args, stream)
                                    : backend_->forward_decode(plan, args, stream);
  }

 private:
  Phase phase_;
  std::unique_ptr<AttentionBackend> backend_;
  std::deque<Buffer> workspaces_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

/// One sequence.
class Sequence {
 public:
  static constexpr int kMaxRows = 48, kPageSize = 16, kPages = 40;

  Sequence(Model& model, Gpu& gpu) : model_(model), gpu_(gpu), type_(gpu.ops->activations()) {
    auto cache = KvCache::create(
        kv_groups(model.config(), resolve(KvCacheDType::auto_, type_), KvLayout::hnd, kPageSize), {kPages},
        *gpu.device);
    EXPECT_TRUE(cache.ok()) << cache.error().message;
    cache_ = std::make_unique<KvCache>(*std::move(cache));
    for (int page = 0; page < kPages; ++page)
      pages_.push_back(kPages - 1 - page);
  }

  /// Runs `ids` as the next chunk. Returns logits [rows, vocab], or only those of the last row.
  std::vector<float> step(std::span<const int32_t> ids, bool last_only = false) {
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
    BatchMeta meta;
    meta.phase = rows == 1 ? Phase::decode : Phase::prefill;
    meta.tokens = rows;
    meta.q_offsets = span_of(std::vector<int32_t>{0, rows});
    meta.kv_lens = span_of(std::vector<int32_t>{length_});
    meta.page_table = span_of(pages_);
    meta.page_table_stride = kPages;
    std::vector<AttentionSpec> specs = attention_specs(model_.config());
    for (AttentionSpec& spec : specs) {
      spec.dtype = type_;
      spec.kv_dtype = resolve(KvCacheDType::auto_, type_);
      set_layout(spec, KvLayout::hnd);
      spec.page_size = kPageSize;
      spec.use_mla = false;  // TRITON_ATTN reads records as keys and values of one head
    }
    DeviceAttention attention(specs, {1, kMaxRows, kPages * kPageSize, kPages * kPageSize}, meta,
                              *gpu_.device, *gpu_.stream);
    StepTensors tensors;
    tensors.token_ids = upload(std::vector<int32_t>(ids.begin(), ids.end()));
    tensors.positions = upload(positions);
    tensors.slots = upload(slots);
    tensors.logit_rows = upload(wanted);
    tensors.attention = &attention;
    tensors.kv = cache_.get();
    const int64_t vocab = model_.config().vocab_size, logit_rows = static_cast<int64_t>(wanted.size());
    std::vector<float> logits(static_cast<size_t>(logit_rows * vocab), NAN);
    const Buffer memory(*gpu_.device, logits.size() * sizeof(float));
    const Tensor there = memory.tensor(ElementType::f32, {logit_rows, vocab});
    EXPECT_TRUE(copy(host_tensor(logits.data(), logit_rows, vocab), there, *gpu_.stream).ok());
    Status status = model_.forward_tensors(tensors, there, *gpu_.stream);
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_TRUE(copy(there, host_tensor(logits.data(), logit_rows, vocab), *gpu_.stream).ok());
    status = gpu_.device->synchronize(*gpu_.stream);
    EXPECT_TRUE(status.ok()) << status.error().message;
    buffers_.clear();
    return logits;
  }

 private:
  template <class T>
  Tensor upload(const std::vector<T>& values) {
    const Tensor host = host_tensor(std::span(values));
    const Buffer& memory = buffers_.emplace_back(*gpu_.device, values.size() * sizeof(T));
    const Tensor there = memory.tensor(host.dtype, {host.size(0)});
    EXPECT_TRUE(copy(host, there, *gpu_.stream).ok());
    EXPECT_TRUE(gpu_.device->synchronize(*gpu_.stream).ok());
    return there;
  }
  std::span<const int32_t> span_of(const std::vector<int32_t>& values) {
    return {upload(values).as<const int32_t>(), values.size()};
  }

  Model& model_;
  Gpu& gpu_;
  DType type_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> pages_;
  std::deque<Buffer> buffers_;
  int length_ = 0;
};

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    auto device = make_cuda_device(0);
    if (!device.ok()) GTEST_SKIP() << "SKIPPED: no CUDA device (" << device.error().message << ")";
    gpu_.device = *std::move(device);
    auto stream = make_cuda_stream(0);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    gpu_.stream = *stream;
  }
  void make_ops(DType activations) {
    auto ops = make_cuda_ops(*gpu_.device, activations);
    ASSERT_TRUE(ops.ok()) << ops.error().message;
    gpu_.ops = *std::move(ops);
  }
  /// Null after a failure.
  std::unique_ptr<Model> load(const std::string& dir, DType dtype, bool dummy = false) {
    const auto config = load_model_config(dir);
    EXPECT_TRUE(config.ok()) << config.error().message;
    if (!config.ok()) return nullptr;
    ModelLoadOptions options;
    options.dir = dir;
    options.dtype = dtype;
    options.dummy_weights = dummy;
    options.deferred = true;
    auto model = Model::load(*config, options, host_stream_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return nullptr;
    PlaceOptions place;
    place.pool = &pool_;
    const Status placed = (*model)->place(*gpu_.ops, *gpu_.stream, place);
    EXPECT_TRUE(placed.ok()) << placed.error().message;
    if (!placed) return nullptr;
    return *std::move(model);
  }
  std::unique_ptr<Model> load_fixture(const std::string& name, DType dtype) {
    auto model = load(fixture(name), dtype);
    if (model) {
      const int64_t said = model->activation_bytes(*gpu_.ops, Sequence::kMaxRows, Sequence::kMaxRows);
      EXPECT_EQ(model->reserve(Sequence::kMaxRows, Sequence::kMaxRows), said);
    }
    return model;
  }

  Gpu gpu_;
  ThreadPool pool_;
  Stream host_stream_{pool_};
};

json golden_of(const std::string& name) {
  std::ifstream file(fixture(name) + "/golden.json");
  return json::parse(file);
}

double log_sum_exp_of(std::span<const float> logits) {
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (const float x : logits)
    sum += std::exp(x - most);
  return most + std::log(sum);
}

class Goldens : public OnGpu, public testing::WithParamInterface<const char*> {};

TEST_P(Goldens, Float32MatchesTransformers) {
  make_ops(DType::f32);
  const auto model = load_fixture(GetParam(), DType::f32);
  ASSERT_TRUE(model);
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  int compared = 0;
  const json golden = golden_of(GetParam());
  const int64_t tokens = golden.at("tokenizer_size");  // the other logits pad the vocabulary
  for (const json& prompt : golden.at("prompts")) {
    const std::vector<int32_t> ids = prompt.at("ids"), greedy = prompt.at("greedy");
    const std::vector<float> last_logits = prompt.at("last_logits"), logprobs = prompt.at("logprobs"),
                             gaps = prompt.at("gaps");
    if (ids.size() + greedy.size() > Sequence::kPages * Sequence::kPageSize) continue;
    SCOPED_TRACE("prompt of " + std::to_string(ids.size()) + " tokens");
    ++compared;
    constexpr size_t kChunk = 33;
    Sequence sequence(*model, gpu_);
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
      ASSERT_EQ(std::max_element(last.begin(), last.begin() + tokens) - last.begin(), greedy[i])
          << "answer " << i;
      last = sequence.step(std::span(greedy).subspan(i, 1), /*last_only=*/true);
    }
  }
  EXPECT_GT(compared, 5);
}

// In 16 bits the logits are those of fp32 up to rounding: their error is a few parts of a hundred, and a
// row alone has the bits that it has among others.
TEST_P(Goldens, SixteenBitsAreClose) {
  const auto config = load_model_config(fixture(GetParam()));
  ASSERT_TRUE(config.ok());
  const DType type = config->dtype == DType::f16 ? DType::f16 : DType::bf16;
  make_ops(type);
  const auto model = load_fixture(GetParam(), type);
  ASSERT_TRUE(model);
  double error = 0, size = 0;
  const json golden = golden_of(GetParam());
  for (const json& prompt : golden.at("prompts")) {
    const std::vector<int32_t> ids = prompt.at("ids");
    const std::vector<float> expected = prompt.at("last_logits");
    if (ids.size() > Sequence::kPages * Sequence::kPageSize) continue;
    Sequence sequence(*model, gpu_), last(*model, gpu_);
    std::vector<float> all, got;
    for (size_t first = 0; first < ids.size(); first += Sequence::kMaxRows) {
      const auto part =
          std::span(ids).subspan(first, std::min<size_t>(Sequence::kMaxRows, ids.size() - first));
      all = sequence.step(part);
      got = last.step(part, /*last_only=*/true);
    }
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_TRUE(std::ranges::equal(got, std::span(all).last(got.size())));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_FALSE(std::isnan(got[i])) << "logit " << i;
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
  }
  ASSERT_GT(size, 0);
  const double relative = std::sqrt(error / size);
  std::printf("%s in %s: error %.5f\n", GetParam(), std::string(to_string(type)).c_str(), relative);
  // Where two experts' logits are near each other, a rounding chooses the other one.
  EXPECT_LT(relative, type == DType::f16 ? 0.01 : model->config().moe.num_experts > 0 ? 0.15 : 0.06);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, Goldens,
    testing::Values("deepseekv3_ungrouped_mla3_fp32", "gemma2_gqa2_d16_bf16", "gemma3_gqa2_d32_bf16",
                    "gptoss_gqa2_d16_bf16", "gptoss_mxfp4_gqa4_d16", "granite_gqa2_d16_bf16",
                    "llama2_mha_d16_fp32", "llama32_gqa4_d64_fp16", "llama3_gqa4_d16_bf16",
                    "llama4_gqa2_d16_bf16", "llama_bias_gqa2_d16_fp32", "llama_linear_gqa3_d24_fp16",
                    "llama_padded_gqa5_d16_bf16_sharded", "mistral_full_gqa4_d32_bf16",
                    "mistral_window_gqa2_d16_bf16", "mixtral_gqa2_d16_bf16", "olmo2_mha_d16_bf16",
                    "phi3_long_mha_d16_bf16", "phi3_short_gqa2_d24_bf16", "qwen2_gqa2_d16_bf16",
                    "qwen2_window_gqa4_d16_fp32", "qwen3_bias_gqa4_d16_fp32_sharded", "qwen3_gqa2_d32_bf16",
                    "qwen3_gqa3_d64_bf16", "qwen3_gqa5_d80_bf16", "qwen3_gqa7_d128_bf16",
                    "qwen3_padded_gqa7_d16_fp16", "qwen3moe_gqa2_d16_bf16", "qwen3moe_raw_gqa4_d16_fp32"),
    [](const auto& name) { return std::string(name.param); });

/// Hidden states of two sequences.
std::vector<float> encode(Model& model, const EncodeInput& rows, StepAttention& attention, Stream& stream) {
  std::vector<float> hidden(rows.token_ids.size() * static_cast<size_t>(model.config().hidden_size), NAN);
  EncodeInput input = rows;
  input.attention = &attention;
  input.hidden = hidden.data();
  const Status status = model.encode(input, stream);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return hidden;
}

class Encoders : public OnGpu, public testing::WithParamInterface<const char*> {};

TEST_P(Encoders, HaveTheCpusHiddenStates) {
  const std::vector<int32_t> ids = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50};
  const std::vector<int32_t> offsets = {0, 11, 17}, lengths = {11, 6};
  std::vector<int32_t> row_numbers(ids.size());
  for (size_t r = 0; r < ids.size(); ++r)
    row_numbers[r] = static_cast<int32_t>(r);
  EncodeInput rows;
  rows.token_ids = ids;
  rows.offsets = offsets;
  const auto config = load_model_config(fixture(GetParam()));
  ASSERT_TRUE(config.ok());
  BatchMeta meta;
  meta.q_offsets = meta.kv_indptr = offsets;
  meta.kv_lens = lengths;
  meta.kv_indices = row_numbers;
  const AttentionLimits limits{4, 32, 32, 32};
  std::vector<AttentionSpec> specs(config->layers.size(), attention_specs(*config).front());
  for (AttentionSpec& spec : specs)
    spec.page_size = 1;
  auto host = Model::load(*config, {.dir = fixture(GetParam()), .dtype = DType::f32}, host_stream_);
  ASSERT_TRUE(host.ok()) << host.error().message;
  (*host)->reserve(32, 1);
  test::BackendStep on_host(make_torch_native, specs, limits, meta, host_stream_);
  const auto expected = encode(**host, rows, on_host, host_stream_);

  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(to_string(type));
    make_ops(type);
    const auto model = load(fixture(GetParam()), type);
    ASSERT_TRUE(model);
    EXPECT_EQ(model->reserve(32, 1), model->activation_bytes(*gpu_.ops, 32, 1));
    std::deque<Buffer> buffers;
    const auto there = [&](const std::vector<int32_t>& values) -> std::span<const int32_t> {
      const Buffer& memory = buffers.emplace_back(*gpu_.device, values.size() * sizeof(int32_t));
      EXPECT_TRUE(
          gpu_.device->copy_from_host(memory.data(), values.data(), memory.size(), *gpu_.stream).ok());
      EXPECT_TRUE(gpu_.device->synchronize(*gpu_.stream).ok());
      return {reinterpret_cast<const int32_t*>(memory.data()), values.size()};
    };
    BatchMeta device_meta;
    device_meta.tokens = static_cast<int>(ids.size());
    device_meta.q_offsets = device_meta.kv_indptr = there(offsets);
    device_meta.kv_lens = there(lengths);
    device_meta.kv_indices = there(row_numbers);
    for (AttentionSpec& spec : specs) {
      spec.dtype = type;
      spec.kv_dtype = resolve(KvCacheDType::auto_, type);
    }
    DeviceAttention attention(specs, limits, device_meta, *gpu_.device, *gpu_.stream);
    const auto got = encode(*model, rows, attention, *gpu_.stream);
    ASSERT_EQ(got.size(), expected.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_FALSE(std::isnan(got[i])) << i;
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), type == DType::f32 ? 1e-5 : type == DType::f16 ? 0.01 : 0.05);
    std::printf("%s in %s: error %.6f\n", GetParam(), std::string(to_string(type)).c_str(),
                std::sqrt(error / size));
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Encoders,
                         testing::Values("bert_d8_fp32", "bert_tanh_d16_bf16", "roberta_d8_bf16",
                                         "xlm_roberta_d8_fp32"),
                         [](const auto& name) { return std::string(name.param); });

class EncoderDecoders : public OnGpu, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kPage = 16, kPages = 4, kMaxRows = 64;
  static int64_t slot(int row, bool cross) {
    return int64_t{2 * (kPages - 1 - row / kPage) + cross} * kPage + row % kPage;
  }
  static std::vector<int32_t> pages(bool cross) {
    std::vector<int32_t> out;
    for (int p = 0; p < kPages; ++p)
      out.push_back(2 * (kPages - 1 - p) + cross);
    return out;
  }
  template <class T>
  Tensor upload(const std::vector<T>& values) {
    const Tensor host = host_tensor(std::span(values));
    const Tensor there =
        buffers_.emplace_back(*gpu_.device, values.size() * sizeof(T)).tensor(host.dtype, {host.size(0)});
    EXPECT_TRUE(copy(host, there, *gpu_.stream).ok());
    EXPECT_TRUE(gpu_.device->synchronize(*gpu_.stream).ok());
    return there;
  }
  std::span<const int32_t> span_of(const std::vector<int32_t>& values) {
    return {upload(values).as<const int32_t>(), values.size()};
  }

  std::deque<Buffer> buffers_;
};

TEST_P(EncoderDecoders, HaveTheCpusLogits) {
  const auto config = load_model_config(fixture(GetParam()));
  ASSERT_TRUE(config.ok());
  test::Request request;
  constexpr int kEncoderRows = 9;
  const int mel_bins = config->encoder->mel_bins;
  for (int i = 0; i < (mel_bins > 0 ? 2 * kEncoderRows * mel_bins : 0); ++i)
    request.features.push_back(static_cast<float>(std::sin(i * 0.37) * 2));
  for (int i = 0; mel_bins == 0 && i < kEncoderRows; ++i)
    request.text.push_back((i * 37 + 5) % 200);
  request.tokens = {3, 14, 15, 92, 65, 35, 89};
  const auto count = static_cast<int32_t>(request.tokens.size());
  auto host = Model::load(*config, {.dir = fixture(GetParam()), .dtype = DType::f32}, host_stream_);
  ASSERT_TRUE(host.ok()) << host.error().message;
  (*host)->reserve(kMaxRows, kMaxRows);
  const std::vector<test::Request> requests = {request};
  test::EncoderDecoderRunner runner(**host, requests, false, 4, 1);
  runner.encode();
  const auto expected = runner.step({count});

  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(to_string(type));
    make_ops(type);
    const auto model = load(fixture(GetParam()), type);
    ASSERT_TRUE(model);
    EXPECT_EQ(model->reserve(kMaxRows, kMaxRows), model->activation_bytes(*gpu_.ops, kMaxRows, kMaxRows));
    const KvCacheDType kv_dtype = resolve(KvCacheDType::auto_, type);
    auto cache =
        KvCache::create(kv_groups(*config, kv_dtype, KvLayout::hnd, kPage), {2 * kPages}, *gpu_.device);
    ASSERT_TRUE(cache.ok());
    std::vector<AttentionSpec> specs = attention_specs(*config);
    for (AttentionSpec& spec : specs) {
      spec.dtype = type;
      spec.kv_dtype = kv_dtype;
      set_layout(spec, KvLayout::hnd);
      spec.page_size = spec.type == AttentionType::encoder ? 1 : kPage;
    }
    const AttentionLimits limits{4, kMaxRows, kPages * kPage, kPages * kPage};
    std::vector<int32_t> rows, positions;
    std::vector<int64_t> cross_slots, slots;
    for (int32_t r = 0; r < kEncoderRows; ++r) {
      rows.push_back(r);
      cross_slots.push_back(slot(r, true));
    }
    for (int32_t r = 0; r < count; ++r) {
      positions.push_back(r);
      slots.push_back(slot(r, false));
    }
    BatchMeta self;
    self.tokens = kEncoderRows;
    self.q_offsets = self.kv_indptr = span_of({0, kEncoderRows});
    self.kv_lens = span_of({kEncoderRows});
    self.kv_indices = span_of(rows);
    DeviceAttention encoder(
        specs, limits, [&](AttentionType t) { return t == AttentionType::encoder ? &self : nullptr; },
        Phase::prefill, *gpu_.device, *gpu_.stream);
    const std::vector<int32_t> offsets = {0, kEncoderRows};
    EncodeInput input;
    input.token_ids = request.text;
    input.features = request.features;
    input.offsets = offsets;
    input.attention = &encoder;
    input.cross_slots = cross_slots;
    input.kv = &*cache;
    Status status = model->encode(input, *gpu_.stream);
    ASSERT_TRUE(status.ok()) << status.error().message;

    BatchMeta own, cross;
    own.tokens = cross.tokens = count;
    own.q_offsets = cross.q_offsets = span_of({0, count});
    own.kv_lens = span_of({count});
    cross.kv_lens = span_of({kEncoderRows});
    own.page_table = span_of(pages(false));
    cross.page_table = span_of(pages(true));
    own.page_table_stride = cross.page_table_stride = kPages;
    DeviceAttention decoder(
        specs, limits,
        [&](AttentionType t) -> const BatchMeta* {
          return t == AttentionType::decoder ? &own : t == AttentionType::encoder_decoder ? &cross : nullptr;
        },
        Phase::prefill, *gpu_.device, *gpu_.stream);
    StepTensors step;
    step.token_ids = upload(request.tokens);
    step.positions = upload(positions);
    step.slots = upload(slots);
    step.logit_rows = upload(positions);
    step.attention = &decoder;
    step.kv = &*cache;
    std::vector<float> got(expected.size(), NAN);
    const Buffer memory(*gpu_.device, got.size() * sizeof(float));
    const Tensor there = memory.tensor(ElementType::f32, {count, config->vocab_size});
    status = model->forward_tensors(step, there, *gpu_.stream);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_TRUE(copy(there, host_tensor(got.data(), count, config->vocab_size), *gpu_.stream).ok());
    ASSERT_TRUE(gpu_.device->synchronize(*gpu_.stream).ok());
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_FALSE(std::isnan(got[i])) << i;
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), type == DType::f32 ? 1e-5 : type == DType::f16 ? 0.01 : 0.06);
    std::printf("%s in %s: error %.6f\n", GetParam(), std::string(to_string(type)).c_str(),
                std::sqrt(error / size));
    buffers_.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoders,
                         testing::Values("bart_d8_fp32", "bart_scaled_d16_bf16", "whisper_d8_fp32",
                                         "whisper_d16_bf16"),
                         [](const auto& name) { return std::string(name.param); });

/// Two checkpoints of one model: linear layers in e4m3 with scales that are powers of two, for each output or
/// for blocks of 128 x 128, and the values of these in bfloat16, which are exact.
void write_fp8(const test::TempDir& coded, const test::TempDir& widened, const ModelConfig& c, bool blocks) {
  test::Weights weights = test::random_weights(c, DType::bf16, 5);
  test::SafetensorsWriter writer;
  for (auto& [name, t] : weights) {
    if (!name.ends_with("_proj.weight")) {
      writer.add(name, t.shape, t.values, DType::bf16);
      continue;
    }
    const int64_t n = t.shape[0], k = t.shape[1], across = (k + 127) / 128;
    std::vector<float> scales(static_cast<size_t>(blocks ? (n + 127) / 128 * across : n));
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = std::ldexp(1.0f, -7 - static_cast<int>(i % 3));
    std::string codes;
    for (int64_t r = 0; r < n; ++r)
      for (int64_t i = 0; i < k; ++i) {
        const float scale = scales[static_cast<size_t>(blocks ? r / 128 * across + i / 128 : r)];
        float& value = t.values[static_cast<size_t>(r * k + i)];
        const uint8_t code = float_to_e4m3(value / scale);
        value = e4m3_to_float(code) * scale;
        codes += static_cast<char>(code);
      }
    writer.add(name, "F8_E4M3", t.shape, codes);
    if (blocks)
      writer.add(name + "_scale_inv", {(n + 127) / 128, across}, scales, DType::f32);
    else
      writer.add(name + "_scale", {n, 1}, scales, DType::f32);
  }
  coded.write("model.safetensors", writer.bytes());
  test::write_weights(widened, weights, DType::bf16);
}

class EightBitFloats : public OnGpu, public testing::WithParamInterface<bool> {};

TEST_P(EightBitFloats, AreTheirValues) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", 200},
                 {"hidden_size", 320},
                 {"intermediate_size", 416},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 64},
                 {"max_position_embeddings", 512},
                 {"torch_dtype", "bfloat16"}};
  const test::TempDir coded, widened;
  widened.write("config.json", config.dump());
  config["quantization_config"] = {{"quant_method", "fp8"}, {"fmt", "e4m3"}};
  if (GetParam()) config["quantization_config"]["weight_block_size"] = {128, 128};
  coded.write("config.json", config.dump());
  write_fp8(coded, widened, *load_model_config(widened.path()), GetParam());
  for (const DType type : {DType::bf16, DType::f32}) {
    make_ops(type);
    const auto eight = load(coded.path(), type), wide = load(widened.path(), type);
    ASSERT_TRUE(eight && wide);
    eight->reserve(Sequence::kMaxRows, Sequence::kMaxRows);
    wide->reserve(Sequence::kMaxRows, Sequence::kMaxRows);
    if (type == DType::bf16) {  // the linear layers take half of the memory
      EXPECT_LT(eight->placed_bytes(*gpu_.ops), wide->placed_bytes(*gpu_.ops) * 7 / 10);
    }
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i)
      ids.push_back(i * 37 % 200);
    Sequence a(*eight, gpu_), b(*wide, gpu_);
    std::vector<float> x = a.step(ids), y = b.step(ids);
    for (const int32_t next : {7, 150}) {
      for (auto* part : {&x, &y}) {
        const auto more = (part == &x ? a : b).step(std::vector<int32_t>{next});
        part->insert(part->end(), more.begin(), more.end());
      }
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i)
      error += std::pow(x[i] - y[i], 2), size += std::pow(y[i], 2);
    // Scales that are powers of two change no bit of a chain; sums of blocks are rounded in other places.
    if (GetParam() && type == DType::bf16)
      EXPECT_LT(std::sqrt(error / size), 0.01);
    else
      EXPECT_EQ(error, 0);
    EXPECT_GT(size, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, EightBitFloats, testing::Bool(),
                         [](const auto& blocks) { return blocks.param ? "OfBlocks" : "OfOutputs"; });

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A checkpoint of zeros for a config of Llama: a file without blocks on disk, which reads as any other once
/// it is in the page cache.
void write_zeros(const std::string& dir, const json& config) {
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/config.json") << config.dump();
  json header;
  uint64_t end = 0;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    uint64_t bytes = 2;
    for (const int64_t size : shape)
      bytes *= static_cast<uint64_t>(size);
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  const int64_t hidden = config.at("hidden_size"), mlp = config.at("intermediate_size"),
                heads = config.at("num_attention_heads"), kv_heads = config.at("num_key_value_heads"),
                vocab = config.at("vocab_size"), head_dim = hidden / heads;
  add("model.embed_tokens.weight", {vocab, hidden});
  for (int i = 0; i < config.at("num_hidden_layers"); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "self_attn.q_proj.weight", {hidden, hidden});
    add(layer + "self_attn.k_proj.weight", {kv_heads * head_dim, hidden});
    add(layer + "self_attn.v_proj.weight", {kv_heads * head_dim, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, hidden});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add(layer + "mlp.gate_proj.weight", {mlp, hidden});
    add(layer + "mlp.up_proj.weight", {mlp, hidden});
    add(layer + "mlp.down_proj.weight", {hidden, mlp});
  }
  add("model.norm.weight", {hidden});
  add("lm_head.weight", {vocab, hidden});
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(dir + "/model.safetensors", std::ios::binary);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  file.close();
  std::filesystem::resize_file(dir + "/model.safetensors", 8 + length + end);
}

// With FOVEA_LOAD_TEST=FOLDER (16 GB of page cache) the weights of an 8B model, by a file and by random
// numbers: time, memory bill, and peak host memory.
TEST_F(OnGpu, LoadsAnEightBillionModel) {
  const char* folder = std::getenv("FOVEA_LOAD_TEST");
  if (!folder) GTEST_SKIP() << "SKIPPED: set FOVEA_LOAD_TEST to a folder for 16 GB";
  make_ops(DType::bf16);
  std::ifstream config(source_dir() + "/tests/configs/llama-3-8b/config.json");
  write_zeros(folder, json::parse(config));
  for (int pass = 0; pass < 3; ++pass) {  // the first fills the page cache; the last is random numbers
    const auto before = cuda_device_memory(0);
    ASSERT_TRUE(before.ok());
    const auto start = std::chrono::steady_clock::now();
    const auto model = load(folder, DType::bf16, /*dummy=*/pass == 2);
    ASSERT_TRUE(model);
    const double seconds = seconds_since(start);
    const int64_t taken = before->free - cuda_device_memory(0)->free, said = model->placed_bytes(*gpu_.ops);
    std::printf("%s: %.2f s, %.1f GB/s, %lld MiB said, %lld MiB taken\n",
                pass == 0   ? "cold file"
                : pass == 1 ? "cached file"
                            : "random",
                seconds, static_cast<double>(said) / 1e9 / seconds, static_cast<long long>(said >> 20),
                static_cast<long long>(taken >> 20));
    EXPECT_LT(std::abs(taken - said), int64_t{64} << 20);
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM") || line.starts_with("VmRSS") || line.starts_with("RssAnon"))
        std::printf("  %s\n", line.c_str());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fovea
