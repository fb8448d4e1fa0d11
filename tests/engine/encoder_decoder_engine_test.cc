// Encoder-decoder models (BART, Whisper) in the engine on a device whose memory the host cannot access and
// whose operations run late: greedy answers are the CPU's, and bits depend neither on overlap, graphs,
// chunks, pages, time nor on what else is admitted.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/device_engine.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using Answers = std::vector<test::DeviceAnswer>;
using Config = test::DeviceConfig;
using test::DeviceEngine;

constexpr Overlap kOneByOne{1, false}, kAhead{2, true}, kWaits{2, false};

class EncoderDecoderEngine : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto config = load_model_config(test::fixture_dir(GetParam()));
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
  }

  /// Inputs of many lengths; every other answer may end early, and has its last token forced if the model has
  /// such a token.
  std::vector<GenerateRequest> requests(int count, bool sampled) const {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < count; ++i) {
      GenerateRequest r;
      const int rows = 1 + i * 5 % 13;
      const int bins = config_.encoder->mel_bins;
      for (int v = 0; v < 2 * rows * bins; ++v)
        r.encoder_features.push_back(normal(rng));
      for (int v = 0; bins == 0 && v < rows; ++v)
        r.encoder_ids.push_back(static_cast<int32_t>(rng() % 200));
      r.prompt_ids.push_back(*config_.decoder_start_token_id);
      for (int t = 0; t < i * 3 % 11; ++t)
        r.prompt_ids.push_back(static_cast<int32_t>(rng() % 200));
      r.sampling.max_tokens = 8 + i * 7 % 30;
      r.sampling.temperature = sampled && i % 2 ? 0.9f : 0.0f;
      r.sampling.top_p = i % 3 ? 1.0f : 0.8f;
      r.sampling.seed = static_cast<uint64_t>(i);
      r.sampling.ignore_eos = i % 4 < 2;
      r.sampling.logprobs = 2;
      if (sampled && i == 3) r.prompt_logprobs = 1;
      r.last_logits = i == 4;
      requests.push_back(std::move(r));
    }
    return requests;
  }

  ModelConfig config_;
};

TEST_P(EncoderDecoderEngine, GreedyAnswersAreTheCpus) {
  const auto asked = requests(9, false);
  EngineConfig c = test::fixture_config(GetParam());
  c.dtype = DType::f32;
  const auto host = test::make_engine(c);
  ASSERT_NE(host, nullptr);
  std::vector<std::shared_ptr<test::Answer>> want;
  std::vector<std::vector<TokenLogprobs>> logprobs(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    want.push_back(std::make_shared<test::Answer>());
    const auto id = host->submit(asked[i], [&, sink = test::collect(want[i]), i](const RequestOutput& out) {
      logprobs[i].insert(logprobs[i].end(), out.logprobs.begin(), out.logprobs.end());
      sink(out);
    });
    ASSERT_TRUE(id.ok()) << id.error().message;
  }
  host->wait_idle();

  DeviceEngine there(Config(), GetParam());
  EXPECT_EQ(there.runner().bytes().total(), there.measured().total());
  const Answers got = there.run(asked);
  EXPECT_GT(there.executor().counts().replays, 0);
  int decided = 0, forced = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSERT_EQ(logprobs[i].size(), want[i]->ids.size());
    bool all = true;
    for (size_t t = 0; t < want[i]->ids.size(); ++t) {
      const TokenLogprobs& p = logprobs[i][t];
      all = p.top.size() == 2 && p.top[0].logprob - p.top[1].logprob > 2e-3f;
      if (!all) break;
      ASSERT_LT(t, got[i].ids.size()) << "request " << i << " " << got[i].error;
      ASSERT_EQ(got[i].ids[t], want[i]->ids[t]) << "request " << i << ", token " << t;
      EXPECT_NEAR(got[i].logprobs[t].token.logprob, p.token.logprob, 1e-3);
      ++decided;
    }
    if (!all) continue;
    EXPECT_EQ(got[i].finish, want[i]->last.finish) << i;
    EXPECT_EQ(got[i].ids.size(), want[i]->ids.size()) << i;
    forced += config_.forcing.last && !asked[i].sampling.ignore_eos && !got[i].ids.empty() &&
              got[i].ids.back() == *config_.forcing.last;
  }
  EXPECT_GT(decided, 60);
  EXPECT_EQ(forced > 0, config_.forcing.last.has_value());
}

TEST_P(EncoderDecoderEngine, AnswersDependOnNothingButTheRequest) {
  const auto asked = requests(10, true);
  Answers want;
  for (const GenerateRequest& request : asked) {  // each alone: one input is encoded in a step
    DeviceEngine plain(Config{kOneByOne, {}}, GetParam());
    want.push_back(plain.run({request}).front());
    EXPECT_TRUE(want.back().error.empty()) << want.back().error;
    EXPECT_EQ(plain.executor().counts().overlapped, 0);
  }
  const int64_t longest = (config_.encoder->max_position + 3) / 4;
  const int64_t few = longest + 18;
  int64_t preemptions = 0;
  for (const Config& setup :
       {Config{}, Config{kOneByOne, {}}, Config{kAhead, {}}, Config{kOneByOne}, Config{kWaits},
        Config{kAhead, {3}, 17, 400, true}, Config{{3, true}, {1, 2, 4, 6}, 17, 400, false, 60, 1},
        Config{kAhead, {2, 6}, 64, few, false, 60, 2}, Config{kAhead, {1, 2, 4, 6}, 9, few, true}}) {
    DeviceEngine engine(setup, GetParam());
    int most_admitted = 0;
    const Answers got = engine.run(asked, [&, before = 0](int) mutable {
      const int running = engine.core().scheduler().running();
      most_admitted = std::max(most_admitted, running - before);
      before = running;
    });
    EXPECT_GE(most_admitted, 2);  // in one step: at most one is committed at a time
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "request " << i << ", " << setup.max_batched_tokens << " rows, "
                                 << setup.num_pages << " pages, " << setup.buckets.size() << " graphs";
    if (setup.overlap.open_steps == 1 || setup.overlap.future_tokens) {  // else all may be in each step
      EXPECT_EQ(engine.executor().counts().overlapped > 0, setup.overlap.open_steps > 1);
    }
    EXPECT_EQ(engine.executor().counts().future_tokens > 0, setup.overlap.future_tokens);
    EXPECT_EQ(engine.executor().counts().replays > 5, !setup.buckets.empty());
    preemptions += engine.core().stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);  // preempted requests are encoded again
}

/// The uses are counted per kind: cross attention in every step, the encoder's where inputs are admitted.
TEST_P(EncoderDecoderEngine, CountsTheAttentionOfItsKinds) {
  DeviceEngine engine(Config(), GetParam());
  engine.run(requests(4, false));
  int64_t decoder = 0, cross = 0, encoder = 0;
  for (const AttentionUse& use : engine.executor().attention()) {
    if (use.kind == LayerKind::full) decoder += use.calls;
    if (use.kind == LayerKind::cross) cross += use.calls;
    if (use.kind == LayerKind::encoder) encoder += use.calls;
    if (use.calls > 0) {
      EXPECT_GT(use.bytes, 0);
    }
  }
  EXPECT_GT(encoder, 0);
  EXPECT_GT(decoder, encoder);
  EXPECT_EQ(cross, decoder);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoderEngine,
                         testing::Values("bart_d8_fp32", "bart_scaled_d16_bf16", "whisper_d8_fp32",
                                         "whisper_d16_bf16"),
                         [](const auto& fixture) { return std::string(fixture.param); });

}  // namespace
}  // namespace fovea
