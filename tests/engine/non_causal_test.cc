// Decoder layers without the causal mask, end to end: against a dense computation in fp64 with masks written
// independently, and the same bits whatever else is in the batch.
#include <cmath>
#include <map>
#include <numeric>

#include "base/thread_pool.h"
#include "engine/sequence.h"
#include "fovea/embed.h"
#include "gmock/gmock.h"
#include "kv/kv_cache.h"
#include "model/kv_groups.h"
#include "model/model.h"
#include "tests/engine/counting_backend.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::greedy;
using test::prompt_of;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Attention of one sequence whose pages are 0, 1, ...: every row against every key of the cache, in fp64.
/// The row at position p sees key j where the layer's window or chunk allows it, on either side.
class Dense final : public StepAttention {
 public:
  Dense(const ModelConfig& config) : specs_(attention_specs(config)) {}

  void begin(int rows, int keys) { rows_ = rows, keys_ = keys; }

  Status forward(int index, const AttentionArgs& args, Stream&) override {
    const AttentionSpec& spec = specs_[static_cast<size_t>(index)];
    std::vector<double> scores(static_cast<size_t>(keys_));
    for (int row = 0; row < rows_; ++row)
      for (int head = 0; head < spec.num_heads; ++head) {
        const int p = keys_ - rows_ + row, kv_head = head / (spec.num_heads / spec.num_kv_heads);
        const float* q = static_cast<const float*>(args.q) + row * args.q_row_stride + head * spec.head_dim;
        double most = args.sinks != nullptr ? double{args.sinks[head]} : -INFINITY;
        for (int j = 0; j < keys_; ++j) {
          const bool near = spec.mask.window_left < 0 || std::abs(p - j) <= spec.mask.window_left;
          const bool same_chunk = spec.mask.chunk == 0 || p / spec.mask.chunk == j / spec.mask.chunk;
          double s = -INFINITY;
          if (near && same_chunk) {
            s = 0;
            for (int d = 0; d < spec.head_dim; ++d)
              s += double{q[d]} * double{key(args.kv, j, kv_head)[d]};
            s *= double{spec.scale};
            if (spec.softcap > 0) s = double{spec.softcap} * std::tanh(s / double{spec.softcap});
          }
          scores[static_cast<size_t>(j)] = s;
          most = std::max(most, s);
        }
        double sum = args.sinks != nullptr ? std::exp(double{args.sinks[head]} - most) : 0;
        std::vector<double> out(static_cast<size_t>(spec.v_head_dim));
        for (int j = 0; j < keys_; ++j) {
          const double weight = std::exp(scores[static_cast<size_t>(j)] - most);
          sum += weight;
          for (int d = 0; d < spec.v_head_dim; ++d)
            out[static_cast<size_t>(d)] += weight * double{value(args.kv, j, kv_head)[d]};
        }
        float* o = static_cast<float*>(args.out) + row * args.out_row_stride + head * spec.v_head_dim;
        for (int d = 0; d < spec.v_head_dim; ++d)
          o[d] = static_cast<float>(out[static_cast<size_t>(d)] / sum);
      }
    return {};
  }

 private:
  static const float* key(const KvView& kv, int j, int head) {
    return static_cast<const float*>(kv.k) + j / kv.page_size * kv.k_page_stride + head * kv.k_head_stride +
           j % kv.page_size * kv.k_slot_stride;
  }
  static const float* value(const KvView& kv, int j, int head) {
    return static_cast<const float*>(kv.v) + j / kv.page_size * kv.v_page_stride + head * kv.v_head_stride +
           j % kv.page_size * kv.v_slot_stride;
  }

  std::vector<AttentionSpec> specs_;
  int rows_ = 0, keys_ = 0;
};

struct Expected {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> prompt_logits;  // of each row of the prompt
};

/// The prompt in one step, then greedy tokens, one per step.
Expected dense_answer(const std::string& fixture, const std::vector<int32_t>& prompt, int new_tokens) {
  ThreadPool pool(1);
  Stream stream(pool);
  ModelLoadOptions options;
  options.dir = test::fixture_dir(fixture);
  const ModelConfig config = *load_model_config(options.dir);
  const auto model = *Model::load(config, options, stream);
  auto kv = *KvCache::create(kv_groups(config, KvCacheDType::float32, KvLayout::hnd, 4), {64});
  const auto rows = static_cast<int>(prompt.size());
  model->reserve(rows, rows);
  Dense dense(config);
  Expected out;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  std::vector<float> logits(prompt.size() * vocab);
  std::vector<int32_t> tokens = prompt;
  for (int step = 0; step < new_tokens; ++step) {
    const int first = step == 0 ? 0 : static_cast<int>(tokens.size()) - 1;
    const int count = static_cast<int>(tokens.size()) - first;
    std::vector<int32_t> positions(static_cast<size_t>(count)), wanted(static_cast<size_t>(count));
    std::iota(positions.begin(), positions.end(), first);
    std::iota(wanted.begin(), wanted.end(), 0);
    const std::vector<int64_t> slots(positions.begin(), positions.end());
    dense.begin(count, static_cast<int>(tokens.size()));
    const auto ids = std::span(tokens).subspan(static_cast<size_t>(first));
    EXPECT_TRUE(model->forward({ids, positions, slots, wanted, &dense, &kv}, logits.data(), stream).ok());
    if (step == 0)
      for (size_t row = 0; row < prompt.size(); ++row)
        out.prompt_logits.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                                       logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab));
    const auto last = std::span(logits).subspan((static_cast<size_t>(count) - 1) * vocab, vocab);
    out.ids.push_back(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
    tokens.push_back(out.ids.back());
  }
  return out;
}

/// The natural logarithm of the probability of `token`.
double logprob(const std::vector<float>& logits, int32_t token) {
  double most = -INFINITY, sum = 0;
  for (const float x : logits)
    most = std::max(most, double{x});
  for (const float x : logits)
    sum += std::exp(double{x} - most);
  return double{logits[static_cast<size_t>(token)]} - most - std::log(sum);
}

EngineConfig config_of(const std::string& fixture, const std::string& backend) {
  EngineConfig config = test::fixture_config(fixture, backend);
  config.kv_cache_dtype = KvCacheDType::float32;
  config.attention.use_non_causal = true;
  config.attention.sources["use_non_causal"] = "-ac.use_non_causal";
  return config;
}

GenerateRequest scored(std::vector<int32_t> prompt, int max_tokens) {
  GenerateRequest request = greedy(std::move(prompt), max_tokens);
  request.prompt_logprobs = 0;
  request.last_logits = true;
  return request;
}

class NonCausal : public ::testing::TestWithParam<const char*> {};

TEST_P(NonCausal, IsWhatADenseComputationGives) {
  const auto prompt = prompt_of(41);
  const Expected want = dense_answer(GetParam(), prompt, 6);
  for (const char* backend : {"TORCH_NATIVE", "CPU_ATTN"}) {
    const auto engine = test::make_engine(config_of(GetParam(), backend));
    ASSERT_NE(engine, nullptr);
    const auto got = test::run_one(*engine, scored(prompt, 6));
    EXPECT_EQ(got.ids, want.ids) << backend;
    const auto& logits = got.last.last_logits;
    ASSERT_EQ(logits.size(), want.prompt_logits.back().size());
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], want.prompt_logits.back()[i], 2e-3) << backend << ", logit " << i;
  }
}

TEST_P(NonCausal, EachRowOfAPromptHasSeenAllOfIt) {
  auto prompt = prompt_of(33);
  const Expected want = dense_answer(GetParam(), prompt, 1);
  const auto engine = test::make_engine(config_of(GetParam(), "CPU_ATTN"));
  ASSERT_NE(engine, nullptr);
  std::vector<TokenLogprobs> got;
  GenerateRequest request = scored(prompt, 1);
  const auto id = engine->submit(request, [&](const RequestOutput& output) {
    if (!output.prompt_logprobs.empty()) got = output.prompt_logprobs;
  });
  ASSERT_TRUE(id.ok()) << id.error().message;
  engine->wait_idle();
  ASSERT_EQ(got.size(), prompt.size() - 1);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(double{got[i].token.logprob}, logprob(want.prompt_logits[i], prompt[i + 1]), 2e-3) << i;
}

TEST_P(NonCausal, TheSameBitsWhateverSurroundsARequest) {
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 6; ++i)
    requests.push_back(scored(prompt_of(9 + 7 * static_cast<int>(i), i / 2), 48));
  const auto engine = test::make_engine(config_of(GetParam(), "CPU_ATTN"));
  ASSERT_NE(engine, nullptr);
  std::vector<test::Answer> alone;
  for (const GenerateRequest& request : requests)
    alone.push_back(test::run_one(*engine, request));
  int64_t preemptions = 0;
  for (const int page_size : {1, 4, 16})
    for (const int tokens : {44, 64, 512})
      for (const int pool : {128, 1024}) {  // tokens: the small one holds less than two sequences
        EngineConfig config = config_of(GetParam(), "CPU_ATTN");
        config.attention.page_size = page_size;
        config.max_batched_tokens = tokens;
        config.max_seq_len = 96;
        config.num_pages = pool / page_size;
        const auto busy = test::make_engine(config);
        ASSERT_NE(busy, nullptr);
        EXPECT_FALSE(busy->info().prefix_cache);
        const auto together = test::run_all(*busy, requests);
        preemptions += busy->stats().preemptions;
        for (size_t i = 0; i < requests.size(); ++i)
          EXPECT_EQ(together[i].ids, alone[i].ids) << "page " << page_size << ", step " << tokens;
      }
  // Sequences with a window free their old pages, so that no preemption is needed.
  if (std::string_view(GetParam()).find("window") == std::string_view::npos) {
    EXPECT_GT(preemptions, 0) << "no recomputation was tested";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NonCausal,
                         ::testing::Values("llama3_gqa4_d16_bf16", "mistral_window_gqa2_d16_bf16",
                                           "gemma3_gqa2_d32_bf16", "gptoss_gqa2_d16_bf16",
                                           "llama4_gqa2_d16_bf16"),
                         [](const auto& test) { return std::string(test.param); });

TEST(UseNonCausal, ChangesTheAnswerAndEveryDecoderSpec) {
  EngineConfig config = config_of(test::kLlama, "CPU_ATTN");
  const auto both_ways = test::make_engine(config);
  config.attention.use_non_causal = false;
  const auto causal = test::make_engine(config);
  ASSERT_TRUE(both_ways && causal);
  for (const AttentionSpec& spec : both_ways->info().specs)
    EXPECT_FALSE(spec.mask.causal);
  for (const AttentionSpec& spec : causal->info().specs)
    EXPECT_TRUE(spec.mask.causal);
  EXPECT_TRUE(causal->info().prefix_cache);
  const auto request = greedy(prompt_of(40), 8);
  EXPECT_NE(test::run_one(*both_ways, request).ids, test::run_one(*causal, request).ids);
}

TEST(UseNonCausal, APromptBeyondOneStepIsRefused) {
  EngineConfig config = config_of(test::kLlama, "CPU_ATTN");
  config.max_batched_tokens = 32;
  const auto engine = test::make_engine(config);
  ASSERT_NE(engine, nullptr);
  const Status refused = engine->check(greedy(prompt_of(33), 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "prompt has 33 tokens; without the causal mask (-ac.use_non_causal) a prompt is computed in one "
            "step, which holds 32 tokens; shorten the prompt, or allow more with --max-num-batched-tokens");
  const auto longest = test::run_one(*engine, greedy(prompt_of(32), 20));  // answers may be longer
  EXPECT_EQ(longest.ids.size(), 20u);
}

TEST(UseNonCausal, NeedsABackendThatHasIt) {
  BackendInfo info = test::info_named("CAUSAL_ONLY");
  info.capability.features = info.capability.features.without({Feature::non_causal});
  test::Counts counts;
  BackendRegistry registry;
  registry.add(info, [&] { return std::make_unique<test::CountingBackend>(counts); });
  EngineConfig config = config_of(test::kLlama, "CAUSAL_ONLY");
  config.registry = &registry;
  const auto refused = Engine::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("['non-causal attention not supported']"));
  config.attention.use_non_causal = false;
  EXPECT_TRUE(Engine::create(config).ok());
}

TEST(UseNonCausal, AnEncoderSaysThatItHasNoEffect) {
  EmbedConfig config;
  config.model = test::fixture_dir("bert_tanh_d16_bf16");
  config.attention.use_non_causal = true;
  const auto embedder = Embedder::create(config);
  ASSERT_TRUE(embedder.ok()) << embedder.error().message;
  EXPECT_THAT((*embedder)->info().selection.warnings,
              Contains("AttentionConfig::use_non_causal has no effect: this model has no "
                       "decoder layers"));
}

TEST(UseNonCausal, AnEncoderDecoderModelRunsWithIt) {
  EngineConfig config = config_of("bart_scaled_d16_bf16", "CPU_ATTN");
  const auto engine = test::make_engine(config);
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = greedy({2, 0, 5, 7}, 5);
  request.encoder_ids = {0, 5, 6, 2};
  EXPECT_EQ(test::run_one(*engine, request).last.finish, FinishReason::length);
}

}  // namespace
}  // namespace fovea
