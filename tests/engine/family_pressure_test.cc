// Families with special page handling, through the whole engine: windows in every layer (Mistral) and
// encoders (BART, Whisper) give the same answers in the smallest pool as in a large one, bit for bit.
#include <string>

#include "model/config.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::Answer;
using test::make_engine;
using test::prompt_of;

constexpr char kMistral[] = "mistral_window_gqa2_d16_bf16";
constexpr char kBart[] = "bart_scaled_d16_bf16";
constexpr char kWhisper[] = "whisper_d8_fp32";

std::vector<int32_t> ids_below(int n, uint32_t salt, int vocab) {
  std::vector<int32_t> ids = prompt_of(n, salt);
  for (int32_t& id : ids)
    id %= vocab;
  return ids;
}

GenerateRequest answer_of(std::vector<int32_t> prompt, int tokens) {
  GenerateRequest request = test::greedy(std::move(prompt), tokens);
  request.last_logits = true;
  return request;
}

/// The smallest number of pages with which `config` is accepted.
int64_t least_pages(EngineConfig config) {
  int64_t refused = 0, taken = 4096;
  while (taken - refused > 1) {
    config.num_pages = (taken + refused) / 2;
    (Engine::create(config) ? taken : refused) = *config.num_pages;
  }
  return taken;
}

/// Compares a large pool with one of `least` pages; returns the preemptions in the latter.
int64_t compare(EngineConfig config, const std::vector<GenerateRequest>& requests, int64_t least) {
  config.num_pages = 4096;
  config.threads = 1;
  auto ample = make_engine(config);
  config.num_pages = least;
  auto tight = make_engine(config);
  if (!ample || !tight) return 0;
  const std::vector<Answer> want = test::run_all(*ample, requests), got = test::run_all(*tight, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i].last.finish, FinishReason::length) << got[i].last.error.message;
    EXPECT_EQ(got[i].ids, want[i].ids) << i;
    EXPECT_EQ(got[i].last.last_logits, want[i].last.last_logits) << i;
    EXPECT_FALSE(got[i].last.last_logits.empty());
  }
  EXPECT_EQ(tight->stats().pages_in_use, 0);
  return tight->stats().preemptions;
}

TEST(FamilyPressure, AWindowedPromptNeedsItsWindowOnly) {
  for (const bool cache : {true, false}) {
    EngineConfig config = test::fixture_config(kMistral, "CPU_ATTN");
    config.max_batched_tokens = 24;
    config.prefix_cache = cache;
    auto engine = make_engine(config);
    ASSERT_NE(engine, nullptr);
    const int vocab = engine->info().vocab_size, longest = engine->info().max_seq_len;
    const int window = engine->info().specs.front().mask.window_left + 1;
    ASSERT_GT(window, 0);
    engine.reset();
    const int64_t least = least_pages(config);
    EXPECT_EQ(least, (window - 1 + 24 + 2) / 4 + 1);
    EXPECT_LT(least * 4, longest);
    std::vector<GenerateRequest> requests;
    for (uint32_t i = 0; i < 5; ++i)
      requests.push_back(answer_of(ids_below(i % 2 ? longest - 60 : 9, i / 2, vocab), 50));
    compare(config, requests, least + 12);
    compare(config, requests, least);
  }
}

TEST(FamilyPressure, TextIsEncodedInTheSmallestPool) {
  EngineConfig config = test::fixture_config(kBart, "CPU_ATTN");
  config.max_batched_tokens = 16;
  config.max_seq_len = 64;
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  const int vocab = engine->info().vocab_size;
  engine.reset();
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    // Without a prompt: the decoder's start token. One text is longer than a step.
    requests.push_back(answer_of(i % 2 ? ids_below(3, i, vocab) : std::vector<int32_t>(), 45));
    requests.back().encoder_ids = ids_below(i == 2 ? 60 : 4 + static_cast<int>(i), 30 + i, vocab);
  }
  EXPECT_GT(compare(config, requests, least_pages(config)), 0);
}

TEST(FamilyPressure, AudioIsEncodedInTheSmallestPool) {
  EngineConfig config = test::fixture_config(kWhisper, "TORCH_NATIVE");
  config.max_batched_tokens = 8;
  const auto model = load_model_config(config.model);
  ASSERT_TRUE(model.ok());
  const int frames = 2 * model->encoder->max_position;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(answer_of({1, 2}, 12));
    for (int at = 0; at < frames / (i + 1) / 2 * 2 * model->encoder->mel_bins; ++at)
      requests.back().encoder_features.push_back(static_cast<float>((at * 7 + i) % 13) / 13.0f - 0.4f);
  }
  compare(config, requests, least_pages(config));
}

TEST(FamilyPressure, EncodersAloneAreRefusedWithWhatServesThem) {
  EngineConfig config = test::fixture_config("bert_d8_fp32");
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("fovea embed"), std::string::npos);
}

}  // namespace
}  // namespace fovea
