// LoRA adapters in the whole engine: logits against weights merged in fp64, and answers that don't depend on
// company, chunks, prefix hits, preemptions, threads or drafts.
#include <gmock/gmock.h>

#include <array>
#include <fstream>
#include <iterator>

#include "engine/lora_table.h"
#include "model/config.h"
#include "model/model_test_support.h"
#include "tests/engine/adapter_fixture.h"
#include "tests/engine/fixture.h"
#include "tests/support/lora_adapter.h"

namespace fovea {
namespace {

using namespace test;
using testing::HasSubstr;

void merge(const Deltas& deltas, Weights& weights) {
  for (const auto& [module, delta] : deltas) {
    std::vector<float>& values = weights.at(module + ".weight").values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<double>(values[i]) + delta[i]);
  }
}

struct Case {
  std::string fixture;
  AdapterOptions options;
  std::vector<std::string> modules = kAll;
};

class LoraLogits : public testing::TestWithParam<Case> {};

TEST_P(LoraLogits, AreThoseOfMergedWeights) {
  const Case& c = GetParam();
  const std::string dir = fixture_dir(c.fixture);
  auto model = load_model_config(dir);
  ASSERT_TRUE(model.ok());
  // Gemma multiplies embeddings by a number of the model's type.
  model->embedding_scale = rounded_to(model->embedding_scale, model->dtype);
  Weights weights = weights_of(dir);
  const TempDir temp;
  const Deltas deltas = write_adapter(temp, "a", modules_of(weights, c.modules), c.options);
  ASSERT_FALSE(deltas.empty());

  EngineConfig config = fixture_config(c.fixture, "CPU_ATTN");
  config.kv_cache_dtype = KvCacheDType::float32;
  config.lora.modules = {{"a", temp.path() + "/a"}};
  const auto engine = make_engine(config);
  ASSERT_TRUE(engine);
  GenerateRequest request = greedy(prompt_of(19), 1);
  request.last_logits = true;
  const std::vector<float> base = run_one(*engine, request).last.last_logits;
  request.lora = "a";
  const std::vector<float> got = run_one(*engine, request).last.last_logits;

  const std::vector<double> plain = ReferenceModel(*model, weights).logits(request.prompt_ids);
  merge(deltas, weights);
  const std::vector<double> want = ReferenceModel(*model, weights).logits(request.prompt_ids);
  const size_t vocab = static_cast<size_t>(model->vocab_size), last = want.size() - vocab;
  ASSERT_EQ(got.size(), vocab);
  double error = 0, base_error = 0, change = 0, size = 0;
  for (size_t i = 0; i < vocab; ++i) {
    error = std::max(error, std::abs(static_cast<double>(got[i]) - want[last + i]));
    base_error = std::max(base_error, std::abs(static_cast<double>(base[i]) - plain[last + i]));
    change = std::max(change, std::abs(want[last + i] - plain[last + i]));
    size = std::max(size, std::abs(want[last + i]));
  }
  EXPECT_LT(error, 1e-5 * size + 5 * base_error);
  EXPECT_LT(base_error, 1e-3 * size);
  EXPECT_GT(change, 0.05 * size);  // else the test could not fail
}

INSTANTIATE_TEST_SUITE_P(
    Families, LoraLogits,
    testing::Values(Case{"llama3_gqa4_d16_bf16", {.targets = R"("all-linear")"}},
                    Case{"llama3_gqa4_d16_bf16",
                         {.rank = 5, .dtype = DType::bf16, .targets = R"(["q_proj", "v_proj"])"},
                         {"q_proj", "v_proj"}},
                    Case{"llama_bias_gqa2_d16_fp32",
                         {.rank = 33, .rslora = true, .targets = R"(".*\\.(k|o|down|up)_proj")"},
                         {"k_proj", "o_proj", "down_proj", "up_proj"}},
                    Case{"llama32_gqa4_d64_fp16",
                         {.rank = 1, .dtype = DType::f16, .targets = R"("all-linear")"}},
                    Case{"qwen3_gqa2_d32_bf16", {.targets = R"("all-linear")"}},
                    Case{"phi3_short_gqa2_d24_bf16",
                         {.targets = R"(["qkv_proj", "gate_up_proj", "o_proj", "down_proj"])"}},
                    Case{"mistral_window_gqa2_d16_bf16", {.targets = R"("all-linear")"}},
                    Case{"granite_gqa2_d16_bf16", {.rank = 64, .targets = R"("all-linear")"}},
                    Case{"gemma2_gqa2_d16_bf16", {.targets = R"("all-linear")"}},
                    Case{"olmo2_mha_d16_bf16", {.targets = R"("all-linear")"}}),
    [](const auto& one) { return one.param.fixture + "_" + std::to_string(one.index); });

/// Latent attention and experts: against the engine with weights that have been merged in fp64.
class LoraMerged : public testing::TestWithParam<Case> {};

TEST_P(LoraMerged, LogitsAreThose) {
  const Case& c = GetParam();
  const std::string dir = fixture_dir(c.fixture);
  Weights weights = weights_of(dir);
  const TempDir temp;
  const Deltas deltas = write_adapter(temp, "a", modules_of(weights, c.modules), c.options);
  for (const std::string& name : c.modules)
    EXPECT_TRUE(std::ranges::any_of(deltas, [&](const auto& d) { return d.first.ends_with(name); })) << name;
  merge(deltas, weights);
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : weights)
    writer.add(name, tensor.shape, tensor.values, DType::f32);
  const auto file = [&](const std::string& name) {
    std::ifstream in(dir + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  temp.write("merged/model.safetensors", writer.bytes());
  for (const char* name : {"config.json", "generation_config.json"})
    if (const std::string text = file(name); !text.empty()) temp.write("merged/" + std::string(name), text);

  const auto config = [&](const std::string& model) {
    EngineConfig made = fixture_config(c.fixture, "auto");
    made.attention = {};
    made.model = model;
    made.kv_cache_dtype = KvCacheDType::float32;
    return made;
  };
  EngineConfig adapted = config(dir);
  adapted.lora.modules = {{"a", temp.path() + "/a"}};
  const auto engine = make_engine(adapted), merged = make_engine(config(temp.path() + "/merged"));
  ASSERT_TRUE(engine && merged);
  std::vector<GenerateRequest> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(greedy(prompt_of(7 + 3 * i, static_cast<uint32_t>(i)), 1));
    all.back().last_logits = true;
    if (i % 2 == 0) all.back().lora = "a";
  }
  const std::vector<Answer> together = run_all(*engine, all);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<float> alone = run_one(*engine, all[i]).last.last_logits;
    EXPECT_EQ(together[i].last.last_logits, alone) << i;  // bits
    GenerateRequest request = all[i];
    request.lora.clear();
    const std::vector<float> want = run_one(*merged, request).last.last_logits;
    ASSERT_EQ(alone.size(), want.size());
    double error = 0, size = 0;
    for (size_t j = 0; j < want.size(); ++j) {
      error = std::max(error, std::abs(static_cast<double>(alone[j]) - static_cast<double>(want[j])));
      size = std::max(size, std::abs(static_cast<double>(want[j])));
    }
    if (i % 2 == 0)
      EXPECT_LT(error, 1e-4 * size) << i;
    else
      EXPECT_GT(error, 0.02 * size) << i;  // else the test could not fail
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, LoraMerged,
    testing::Values(Case{"deepseekv2_mla4_bf16",
                         {.targets = R"("all-linear")"},
                         {"q_a_proj", "kv_a_proj_with_mqa", "o_proj", "gate_proj", "up_proj", "down_proj"}},
                    Case{"deepseekv3_mla4_bf16",
                         {.rank = 9, .targets = R"("all-linear")"},
                         {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj", "down_proj"}},
                    Case{"glmdsa_topk16_mla4_bf16",
                         {.rank = 2, .targets = R"("all-linear")"},
                         {"q_b_proj", "kv_a_proj_with_mqa"}},
                    Case{"mixtral_gqa2_d16_bf16",
                         {.targets = R"(["q_proj", "w1", "w2", "w3"])"},
                         {"q_proj", "w1", "w2", "w3"}},
                    Case{"qwen3moe_gqa2_d16_bf16",
                         {.rank = 8, .targets = R"(["gate_proj", "down_proj"])"},
                         {"gate_proj", "down_proj"}}),
    [](const auto& one) { return one.param.fixture; });

/// Adapters "a", "b" and "c" of the model, of different ranks and modules.
class Lora : public testing::Test {
 protected:
  void SetUp() override {
    const Weights weights = weights_of(fixture_dir(kLlama));
    (void)write_adapter(temp_, "a", modules_of(weights, kAll), {.targets = R"("all-linear")"});
    (void)write_adapter(temp_, "b", modules_of(weights, {"q_proj", "v_proj"}),
                        {.rank = 16, .dtype = DType::bf16, .seed = 2, .targets = R"(["q_proj", "v_proj"])"});
    (void)write_adapter(temp_, "c", modules_of(weights, {"down_proj", "gate_proj"}),
                        {.rank = 7, .seed = 3, .targets = R"(["down_proj", "gate_proj"])"});
  }

  EngineConfig config() const {
    EngineConfig config = fixture_config(kLlama, "CPU_ATTN");
    for (const char* name : {"a", "b", "c"})
      config.lora.modules.push_back({name, temp_.path() + "/" + name});
    return config;
  }

  /// Greedy and sampled rows of all adapters and none, some with a common prompt.
  static std::vector<GenerateRequest> requests() {
    std::vector<GenerateRequest> all;
    const std::array<std::string, 4> names = {"", "a", "b", "c"};
    for (uint32_t i = 0; i < 16; ++i) {
      std::vector<int32_t> prompt = prompt_of(3 + 3 * static_cast<int>(i % 6), i / 4);
      const std::vector<int32_t> again = prompt;
      prompt.insert(prompt.end(), again.begin(), again.end());  // n-grams repeat
      all.push_back(greedy(std::move(prompt), 44));
      all.back().lora = names[i % 4];
      all.back().sampling.logprobs = 3;
      if (i % 5 != 4) continue;
      all.back().sampling.temperature = 0.8f;
      all.back().sampling.seed = i;
    }
    return all;
  }
  static std::vector<Answer> alone(const EngineConfig& config) {
    std::vector<Answer> out;
    const auto engine = make_engine(config);
    if (!engine) return out;
    for (const GenerateRequest& request : requests())
      out.push_back(run_one(*engine, request));
    return out;
  }
  static void expect_same(const std::vector<Answer>& got, const std::vector<Answer>& want,
                          const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].ids, want[i].ids) << what << ", request " << i;
      EXPECT_EQ(got[i].logprobs, want[i].logprobs) << what << ", request " << i;
    }
  }

  TempDir temp_;
};

TEST_F(Lora, AnswersAreThoseAlone) {
  EngineConfig one = config();
  one.prefix_cache = false;
  one.threads = 1;
  const std::vector<Answer> want = alone(one);
  EXPECT_NE(want[4].ids, want[5].ids);

  const auto check = [&](const std::string& what, const std::function<void(EngineConfig&)>& change,
                         const std::function<void(const EngineStats&)>& look = {}) {
    EngineConfig changed = config();
    change(changed);
    const auto engine = make_engine(changed);
    ASSERT_TRUE(engine) << what;
    expect_same(run_all(*engine, requests()), want, what);
    expect_same(run_all(*engine, requests()), want, what + ", again");
    if (look) look(engine->stats());
  };
  check("together", [](EngineConfig&) {});
  check("three threads", [](EngineConfig& c) { c.threads = 3; });
  check("chunks", [](EngineConfig& c) { c.max_batched_tokens = 7; });
  check("one adapter at a time", [](EngineConfig& c) { c.lora.max_loras = 1; });
  check(
      "preemption", [](EngineConfig& c) { c.num_pages = 24, c.max_seq_len = 96; },
      [](const EngineStats& stats) { EXPECT_GT(stats.preemptions, 0); });
  check(
      "n-gram drafts",
      [](EngineConfig& c) {
        c.speculative.method = DraftMethod::ngram;
        c.speculative.num_tokens = 4;
      },
      [](const EngineStats& stats) { EXPECT_GT(stats.speculative.draft_tokens, 0); });
  check(
      "a draft model",
      [](EngineConfig& c) {
        c.speculative.method = DraftMethod::draft_model;
        c.speculative.model = fixture_dir(kLlama);
        c.speculative.num_tokens = 3;
      },
      [](const EngineStats& stats) { EXPECT_GT(stats.speculative.accepted_tokens, 0); });
  for (const auto& [head, method] :
       {std::pair{"eagle3_bf16", DraftMethod::eagle3}, {"eagle1_bf16", DraftMethod::eagle}})
    check(
        head,
        [folder = head, kind = method](EngineConfig& c) {
          c.speculative.method = kind;
          c.speculative.model = FOVEA_SOURCE_DIR "/tests/draft_heads/" + std::string(folder);
          c.speculative.num_tokens = 3;
        },
        [](const EngineStats& stats) { EXPECT_GT(stats.speculative.draft_tokens, 0); });
}

TEST_F(Lora, RowsWithoutAdapterAreThoseOfAnEngineWithout) {
  EngineConfig plain = config();
  plain.lora = {};
  std::vector<GenerateRequest> of_base;
  for (GenerateRequest& request : requests())
    if (request.lora.empty()) of_base.push_back(request);
  const auto engine = make_engine(plain), with = make_engine(config());
  ASSERT_TRUE(engine && with);
  const std::vector<Answer> want = run_all(*engine, of_base), got = run_all(*with, requests());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[4 * i].ids, want[i].ids);
    EXPECT_EQ(got[4 * i].logprobs, want[i].logprobs);
  }
}

TEST_F(Lora, PrefixesAreThoseOfOneAdapter) {
  const auto engine = make_engine(config());
  ASSERT_TRUE(engine);
  GenerateRequest request = greedy(prompt_of(40), 4);
  for (const char* name : {"", "a", "b"}) {
    request.lora = name;
    EXPECT_EQ(run_one(*engine, request).last.cached_tokens, 0) << name;
  }
  for (const char* name : {"b", "", "a"}) {
    request.lora = name;
    EXPECT_EQ(run_one(*engine, request).last.cached_tokens, 36) << name;
  }
  // The same name is another adapter after it has been loaded again.
  ASSERT_TRUE(engine->unload_lora("a").ok());
  ASSERT_TRUE(engine->load_lora({"a", temp_.path() + "/c"}).ok());
  request.lora = "a";
  EXPECT_EQ(run_one(*engine, request).last.cached_tokens, 0);
}

TEST_F(Lora, AnUnloadedAdapterServesWhatHasBeenSubmitted) {
  const auto engine = make_engine(config());
  ASSERT_TRUE(engine);
  std::vector<GenerateRequest> all(2, greedy(prompt_of(9), 40));
  all[0].lora = all[1].lora = "a";
  all[1].sampling.n = 2;
  all[1].sampling.temperature = 1;
  all[1].sampling.seed = 5;
  const std::vector<Answer> want = run_all(*engine, all);
  EXPECT_EQ(engine->loras().size(), 3u);
  all[0].on_start = [&] {  // the others are submitted, but none has been computed
    EXPECT_TRUE(engine->unload_lora("a").ok());
    EXPECT_TRUE(engine->load_lora({"a", temp_.path() + "/b"}).ok());
  };
  const std::vector<Answer> got = run_all(*engine, all);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i].ids, want[i].ids);
  all[0].on_start = {};
  EXPECT_NE(run_one(*engine, all[0]).ids, want[0].ids);
  ASSERT_TRUE(engine->unload_lora("a").ok());
  const auto refused = engine->submit(all[0], [](const RequestOutput&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::not_found);
  EXPECT_THAT(refused.error().message, HasSubstr("\"a\" is not loaded"));
}

TEST_F(Lora, RefusalsAreNamed) {
  EngineConfig limited = config();
  limited.lora.max_loaded = 3;
  const auto engine = make_engine(limited);
  ASSERT_TRUE(engine);
  const auto refusal = [&](const LoraModule& module) {
    const Status status = engine->load_lora(module);
    return status.ok() ? std::string("loaded") : status.error().message;
  };
  EXPECT_THAT(refusal({"a", temp_.path() + "/b"}), HasSubstr("\"a\" is loaded already"));
  EXPECT_THAT(refusal({"d", temp_.path() + "/b"}), HasSubstr("3 LoRA adapters are loaded, the limit"));
  EXPECT_THAT(refusal({"", temp_.path() + "/b"}), HasSubstr("1 to 256 bytes"));
  EXPECT_THAT(engine->unload_lora("d").error().message, HasSubstr("\"d\" is not loaded"));
  ASSERT_TRUE(engine->unload_lora("c").ok());
  EXPECT_THAT(refusal({"d", temp_.path() + "/nothing"}), HasSubstr("no such directory"));
  EXPECT_EQ(refusal({"d", temp_.path() + "/c"}), "loaded");

  const auto start = [&](const std::string& fixture, const std::function<void(EngineConfig&)>& change) {
    EngineConfig other = fixture_config(fixture, "auto");
    other.attention = {};
    change(other);
    const auto made = Engine::create(other);
    return made.ok() ? std::string("started") : made.error().message;
  };
  const auto enable = [](EngineConfig& c) { c.lora.enabled = true; };
  EXPECT_EQ(start(kLlama, enable), "started");
  const std::string latent = "deepseekv3_mla4_bf16";
  (void)write_adapter(temp_, "kv_b", modules_of(weights_of(fixture_dir(latent)), {"kv_b_proj"}),
                      {.targets = R"("all-linear")"});
  EXPECT_EQ(start(latent, enable), "started");
  EXPECT_THAT(start(latent, [&](EngineConfig& c) { c.lora.modules = {{"b", temp_.path() + "/kv_b"}}; }),
              HasSubstr("is of kv_b_proj"));
  EXPECT_THAT(start("bart_d8_fp32", enable), HasSubstr("can't have LoRA adapters"));
  EXPECT_THAT(start(kLlama,
                    [&](EngineConfig& c) {
                      c.lora.modules = {{"b", temp_.path() + "/b"}};
                      c.lora.max_rank = 8;
                    }),
              HasSubstr("has rank 16, the limit is 8; start with --max-lora-rank 16"));
  EXPECT_THAT(start(kLlama,
                    [&](EngineConfig& c) {
                      c.lora.enabled = true;
                      c.lora.max_rank = 513;
                    }),
              HasSubstr("the largest LoRA rank is 513"));
  const auto off = make_engine(fixture_config());
  EXPECT_THAT(off->load_lora({"a", temp_.path() + "/a"}).error().message, HasSubstr("--enable-lora"));
}

}  // namespace
}  // namespace fovea
