// Drafts of trained heads: those of the published formulas (tools/goldens/draft_heads.py), whatever the
// engine does with a prompt, and without effect on answers.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/engine/storm.h"
#include "tests/engine/watched_drafts.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Answers;
using test::compare_drafts;
using test::Core;
using test::HeadCase;
using test::ModelWithMtp;
using test::WatchedCore;
using testing::HasSubstr;

constexpr double kTolerance = 2e-3;  // of the gap between the best two logits
constexpr int kDrafts = 4;

std::string head_dir(const std::string& name) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/draft_heads/" + name;
}

json read_json(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in);
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

constexpr HeadCase kHeads[] = {{"eagle3_bf16", DraftMethod::eagle3},
                               {"eagle3_speculators_bf16", DraftMethod::eagle3},
                               {"eagle1_bf16", DraftMethod::eagle},
                               {"mtp_bf16", DraftMethod::mtp}};

/// In fp32, as far as that changes bits.
EngineConfig config_of(const HeadCase& head, const std::string& model) {
  EngineConfig config = test::fixture_config();
  config.model = model;
  config.attention.backend.clear();
  config.attention.page_size = 4;
  config.kv_cache_dtype = KvCacheDType::float32;
  config.dtype = DType::f32;
  config.max_seq_len = 256;
  config.num_pages = 256;
  config.threads = 1;
  config.speculative.method = head.method;
  if (head.method != DraftMethod::mtp) config.speculative.model = head_dir(head.head);
  config.speculative.model_dtype = DType::f32;
  config.speculative.num_tokens = kDrafts;
  config.speculative.adaptive = false;
  return config;
}

/// The MTP layer's logits are those of the formulas in fp64, with which the GPU's, in bfloat16, are compared
/// too.
TEST(DraftHeadLogits, AreThoseOfTheFormulas) {
  const HeadCase head{"mtp_bf16", DraftMethod::mtp};
  const ModelWithMtp model(std::string(FOVEA_SOURCE_DIR) + "/tests");
  std::vector<double> off;
  double most = 0;
  const json golden = read_json(head_dir(head.head) + "/drafts.json");
  for (const json& text : golden["texts"]) {
    EngineConfig config = config_of(head, model.path());
    config.speculative.num_tokens = 1;
    WatchedCore core(config, {});
    core.keep_logits();
    core.run(text["ids"].get<std::vector<int32_t>>(), 16);
    test::compare_logits(core.logits, text, SIZE_MAX, off, most);
  }
  EXPECT_GT(off.size(), 30u);
  EXPECT_LT(most, kTolerance);
}

class DraftHeads : public testing::TestWithParam<HeadCase> {
 protected:
  std::string model() {
    if (GetParam().method != DraftMethod::mtp) return test::fixture_dir(test::kLlama);
    if (!mtp_) mtp_ = std::make_unique<ModelWithMtp>(std::string(FOVEA_SOURCE_DIR) + "/tests");
    return mtp_->path();
  }

 private:
  std::unique_ptr<ModelWithMtp> mtp_;
};

std::string name_of(const testing::TestParamInfo<HeadCase>& c) {
  return c.param.head;
}
INSTANTIATE_TEST_SUITE_P(Heads, DraftHeads, testing::ValuesIn(kHeads), name_of);

/// The cases of storm.h are of the first three heads' model.
class DraftHeadStorm : public DraftHeads {};
INSTANTIATE_TEST_SUITE_P(Heads, DraftHeadStorm, testing::ValuesIn(std::span(kHeads).first(3)), name_of);

TEST_P(DraftHeads, DraftsAreThoseOfTheFormulas) {
  const json golden = read_json(head_dir(GetParam().head) + "/drafts.json");
  const std::string dir = model();
  test::ComparedDrafts compared;
  int accepted = 0;
  for (const json& text : golden["texts"]) {
    const auto prompt = text["ids"].get<std::vector<int32_t>>();
    EngineConfig without = config_of(GetParam(), dir);
    without.speculative = {};
    std::vector<int32_t> whole = prompt;
    const auto plain = Core(without).run(test::greedy(prompt, 16))[0].ids;
    whole.insert(whole.end(), plain.begin(), plain.end());
    for (const int chunk : {512, 7})
      for (const bool accepts : {false, true}) {
        SCOPED_TRACE(testing::Message() << prompt.size() << " tokens in chunks of " << chunk
                                        << (accepts ? ", drafts accepted" : ""));
        EngineConfig config = config_of(GetParam(), dir);
        config.max_batched_tokens = chunk;
        config.prefix_cache = true;
        WatchedCore core(config, accepts ? whole : std::vector<int32_t>());
        const auto answer = core.run(prompt, 16);
        EXPECT_EQ(answer, plain);
        compare_drafts(core.proposals, text, compared);
        // Once more, behind a cached prefix.
        EXPECT_EQ(core.run(prompt, 16), answer);
        EXPECT_GT(core.stats().prefix_hits, 0);
        compare_drafts(core.proposals, text, compared);
        // And behind an answer that has ended: the next turn.
        WatchedCore turns(config, {});
        const std::vector<int32_t> begun(whole.begin(), whole.end() - 6);
        turns.run(prompt, 10);
        EXPECT_EQ(turns.run(begun, 6), std::vector<int32_t>(whole.end() - 6, whole.end()));
        EXPECT_GT(turns.stats().prefix_hits, static_cast<int64_t>(prompt.size()));
        compare_drafts(turns.proposals, text, compared);
        accepted += static_cast<int>(core.stats().speculative.accepted_tokens);
        if (HasFailure()) return;
      }
  }
  EXPECT_GT(compared.equal, 500);
  EXPECT_LT(compared.gap, kTolerance);
  EXPECT_GT(accepted, 50);
}

/// A preempted answer, and one that continues a cancelled one, find the rows of the head too, with those that
/// waited for drafts. Pages of one token: all rows are found.
TEST_P(DraftHeads, RowsThatWaitAreThereAfterAPreemption) {
  const json golden = read_json(head_dir(GetParam().head) + "/drafts.json");
  const json& text = golden["texts"][0];
  const auto prompt = text["ids"].get<std::vector<int32_t>>();
  EngineConfig config = config_of(GetParam(), model());
  config.attention.page_size = 1;
  config.num_pages = 512;
  config.max_running_requests = 2;
  for (const bool alone : {true, false}) {  // drafts while two decode, or not: then many rows wait
    config.speculative.by_batch.clear();
    if (alone) config.speculative.by_batch = {{2, 8, 0}};
    test::ComparedDrafts compared;
    WatchedCore core(config, {});
    core.watched().watch(prompt);
    std::vector<int32_t> first, got, other, begun;
    core.add(test::prompt_of(20, 3), 11, first, "x");
    core.add(prompt, 16, got, "x");
    while (got.size() < 6)
      core.step();
    core.proposals.clear();
    core.add(test::prompt_of(9, 4), 3, other, "y");
    core.finish();
    EXPECT_EQ(core.stats().preemptions, 1);
    compare_drafts(core.proposals, text, compared);
    EXPECT_GE(compared.equal, 10);
    EXPECT_LT(compared.gap, kTolerance) << (alone ? "alone" : "all");

    std::vector<int32_t> whole = prompt;
    whole.insert(whole.end(), got.begin(), got.end());
    WatchedCore turns(config, {});
    turns.watched().watch(prompt);
    turns.add(test::prompt_of(20, 3), 40, first, "x");
    const uint64_t id = turns.add(prompt, 16, begun, "x");
    while (begun.size() < 7)
      turns.step();
    turns.cancel(id);
    turns.finish();
    compared = {};
    EXPECT_EQ(turns.run({whole.begin(), whole.end() - 8}, 8),
              std::vector<int32_t>(whole.end() - 8, whole.end()));
    compare_drafts(turns.proposals, text, compared);
    EXPECT_GE(compared.equal, 8);
    EXPECT_LT(compared.gap, kTolerance) << "cancelled, " << (alone ? "alone" : "all");
  }
}

/// Chunks, few pages, cached prefixes, cancels, several answers, drafts of every length.
TEST_P(DraftHeadStorm, AnswersAreThoseWithoutDrafts) {
  auto cases = test::cases(24, 7, "CPU_ATTN");
  Core alone(test::config_of({}, "CPU_ATTN"));
  for (uint32_t i = 0; i < 4; ++i) {  // long enough to be preempted
    test::Case c{test::greedy(test::prompt_of(30, 100 + i), 100), {}};
    c.alone = alone.run(c.request);
    cases.insert(cases.begin(), std::move(c));
  }
  int64_t drafted = 0, preempted = 0, hits = 0;
  for (const int k : {1, 5, 15}) {
    test::Setting setting{4, true, 48, 8, 66, 1};
    EngineConfig config = test::config_of(setting, "CPU_ATTN");
    config.speculative = config_of(GetParam(), "").speculative;
    config.speculative.model_dtype.reset();
    config.speculative.num_tokens = k;
    Core core(config);
    std::vector<std::shared_ptr<Answers>> got;
    for (const test::Case& c : cases) {
      core.add(c.request, got.emplace_back(std::make_shared<Answers>()));
      if (got.size() % 3 == 0) core->cancel(core.add(c.request, std::make_shared<Answers>()));
      core.step();
    }
    while (!core->idle())
      core.step();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(*got[i], cases[i].alone) << i << ", k " << k;
    const EngineStats stats = core->stats();
    EXPECT_EQ(stats.pages_in_use, 0);
    drafted += stats.speculative.draft_tokens;
    preempted += stats.preemptions;
    hits += stats.prefix_hits;
    if (HasFailure()) return;
  }
  EXPECT_GT(drafted, 1000);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(hits, 0);
}

/// The same with an MTP layer, greedy and sampled.
TEST_P(DraftHeads, MtpLayersChangeNoAnswer) {
  if (GetParam().method != DraftMethod::mtp) return;
  const auto engine_of = [&](const test::Setting& setting, int k) {
    EngineConfig config = test::config_of(setting, "");
    config.model = model();
    if (k == 0) return config;
    config.speculative.method = DraftMethod::mtp;
    config.speculative.num_tokens = k;
    config.speculative.adaptive = k != 15;
    return config;
  };
  std::vector<test::Case> cases(14);
  Core alone(engine_of({}, 0));
  for (size_t i = 0; i < cases.size(); ++i) {
    GenerateRequest& request = cases[i].request;
    request = test::greedy(test::prompt_of(20 + static_cast<int>(i % 4) * 9, 2), 40);
    const auto own = test::prompt_of(1 + static_cast<int>(i % 5), static_cast<uint32_t>(i));
    request.prompt_ids.insert(request.prompt_ids.end(), own.begin(), own.end());
    request.sampling.temperature = static_cast<float>(i % 2);
    request.sampling.seed = i;
    request.sampling.logprobs = 2;
    if (i % 3 == 0) request.sampling.frequency_penalty = 0.5f;
    cases[i].alone = alone.run(request);
  }
  int64_t drafted = 0, preempted = 0, hits = 0;
  for (const auto& [k, setting] : {std::pair{15, test::Setting{4, true, 9, 6, 66, 1}},
                                   std::pair{1, test::Setting{1, true, 512, 14, 300, 1}},
                                   std::pair{5, test::Setting{16, true, 37, 8, 17, 1}}}) {
    Core core(engine_of(setting, k));
    std::vector<std::shared_ptr<Answers>> got;
    for (const test::Case& c : cases) {
      core.add(c.request, got.emplace_back(std::make_shared<Answers>()));
      if (got.size() % 4 == 0) core->cancel(core.add(c.request, std::make_shared<Answers>()));
      core.step();
    }
    while (!core->idle())
      core.step();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(*got[i], cases[i].alone) << i << ", k " << k;
    const EngineStats stats = core->stats();
    EXPECT_EQ(stats.pages_in_use, 0);
    EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
    drafted += stats.speculative.draft_tokens;
    preempted += stats.preemptions;
    hits += stats.prefix_hits;
  }
  EXPECT_GT(drafted, 500);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(hits, 0);
}

std::string refusal(const EngineConfig& config) {
  const auto engine = Engine::create(config);
  return engine.ok() ? std::string() : engine.error().message;
}

/// The EAGLE-3 head with another config.json.
std::string changed(const test::TempDir& dir, const std::function<void(json&)>& change,
                    const std::string& from = "eagle3_bf16") {
  json config = read_json(head_dir(from) + "/config.json");
  change(config);
  write_text(fs::path(dir.path()) / "config.json", config.dump());
  fs::copy_file(head_dir(from) + "/model.safetensors", fs::path(dir.path()) / "model.safetensors",
                fs::copy_options::overwrite_existing);
  return std::string(dir.path());
}

TEST(DraftHeadRefusals, NameWhatDoesNotFit) {
  const test::TempDir dir;
  EngineConfig config = config_of(kHeads[0], test::fixture_dir(test::kLlama));
  const auto expect = [&](const std::function<void(json&)>& change, const char* part) {
    config.speculative.model = changed(dir, change);
    EXPECT_THAT(refusal(config), HasSubstr(part));
  };
  EXPECT_EQ(refusal(config), "");
  expect([](json& c) { c["hidden_size"] = 32; },
         "hidden states of width 32 (hidden_size), the model's have 64");
  expect([](json& c) { c["target_hidden_size"] = 128; },
         "width 128 (target_hidden_size), the model's have 64");
  expect([](json& c) { c["vocab_size"] = 256; }, "is for 256 tokens (vocab_size), the model has 258");
  expect([](json& c) { c["num_hidden_layers"] = 2; }, "heads of one layer are supported");
  expect([](json& c) { c["model_type"] = "deepseek_v3"; }, "llama and of qwen3 are supported");
  expect([](json& c) { c["eagle_aux_hidden_state_layer_ids"] = {0, 3}; }, "layers, 0 to the model's 2");
  expect([](json& c) { c.erase("eagle_aux_hidden_state_layer_ids"); }, "the model has 2 layers, too few");
  expect([](json& c) { c["eagle_aux_hidden_state_layer_ids"] = {0, 1}; }, "fc.weight");
  expect([](json& c) { c["draft_vocab_size"] = 200; }, "it must be int64 [200]");
  config.speculative.method = DraftMethod::eagle;
  EXPECT_THAT(refusal(config), HasSubstr("is one of EAGLE-3; give the method eagle3"));
  config.speculative.model = head_dir("eagle1_bf16");
  EXPECT_EQ(refusal(config), "");
  config.speculative.method = DraftMethod::eagle3;
  EXPECT_THAT(refusal(config), HasSubstr("is none of EAGLE-3; give the method eagle"));
  fs::remove(fs::path(dir.path()) / "model.safetensors");
  write_text(fs::path(dir.path()) / "pytorch_model.bin", "x");
  write_text(fs::path(dir.path()) / "config.json",
             read_json(head_dir("eagle3_bf16") + "/config.json").dump());
  config.speculative.model = std::string(dir.path());
  EXPECT_THAT(refusal(config), testing::AllOf(HasSubstr("pickled"), HasSubstr("convert")));
  config.speculative.model.clear();
  config.speculative.method = DraftMethod::mtp;
  EXPECT_THAT(refusal(config), HasSubstr("num_nextn_predict_layers"));
}

}  // namespace
}  // namespace fovea
