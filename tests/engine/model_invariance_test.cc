// A sequence's logits are the same, bit for bit, in all conditions: repeated runs, batch composition, page
// size, prefill chunks, decode steps, threads, prefix-cache hits and preemption. On whole models with random
// weights.
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <tuple>

#include "base/thread_pool.h"
#include "engine/model_runner.h"
#include "model/kv_groups.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using Logits = std::vector<std::vector<float>>;  // by position

struct Setting {
  int page_size = 16;
  int threads = 1;
  uint32_t pages_seed = 0;  // the order in which pages are given out
};

/// One model, its cache, and steps assembled by the test.
class Stepper {
 public:
  Stepper(const std::string& model, const std::string& backend, const Setting& setting)
      : pool_(setting.threads), stream_(pool_), page_size_(setting.page_size) {
    const std::string dir = test::fixture_dir(model);
    const ModelConfig config = *load_model_config(dir);
    ModelLoadOptions load;
    load.dir = dir;
    model_ = *Model::load(config, load, stream_);

    AttentionConfig attention;
    attention.backend = backend;
    attention.page_size = page_size_;
    constexpr KvCacheDType kKvDType = KvCacheDType::bfloat16;  // the fixtures' dtype
    std::vector<AttentionSpec> specs = attention_specs(config);
    for (AttentionSpec& spec : specs)
      spec.kv_dtype = kKvDType;
    auto selection = select(attention, specs, DeviceInfo{}, builtin_backends());
    if (!selection) throw std::runtime_error(selection.error().message);

    ModelRunner::Options options;
    options.limits = {kMaxSeqs, kMaxTokens, int64_t{kMaxSeqs} * kMaxLength, kMaxLength};
    options.kv_dtype = kKvDType;
    options.max_logit_rows = kMaxTokens;
    runner_ = *ModelRunner::create(*model_, *selection, builtin_backends(), options);

    const int64_t pages = kMaxSeqs * ((kMaxLength + page_size_ - 1) / page_size_);
    kv_ = std::make_unique<KvCache>(
        *KvCache::create(kv_groups(config, kKvDType, KvLayout::hnd, page_size_), {pages}));
    runner_->set_kv_cache(*kv_);

    free_.resize(static_cast<size_t>(pages));
    std::iota(free_.begin(), free_.end(), 0);
    std::mt19937 rng(setting.pages_seed);
    std::shuffle(free_.begin(), free_.end(), rng);
  }

  size_t add(const std::vector<int32_t>& tokens) {
    Sequence s;
    s.id = sequences_.size();
    s.tokens = tokens;
    s.prompt_len = s.num_tokens();
    for (int i = 0; i < s.num_tokens(); i += page_size_) {
      s.pages.push_back(free_.back());
      free_.pop_back();
    }
    sequences_.push_back(std::move(s));
    logits_.emplace_back();
    return sequences_.size() - 1;
  }

  int left(size_t sequence) const { return sequences_[sequence].remaining(); }

  /// Computes `count` more tokens of each sequence in one step; decodes first.
  struct Part {
    size_t sequence;
    int count;
    bool decode = false;
  };
  void step(std::vector<Part> parts) {
    std::stable_partition(parts.begin(), parts.end(), [](const Part& p) { return p.decode; });
    std::vector<ScheduledChunk> chunks;
    for (const Part& part : parts) {
      Sequence& s = sequences_[part.sequence];
      ScheduledChunk chunk;
      chunk.sequence = &s;
      chunk.first = chunk.logits_first = s.computed;
      chunk.count = part.count;
      chunk.decode = part.decode;
      chunks.push_back(chunk);
    }
    batch_.build(chunks, page_size_);
    const Status status = runner_->run(batch_, stream_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    int row = 0;
    for (size_t i = 0; i < parts.size(); ++i)
      for (int k = 0; k < parts[i].count; ++k, ++row, ++sequences_[parts[i].sequence].computed) {
        const auto logits = runner_->logits(row);
        logits_[parts[i].sequence].emplace_back(logits.begin(), logits.end());
      }
  }

  /// Computes wrong tokens in place of the next ones, and forgets them.
  void reject(const Part& part) {
    Sequence& s = sequences_[part.sequence];
    const std::vector<int32_t> tokens = s.tokens;
    for (size_t i = static_cast<size_t>(s.computed); i < tokens.size(); ++i)
      s.tokens[i] = (tokens[i] + 1) % 250;
    step({part});
    s.tokens = tokens;
    s.computed -= part.count;
    logits_[part.sequence].resize(static_cast<size_t>(s.computed));
  }

  const Logits& logits(size_t sequence) const { return logits_[sequence]; }

  static constexpr int kMaxSeqs = 6, kMaxTokens = 256, kMaxLength = 192;

 private:
  ThreadPool pool_;
  Stream stream_;
  int page_size_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::vector<int32_t> free_;
  std::deque<Sequence> sequences_;  // addresses stay valid
  std::vector<Logits> logits_;
  BatchBuilder batch_;
};

void expect_same_bits(const Logits& got, const Logits& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t position = 0; position < got.size(); ++position)
    ASSERT_EQ(std::memcmp(got[position].data(), want[position].data(), want[position].size() * sizeof(float)),
              0)
        << "position " << position;
}

class ModelInvariance : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  static constexpr int kLength = 150;

  Stepper stepper(const Setting& setting) const {
    return Stepper(std::get<0>(GetParam()), std::get<1>(GetParam()), setting);
  }
  std::string model() const { return std::get<0>(GetParam()); }
  std::string backend() const { return std::get<1>(GetParam()); }
  const std::vector<int32_t> tokens_ = test::prompt_of(kLength, 99);

  /// The sequence alone, in one step, on one thread, with pages of 16.
  Logits reference() const {
    Stepper s = stepper({});
    s.step({{s.add(tokens_), kLength}});
    return s.logits(0);
  }
};

TEST_P(ModelInvariance, RunsRepeat) {
  const Logits want = reference();
  expect_same_bits(reference(), want);
  // The logits do depend on their past: otherwise no comparison here could fail.
  Stepper s = stepper({});
  auto changed = tokens_;
  changed[0] ^= 1;
  s.step({{s.add(changed), kLength}});
  EXPECT_NE(s.logits(0).back(), want.back());
}

TEST_P(ModelInvariance, PageSize) {
  const Logits want = reference();
  for (int page_size : {1, 3, 64}) {
    SCOPED_TRACE(page_size);
    Stepper s = stepper({page_size, 1, 7});
    s.step({{s.add(tokens_), kLength}});
    expect_same_bits(s.logits(0), want);
  }
}

TEST_P(ModelInvariance, Chunks) {
  const Logits want = reference();
  for (int chunk : {1, 7, 64}) {
    SCOPED_TRACE(chunk);
    Stepper s = stepper({});
    const size_t id = s.add(tokens_);
    while (s.left(id) > 0)
      s.step({{id, std::min(chunk, s.left(id))}});
    expect_same_bits(s.logits(id), want);
  }
}

TEST_P(ModelInvariance, DecodeStepsEqualThePrefill) {
  const Logits want = reference();
  Stepper s = stepper({});
  const size_t id = s.add(tokens_);
  s.step({{id, 20}});
  while (s.left(id) > 0)
    s.step({{id, 1, true}});
  expect_same_bits(s.logits(id), want);
}

/// What a step that verifies drafts computes: 1 to 16 rows of a sequence in the decode phase. Wrong drafts
/// are overwritten.
TEST_P(ModelInvariance, RowsOfDraftsEqualSingleDecodes) {
  const Logits want = reference();
  for (int least = 1; least <= 16; least += 5) {
    SCOPED_TRACE(least);
    Stepper s = stepper({4, 2});
    const size_t id = s.add(tokens_), other = s.add(tokens_);
    s.step({{id, 20}, {other, 9}});
    for (int rows = least; s.left(id) > 0; rows = rows % 16 + 1) {
      if (rows % 3 == 0) s.reject({id, std::min(rows, s.left(id)), true});
      s.step({{id, std::min(rows, s.left(id)), true}, {other, 1, true}});
    }
    expect_same_bits(s.logits(id), want);
  }
}

TEST_P(ModelInvariance, Threads) {
  const Logits want = reference();
  for (int threads : {2, 3, 4}) {
    SCOPED_TRACE(threads);
    Stepper s = stepper({16, threads});
    const size_t id = s.add(tokens_);
    s.step({{id, 100}});
    while (s.left(id) > 0)
      s.step({{id, 1, true}});
    expect_same_bits(s.logits(id), want);
  }
}

TEST_P(ModelInvariance, EverythingAtOnce) {
  const Logits want = reference();
  for (uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    Stepper s = stepper({std::array{1, 3, 5, 16, 64}[rng() % 5], static_cast<int>(rng() % 4) + 1, seed});
    std::vector<size_t> ids;
    for (uint32_t i = 0; i + 1 < Stepper::kMaxSeqs; ++i)
      ids.push_back(s.add(test::prompt_of(static_cast<int>(rng() % Stepper::kMaxLength) + 1, seed * 10 + i)));
    const size_t id = s.add(tokens_);
    ids.push_back(id);
    while (s.left(id) > 0) {
      std::vector<Stepper::Part> parts;
      int room = Stepper::kMaxTokens;
      for (size_t i : ids) {
        if (s.left(i) == 0 || rng() % 4 == 0) continue;
        const bool decode = rng() % 2;
        const int count = decode ? 1 : std::min({s.left(i), room, static_cast<int>(rng() % 60) + 1});
        if (room < 1 || count < 1) continue;
        room -= count;
        parts.push_back({i, count, decode});
      }
      std::shuffle(parts.begin(), parts.end(), rng);
      if (!parts.empty()) s.step(parts);
    }
    expect_same_bits(s.logits(id), want);
  }
}

/// The whole engine: last-row logits and tokens of a prompt, alone and with an empty cache.
TEST_P(ModelInvariance, PrefixHitsAndPreemption) {
  GenerateRequest request = test::greedy(tokens_, 30);
  request.last_logits = true;
  EngineConfig config = test::fixture_config(model(), backend());
  const auto cold = test::run_one(*test::make_engine(config), request);
  ASSERT_EQ(cold.last.last_logits.size(), 258u);

  auto engine = test::make_engine(config);
  for (int shared : {0, 3, 50, kLength - 1, kLength}) {
    std::vector<int32_t> prefix(tokens_.begin(), tokens_.begin() + shared);
    prefix.push_back(7);
    test::run_one(*engine, test::greedy(prefix, 5));
    const auto hit = test::run_one(*engine, request);
    if (shared >= 50) {
      EXPECT_GT(hit.last.cached_tokens, 0);
    }
    EXPECT_EQ(hit.last.last_logits, cold.last.last_logits);
    EXPECT_EQ(hit.ids, cold.ids);
  }

  config.max_seq_len = 192;
  config.num_pages = 60;  // of 4 tokens: little more than one such request
  config.max_batched_tokens = 33;
  engine = test::make_engine(config);
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 4; ++i)
    requests.push_back(test::greedy(test::prompt_of(40, i), 60));
  requests.push_back(request);
  const auto tight = test::run_all(*engine, requests);
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_EQ(tight.back().last.last_logits, cold.last.last_logits);
  EXPECT_EQ(tight.back().ids, cold.ids);
}

/// Latent attention's prefill without absorption: prompts in more than one block of expanded keys. Generated
/// tokens are decodes, so that all bits of an answer follow from the rules of provenance.
TEST(ExpandedPrefill, PrefixHitsChunksAndPreemption) {
  EngineConfig config = test::fixture_config("deepseekv2_mla4_bf16", "CPU_MLA");
  config.attention.mla_prefill_backend = "CPU_ATTN";
  const std::vector<int32_t> tokens = test::prompt_of(700, 5);
  GenerateRequest request = test::greedy(tokens, 30);
  request.last_logits = true;
  const auto cold = test::run_one(*test::make_engine(config), request);
  ASSERT_FALSE(cold.last.last_logits.empty());
  config.max_batched_tokens = 90;
  config.threads = 3;
  auto engine = test::make_engine(config);
  for (const int shared : {0, 3, 256, 600, 700}) {
    std::vector<int32_t> prefix(tokens.begin(), tokens.begin() + shared);
    prefix.push_back(7);
    test::run_one(*engine, test::greedy(prefix, 5));
    const auto hit = test::run_one(*engine, request);
    EXPECT_EQ(hit.last.cached_tokens > 0, shared > 0) << shared;
    EXPECT_EQ(hit.last.last_logits, cold.last.last_logits) << shared;
    EXPECT_EQ(hit.ids, cold.ids);
  }
  config.num_pages = 260;  // of 4 tokens: little more than one such request
  engine = test::make_engine(config);
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 4; ++i)
    requests.push_back(test::greedy(test::prompt_of(40, i), 60));
  requests.push_back(request);
  const auto tight = test::run_all(*engine, requests);
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_EQ(tight.back().last.last_logits, cold.last.last_logits);
  EXPECT_EQ(tight.back().ids, cold.ids);
}

/// Records of every type are read back as absorbed attention reads them. Later layers may round a record to
/// the neighbouring code.
TEST(ExpandedPrefill, ReadsEveryTypeOfCache) {
  for (const KvCacheDType dtype : {KvCacheDType::float32, KvCacheDType::float16, KvCacheDType::fp8_e4m3,
                                   KvCacheDType::fp8_e5m2, KvCacheDType::int8_per_token_head}) {
    SCOPED_TRACE(to_string(dtype));
    EngineConfig config = test::fixture_config("deepseekv2_mla4_bf16", "CPU_MLA");
    config.kv_cache_dtype = dtype;
    GenerateRequest request = test::greedy(test::prompt_of(70, 5), 1);
    request.last_logits = true;
    const auto absorbed = test::run_one(*test::make_engine(config), request);
    config.attention.mla_prefill_backend = "CPU_ATTN";
    const auto expanded = test::run_one(*test::make_engine(config), request);
    ASSERT_FALSE(absorbed.last.last_logits.empty());
    ASSERT_EQ(expanded.last.last_logits.size(), absorbed.last.last_logits.size());
    EXPECT_NE(expanded.last.last_logits, absorbed.last.last_logits);
    for (size_t i = 0; i < absorbed.last.last_logits.size(); ++i)
      ASSERT_NEAR(expanded.last.last_logits[i], absorbed.last.last_logits[i], 1e-2) << i;
  }
}

std::string name_of(const testing::TestParamInfo<ModelInvariance::ParamType>& p) {
  const std::string model = std::get<0>(p.param);
  return model.substr(0, model.find('_')) + "_" + std::get<1>(p.param);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelInvariance,
                         testing::Combine(testing::Values(test::kLlama, test::kQwen),
                                          testing::Values("TORCH_NATIVE", "CPU_ATTN")),
                         name_of);

// Mixed window and full layers, soft caps, two rotations, sinks, chunks, layers without positions, experts.
INSTANTIATE_TEST_SUITE_P(Families, ModelInvariance,
                         testing::Combine(testing::Values("gemma2_gqa2_d16_bf16", "gemma3_gqa2_d32_bf16",
                                                          "gptoss_gqa2_d16_bf16", "llama4_gqa2_d16_bf16",
                                                          "qwen3moe_gqa2_d16_bf16"),
                                          testing::Values("CPU_ATTN")),
                         name_of);

// Sparse attention over fewer keys than the sequences have.
INSTANTIATE_TEST_SUITE_P(Sparse, ModelInvariance,
                         testing::Combine(testing::Values("deepseekv32_topk16_mla4_bf16",
                                                          "glmdsa_topk16_mla4_bf16"),
                                          testing::Values("CPU_MLA_SPARSE")),
                         name_of);

// Latent attention, experts in groups.
INSTANTIATE_TEST_SUITE_P(Latent, ModelInvariance,
                         testing::Combine(testing::Values("deepseekv3_mla4_bf16", "deepseekv2_mla4_bf16"),
                                          testing::Values("CPU_MLA")),
                         name_of);

}  // namespace
}  // namespace fovea
