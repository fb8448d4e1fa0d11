// The whole engine against transformers' eager fp32: last-row logits, log-probabilities of the prompt and
// greedy tokens of the tiny models of tools/goldens/make.py.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fovea/engine.h"
#include "gtest/gtest.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-3;   // fp32 logits and log-probabilities
constexpr double kDecidedGap = 2e-3;  // twice the tolerance: both of the top two may move by it

const fs::path kFixtures = fs::path(FOVEA_SOURCE_DIR) / "tests/goldens";

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

struct Prompt {
  std::vector<int32_t> ids, greedy;
  std::vector<float> last_logits, logprobs, gaps;
};

struct Golden {
  std::string name, family, checkpoint_dtype;
  int tokenizer_size = 0, vocab_size = 0;
  std::vector<Prompt> prompts;
};

/// Whether an indexer chooses among more keys than it may choose.
bool is_sparse(const std::string& name) {
  const json config = read_json(kFixtures / name / "config.json");
  return config.contains("index_topk") &&
         config.at("index_topk").get<int>() < config.at("max_position_embeddings").get<int>();
}

/// Prompts of sparse fixtures that are compared. In longer ones keys are tied for the last place, usually at
/// 0 where no head's product is positive: we choose the lower positions, torch.topk any of them.
constexpr size_t kUntied = 33;

Golden load_golden(const std::string& name) {
  const json file = read_json(kFixtures / name / "golden.json");
  Golden golden{
      name, file.at("family"), file.at("checkpoint_dtype"), file.at("tokenizer_size"), file.at("vocab_size"),
      {}};
  for (const json& p : file.at("prompts"))
    golden.prompts.push_back(
        {p.at("ids"), p.at("greedy"), p.at("last_logits"), p.at("logprobs"), p.at("gaps")});
  if (is_sparse(name)) std::erase_if(golden.prompts, [](const Prompt& p) { return p.ids.size() > kUntied; });
  return golden;
}

/// The decoders; encoder_golden_test covers the others.
std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  const json manifest = read_json(kFixtures / "MANIFEST.json");
  if (manifest.is_object())
    for (const auto& [name, files] : manifest.at("files").items())
      if (read_json(kFixtures / name / "golden.json").contains("tokenizer_size")) names.push_back(name);
  return names;
}

/// What runs `golden` in place of `backend`: latent attention has backends of its own.
std::string backend_for(const Golden& golden, const std::string& backend) {
  if (!read_json(kFixtures / golden.name / "config.json").contains("kv_lora_rank")) return backend;
  return (backend == "CPU_ATTN" ? "CPU_MLA" : "TORCH_NATIVE_MLA") +
         std::string(is_sparse(golden.name) ? "_SPARSE" : "");
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, last_logits;
};

struct Setting {
  std::string backend;
  int page_size = 16;
  int chunk = 512;
  DType dtype = DType::f32;
  std::string model = {};  // empty = the fixture's folder
  bool expanded = false;   // latent attention's prefill without absorption
};

std::string to_text(const Setting& setting) {
  return setting.backend + " page " + std::to_string(setting.page_size) + " chunk " +
         std::to_string(setting.chunk) + " " + std::string(to_string(setting.dtype));
}

/// Every prompt of `golden` in one engine at once, with 16 greedy tokens each; empty when the engine refuses.
std::vector<Answer> answers(const Golden& golden, const Setting& setting) {
  EngineConfig config;
  config.model = setting.model.empty() ? (kFixtures / golden.name).string() : setting.model;
  config.dtype = setting.dtype;
  config.attention.backend = setting.backend;
  config.attention.page_size = setting.page_size;
  if (setting.expanded) config.attention.mla_prefill_backend = "CPU_ATTN";
  config.max_batched_tokens = setting.chunk;
  config.num_pages = 4096 / setting.page_size;  // room for all prompts and answers of a fixture together
  config.threads = 2;
  auto engine = Engine::create(config);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return {};
  }
  std::mutex mutex;  // sinks run on the engine's thread
  std::vector<Answer> result(golden.prompts.size());
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    GenerateRequest request;
    request.prompt_ids = golden.prompts[i].ids;
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = static_cast<int>(golden.prompts[i].greedy.size());
    request.prompt_logprobs = 0;
    request.last_logits = true;
    auto id =
        (*engine)->submit(std::move(request), [&mutex, &answer = result[i]](const RequestOutput& output) {
          const std::lock_guard lock(mutex);
          answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
          EXPECT_NE(output.finish, FinishReason::error) << output.error.message;
          if (output.finish == FinishReason::none) return;
          for (const TokenLogprobs& token : output.prompt_logprobs)
            answer.logprobs.push_back(token.token.logprob);
          answer.last_logits = output.last_logits;
        });
    if (!id) ADD_FAILURE() << id.error().message;
  }
  (*engine)->wait_idle();
  const std::lock_guard lock(mutex);
  return result;
}

/// Largest differences from transformers over one or more answers.
struct Score {
  double logit_error = 0, logprob_error = 0, squared_logit_error = 0;
  int64_t logits = 0;
  int greedy_right = 0, greedy_decided = 0;
};

/// NaN counts as an infinite difference.
double difference(float a, float b) {
  const double d = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

void compare(const Golden& golden, const Prompt& want, const Answer& got, Score& score) {
  ASSERT_EQ(got.last_logits.size(), static_cast<size_t>(golden.vocab_size));
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  ASSERT_EQ(got.tokens.size(), want.greedy.size());
  ASSERT_EQ(want.last_logits.size(), static_cast<size_t>(golden.vocab_size));
  for (int i = 0; i < golden.vocab_size; ++i) {
    const double error = difference(got.last_logits[i], want.last_logits[i]);
    score.logit_error = std::max(score.logit_error, error);
    score.squared_logit_error += error * error;
    ++score.logits;
  }
  for (const int32_t token : got.tokens)
    EXPECT_LT(token, golden.tokenizer_size) << "a row that pads the vocabulary was sampled";
  for (size_t i = 0; i < want.logprobs.size(); ++i)
    score.logprob_error = std::max(score.logprob_error, difference(got.logprobs[i], want.logprobs[i]));
  for (size_t i = 0; i < want.greedy.size() && want.gaps[i] > kDecidedGap; ++i) {
    ++score.greedy_decided;
    if (got.tokens[i] != want.greedy[i]) break;  // later tokens follow a different text
    ++score.greedy_right;
  }
}

void compare_all(const Golden& golden, const std::vector<Answer>& got, Score& score) {
  ASSERT_EQ(got.size(), golden.prompts.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("prompt of " + std::to_string(golden.prompts[i].ids.size()) + " tokens");
    compare(golden, golden.prompts[i], got[i], score);
  }
}

/// `tied`: keys may be tied after the prompts.
void expect_exact(const Score& score, bool tied = false) {
  EXPECT_LE(score.logit_error, kTolerance);
  EXPECT_LE(score.logprob_error, kTolerance);
  if (tied)
    EXPECT_GT(score.greedy_right, 0.9 * score.greedy_decided);
  else
    EXPECT_EQ(score.greedy_right, score.greedy_decided);
  EXPECT_GT(score.greedy_decided, 0);
}

/// One line per fixture, printed when all tests have run.
class Table : public testing::Environment {
 public:
  static void add(const Golden& golden, const char* dtype, const Score& score) {
    char line[160];
    std::snprintf(line, sizeof line, "%-36s %-9s %-9s %-9s %12.2e %12.2e %7d/%d%s\n", golden.name.c_str(),
                  golden.family.c_str(), golden.checkpoint_dtype.c_str(), dtype, score.logit_error,
                  score.logprob_error, score.greedy_right, score.greedy_decided,
                  testing::Test::HasFailure() ? "  FAILED" : "");
    lines() += line;
  }
  void TearDown() override {
    if (lines().empty()) return;
    std::printf("%-36s %-9s %-9s %-9s %12s %12s %10s\n%s", "fixture", "family", "stored", "run",
                "logit error", "logprob err", "greedy", lines().c_str());
  }

 private:
  static std::string& lines() {
    static std::string text;
    return text;
  }
};
[[maybe_unused]] testing::Environment* const table = testing::AddGlobalTestEnvironment(new Table);

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { golden_ = load_golden(GetParam()); }
  Golden golden_;
};

TEST_P(GoldenTest, Float32MatchesTransformers) {
  Score score;
  for (const std::string name : {"CPU_ATTN", "TORCH_NATIVE"}) {
    const std::string backend = backend_for(golden_, name);
    std::vector<Answer> first;
    for (const int page_size : {16, 3}) {
      for (const int chunk : {16, 512}) {
        const Setting setting{backend, page_size, chunk};
        SCOPED_TRACE(to_text(setting));
        const std::vector<Answer> got = answers(golden_, setting);
        compare_all(golden_, got, score);
        if (first.empty()) first = got;
        ASSERT_EQ(first.size(), got.size());
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(got[i].last_logits == first[i].last_logits) << "bits depend on the page or chunk size";
      }
    }
  }
  expect_exact(score, is_sparse(golden_.name));
  Table::add(golden_, "float32", score);
}

/// The fixtures with dense latent attention whose heads have sizes of CPU_ATTN.
class ExpandedTest : public GoldenTest {};

std::vector<std::string> expanded_names() {
  std::vector<std::string> names = fixture_names();
  std::erase_if(names, [](const std::string& name) {
    const json config = read_json(kFixtures / name / "config.json");
    return !config.contains("kv_lora_rank") || config.contains("index_topk");
  });
  return names;
}

/// Prefill without absorption: the same logits, with bits that no page or chunk size changes.
TEST_P(ExpandedTest, Float32MatchesTransformers) {
  Score score;
  std::vector<Answer> first;
  for (const int page_size : {16, 3})
    for (const int chunk : {16, 512}) {
      const Setting setting{"CPU_MLA", page_size, chunk, DType::f32, {}, true};
      SCOPED_TRACE(to_text(setting));
      const std::vector<Answer> got = answers(golden_, setting);
      compare_all(golden_, got, score);
      if (first.empty()) first = got;
      ASSERT_EQ(first.size(), got.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(got[i].last_logits == first[i].last_logits) << "bits depend on the page or chunk size";
    }
  const std::vector<Answer> absorbed = answers(golden_, {"CPU_MLA"});
  ASSERT_EQ(first.size(), absorbed.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(golden_.prompts[i].ids.size() == 1 || first[i].last_logits != absorbed[i].last_logits)
        << "it was absorbed";
  expect_exact(score);
  Table::add(golden_, "expanded", score);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ExpandedTest, testing::ValuesIn(expanded_names()),
                         [](const auto& tested) { return tested.param; });

/// The fixtures with layers of two kinds.
class TwoKindsTest : public GoldenTest {};

std::vector<std::string> two_kinds_names() {
  std::vector<std::string> names = fixture_names();
  std::erase_if(names, [](const auto& name) {
    const json types = read_json(kFixtures / name / "config.json").value("layer_types", json::array());
    return std::set<std::string>(types.begin(), types.end()).size() < 2;
  });
  return names;
}

TEST_P(TwoKindsTest, KindsOnDifferentBackendsMatchTransformers) {
  const json types = read_json(kFixtures / golden_.name / "config.json").at("layer_types");
  const bool chunks = std::ranges::find(types, "chunked_attention") != types.end();
  const std::string local = chunks ? "chunked_local" : "swa";
  Score score;
  for (const std::string& backend : {local + "=torch_native", "full=cpu_attn," + local + "=torch_native",
                                     local + "=cpu_attn,full=torch_native"}) {
    const Setting setting{backend};
    SCOPED_TRACE(to_text(setting));
    compare_all(golden_, answers(golden_, setting), score);
  }
  expect_exact(score);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TwoKindsTest, testing::ValuesIn(two_kinds_names()),
                         [](const auto& fixture) { return fixture.param; });

/// The fixtures that also have a config.json in transformers 4's format.
class Version4Test : public GoldenTest {};

std::vector<std::string> version4_names() {
  std::vector<std::string> names = fixture_names();
  std::erase_if(names, [](const auto& name) { return !fs::exists(kFixtures / name / "config.v4.json"); });
  return names;
}

TEST_P(Version4Test, MeansTheSame) {
  const fs::path dir = fs::path(testing::TempDir()) / ("fovea_golden_v4_" + golden_.name);
  fs::remove_all(dir);
  fs::copy(kFixtures / golden_.name, dir);
  fs::rename(dir / "config.v4.json", dir / "config.json");
  Score score;
  const std::string backend = backend_for(golden_, "CPU_ATTN");
  compare_all(golden_, answers(golden_, {backend, 16, 512, DType::f32, dir.string()}), score);
  expect_exact(score, is_sparse(golden_.name));
  fs::remove_all(dir);
}

// In bfloat16 (8 significant bits) each stored value has an error of up to u = 2^-9 of itself, u / sqrt(3) in
// the rms. A logit of std 3 is a sum of products of such values. About ten roundings follow one another on
// its way (embedding; per layer the weights before and after attention, K, V, and the MLP's; the head), each
// of which moves the residual stream by about u of its own size, and attention doubles or triples the errors
// that reach it through the scores (std 2, so exp() turns an error of e in a score into one of 2e in a
// weight). Independent roundings add in the mean square: 3 * 2^-9 / sqrt(3) * sqrt(10) * 3 = 0.032; we allow
// 4 times as much. A mistake (a missing norm, a wrong rotation) moves logits by their own size, 3.
TEST_P(GoldenTest, BFloat16StaysClose) {
  if (is_sparse(golden_.name)) GTEST_SKIP() << "rounded index keys change which keys are chosen";
  constexpr double kRms = 0.1;
  Score score;
  for (const std::string backend : {"CPU_ATTN", "TORCH_NATIVE"}) {
    const Setting setting{backend_for(golden_, backend), 16, 512, DType::bf16};
    SCOPED_TRACE(to_text(setting));
    compare_all(golden_, answers(golden_, setting), score);
  }
  EXPECT_LE(std::sqrt(score.squared_logit_error / static_cast<double>(score.logits)), kRms);
  EXPECT_LE(score.logit_error, 6 * kRms);  // the largest of some 4000
  Table::add(golden_, "bfloat16", score);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenTest, testing::ValuesIn(fixture_names()),
                         [](const auto& fixture) { return fixture.param; });

INSTANTIATE_TEST_SUITE_P(Fixtures, Version4Test, testing::ValuesIn(version4_names()),
                         [](const auto& fixture) { return fixture.param; });

TEST(GoldenFixtures, CoverWhatTheyAreFor) {
  std::set<std::string> families, dtypes;
  std::set<int> head_dims, ratios;
  std::set<size_t> lengths;
  std::set<std::string> rope_types, layer_types;
  std::set<bool> tied, biased, sharded, padded;
  for (const std::string& name : fixture_names()) {
    const Golden golden = load_golden(name);
    const json config = read_json(kFixtures / name / "config.json");
    families.insert(golden.family);
    dtypes.insert(golden.checkpoint_dtype);
    head_dims.insert(config.value("head_dim", config.value("qk_rope_head_dim", 0)));
    ratios.insert(config.at("num_attention_heads").get<int>() / config.at("num_key_value_heads").get<int>());
    const json& rope = config.at("rope_parameters");
    for (const json& one : rope.contains("rope_type") ? json::array({rope}) : rope)  // or by layer type
      rope_types.insert(one.at("rope_type"));
    for (const json& type : config.value("layer_types", json::array()))
      layer_types.insert(type);
    tied.insert(config.at("tie_word_embeddings").get<bool>());
    biased.insert(config.value("attention_bias", false));
    sharded.insert(fs::exists(kFixtures / name / "model.safetensors.index.json"));
    padded.insert(golden.vocab_size > golden.tokenizer_size);
    for (const Prompt& prompt : golden.prompts)
      lengths.insert(prompt.ids.size());
  }
  for (const char* family :
       {"llama", "qwen3", "qwen2", "mistral", "gemma2", "gemma3", "olmo2", "granite", "phi3", "llama4",
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"})
    EXPECT_TRUE(families.count(family)) << family;
  EXPECT_EQ(dtypes, (std::set<std::string>{"bfloat16", "float16", "float32"}));
  for (const char* type : {"default", "linear", "llama3", "yarn", "longrope"})
    EXPECT_TRUE(rope_types.count(type)) << type;
  for (const char* type : {"full_attention", "sliding_attention", "chunked_attention"})
    EXPECT_TRUE(layer_types.count(type)) << type;
  for (const int d : {16, 24, 32, 64, 80, 128})
    EXPECT_TRUE(head_dims.count(d)) << d;
  for (const int r : {1, 2, 3, 4, 5, 7})
    EXPECT_TRUE(ratios.count(r)) << r;
  // Around pages of 16, and around windows and chunks of 24 (W - 1, W, W + 1, 2 W).
  for (const size_t n : {1, 15, 16, 17, 23, 24, 25, 31, 33, 48, 100, 200, 700})
    EXPECT_TRUE(lengths.count(n)) << n;
  for (const auto& both : {tied, biased, sharded, padded})
    EXPECT_EQ(both.size(), 2u);
}

}  // namespace
}  // namespace fovea
