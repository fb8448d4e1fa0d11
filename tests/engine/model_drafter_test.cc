// Drafts of a model: right where it is the target itself, refused where its tokens are others, and without
// leaks.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/thread_pool.h"
#include "engine/model_drafter.h"
#include "tests/engine/storm.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using test::Answers;
using test::config_of;
using test::Core;
using test::prompt_of;
using testing::HasSubstr;

EngineConfig with_model(const std::string& model, int drafts, const std::string& backend = "CPU_ATTN") {
  EngineConfig config = config_of({}, backend);
  config.speculative.method = DraftMethod::draft_model;
  config.speculative.model = model;
  config.speculative.num_tokens = drafts;
  return config;
}

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 6; ++i) {
    all.push_back(test::greedy(prompt_of(5 + 20 * static_cast<int>(i), i), 30));
    all.back().sampling.logprobs = 1;
    if (i % 2 == 0) continue;
    all.back().sampling.temperature = 0.7f;
    all.back().sampling.seed = i;
  }
  return all;
}

TEST(ModelDrafter, TheTargetItselfIsAlwaysRightAtTemperatureZero) {
  for (const int k : {1, 4, 15}) {
    EngineConfig config = with_model(test::fixture_dir(test::kLlama), k);
    config.kv_cache_dtype = KvCacheDType::auto_;  // the drafter's
    Core core(config);
    config.speculative = {};
    Core plain(config);
    const GenerateRequest request = requests()[2];
    EXPECT_EQ(core.run(request), plain.run(request));
    const SpeculativeCounts counts = core->stats().speculative;
    EXPECT_EQ(counts.accepted_tokens, counts.draft_tokens) << k;
    EXPECT_GE(counts.draft_tokens, 28 - counts.drafts);
  }
}

TEST(ModelDrafter, AnswersAreThoseWithoutDrafts) {
  Core plain(config_of({}, "CPU_ATTN"));
  std::vector<Answers> want;
  for (const GenerateRequest& request : requests())
    want.push_back(plain.run(request));
  for (const bool storm : {false, true}) {
    EngineConfig config = with_model(test::fixture_dir(test::kLlama), 4);
    config.speculative.attention_backend = "TORCH_NATIVE";
    config.speculative.max_model_len = 100;  // later prompts get none
    if (storm) config.num_pages = 17;
    Core core(config);
    std::vector<std::shared_ptr<Answers>> got;
    for (const GenerateRequest& request : requests()) {
      core.add(request, got.emplace_back(std::make_shared<Answers>()));
      core->cancel(core.add(request, std::make_shared<Answers>()));
      core.step();
    }
    while (!core->idle())
      core.step();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(*got[i], want[i]) << i;
    EXPECT_GT(core->stats().speculative.accepted_tokens, 30);
    EXPECT_EQ(core->stats().pages_in_use, 0);
  }
}

/// Through the drafter alone: all pages come back.
TEST(ModelDrafter, PagesOfEndedSequencesAreFree) {
  ThreadPool pool(1);
  Stream stream(pool);
  SpeculativeConfig config;
  config.method = DraftMethod::draft_model;
  config.model = test::fixture_dir(test::kLlama);
  ModelDrafter::Target target;
  target.sampled_vocab = 256;
  target.max_seq_len = 64;
  target.max_running = 3;
  target.max_batched_tokens = 16;
  DrafterDevice device;
  device.host = &stream;
  device.registry = &builtin_backends();
  auto drafter = ModelDrafter::create(config, target, device);
  ASSERT_TRUE(drafter.ok()) << drafter.error().message;
  ASSERT_TRUE((*drafter)->place(0, {}, {}).ok());
  const int64_t pages = (*drafter)->free_pages();
  for (uint32_t round = 0; round < 20; ++round) {
    std::vector<std::vector<int32_t>> texts;
    std::vector<DraftJob> jobs;
    for (uint32_t i = 0; i < 3; ++i)
      texts.push_back(prompt_of(1 + static_cast<int>(round * 3 + i), round + i));
    for (uint64_t i = 0; i < 3; ++i)
      jobs.push_back({round * 3 + i, texts[i], 1, "", 5, {}});
    (*drafter)->propose(jobs);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(jobs[i].drafts.size(), std::min<size_t>(5, 64 - texts[i].size()));
    EXPECT_LT((*drafter)->free_pages(), pages);
    for (const DraftJob& job : jobs)
      (*drafter)->end(job.id, job.tokens, 1, "");
    EXPECT_EQ((*drafter)->free_pages(), pages);
  }
}

TEST(ModelDrafter, OtherModelsAreRefusedWithTheReason) {
  const auto refusal = [](const EngineConfig& config) {
    const auto engine = Engine::create(config);
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_THAT(refusal(with_model("/nowhere", 3)), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal(with_model(test::fixture_dir("whisper_d8_fp32"), 3)), HasSubstr("is no decoder"));
  // The same model with two tokens exchanged.
  const test::TempDir dir;
  for (const auto& file : fs::directory_iterator(test::fixture_dir(test::kLlama)))
    fs::copy(file.path(), fs::path(dir.path()) / file.path().filename());
  std::ifstream in(fs::path(dir.path()) / "tokenizer.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const size_t at = text.find("<s>");
  ASSERT_NE(at, std::string::npos);
  for (size_t next = at; next != std::string::npos; next = text.find("<s>", next))
    text.replace(next, 3, "<q>");
  std::ofstream(fs::path(dir.path()) / "tokenizer.json") << text;
  EXPECT_THAT(refusal(with_model(std::string(dir.path()), 3)), HasSubstr("has other tokens: id"));
}

}  // namespace
}  // namespace fovea
