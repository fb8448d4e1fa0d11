// Answers under memory pressure match those of an idle engine, bit for bit: windows whose old pages are
// freed, encoders, pools of minimal size, prefix hits, preemption and chunks, with NaN in all unowned memory.
#include <array>
#include <random>
#include <tuple>

#include "base/thread_pool.h"
#include "tests/engine/fake_encoder_decoder.h"
#include "tests/engine/runner.h"

namespace fovea {
namespace {

using test::expect_same_answer;
using test::prompt_of;
using test::Runner;

SchedulerConfig ample() {
  SchedulerConfig c;
  c.max_running = 8;
  c.max_batched_tokens = c.max_logit_rows = 256;
  c.page_size = 16;
  c.num_pages = 400;
  c.max_seq_len = 256;
  c.prefix_cache = false;
  return c;
}

/// The tiny Llama with windows that its config does not have; 0 = none.
std::unique_ptr<Model> windowed_model(std::array<int, 2> windows) {
  const std::string dir = test::fixture_dir(test::kLlama);
  ModelConfig config = *load_model_config(dir);
  for (size_t i = 0; i < windows.size(); ++i)
    config.layers.at(i).window = windows[i];
  ThreadPool pool(1);
  Stream stream(pool);
  ModelLoadOptions load;
  load.dir = dir;
  return *Model::load(config, load, stream);
}

struct Request {
  std::vector<int32_t> prompt;
  int new_tokens = 0;
  bool scores = false;
};

/// Prompts that share prefixes, some longer than any window here.
std::vector<Request> requests(uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Request> out;
  for (uint32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt = prompt_of(80, 3);
    prompt.resize(rng() % 80);
    const auto own = prompt_of(static_cast<int>(rng() % 60) + 1, seed * 10 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    out.push_back({prompt, static_cast<int>(rng() % 40) + 1, rng() % 4 == 0});
  }
  return out;
}

class Pressure : public testing::TestWithParam<const char*> {
 protected:
  test::RunnerOptions options(int threads = 1) const { return {GetParam(), threads}; }

  /// Each request alone, in a large pool that keeps every page.
  std::vector<std::unique_ptr<Runner>> alone(const std::vector<Request>& all, std::array<int, 2> windows) {
    std::vector<std::unique_ptr<Runner>> runners;
    for (const Request& r : all) {
      runners.push_back(std::make_unique<Runner>(windowed_model(windows), ample(), options(1)));
      runners.back()->add(r.prompt, r.new_tokens, true);
      runners.back()->run();
    }
    return runners;
  }

  /// Random steps of all requests, which arrive at random times, in a pool of `config`.
  void compare(const std::vector<Request>& all, const std::vector<std::unique_ptr<Runner>>& want,
               std::array<int, 2> windows, const SchedulerConfig& config, uint32_t seed,
               int64_t* preemptions) {
    std::mt19937 rng(seed);
    Runner runner(windowed_model(windows), config, options(seed % 3 == 1 ? 2 : 1));
    size_t next = 0;
    while (next < all.size() || !runner.scheduler().idle()) {
      for (; next < all.size() && rng() % 3 == 0; ++next)
        runner.add(all[next].prompt, all[next].new_tokens, all[next].scores);
      if (!runner.scheduler().idle()) runner.step();
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(runner.scheduler().pages_in_use(), 0);
    *preemptions += runner.scheduler().stats().preemptions;
    hits_ += runner.scheduler().stats().prefix_hits;
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i);
      expect_same_answer(runner.job(i), want[i]->job(0));
    }
  }

  int64_t hits_ = 0;
};

TEST_P(Pressure, WindowedAnswersDoNotDependOnPagesThatAreGone) {
  int64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const int window = std::array{1, 5, 24, 33}[seed % 4];
    const std::array<int, 2> windows = {window, seed % 2 ? window : std::max(1, window / 2)};
    const std::vector<Request> all = requests(seed);
    const auto want = alone(all, windows);
    for (const int page_size : {1, 4, 16}) {
      for (const bool cache : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", page size " << page_size << ", cache " << cache);
        SchedulerConfig config = ample();
        config.page_size = page_size;
        config.window = window;
        config.prefix_cache = cache;
        config.max_batched_tokens = std::array{3, 17, 64}[(seed + static_cast<uint32_t>(page_size)) % 3];
        config.max_logit_rows = config.max_running;
        config.watermark = seed % 2 ? 1 : 8;
        config.num_pages = longest_sequence_pages(config) * (seed % 3 + 2) / 2;
        compare(all, want, windows, config, seed, &preemptions);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(hits_, 100);
  EXPECT_GT(preemptions, 0);
}

TEST_P(Pressure, AWindowInSomeLayersKeepsAllPagesAndTheSameBits) {
  int64_t preemptions = 0;
  const std::array<int, 2> windows = {7, 0};
  const std::vector<Request> all = requests(77);
  const auto want = alone(all, windows);
  SchedulerConfig config = ample();
  config.page_size = 4;
  config.max_batched_tokens = 19;
  config.max_logit_rows = config.max_running;
  config.prefix_cache = true;
  config.watermark = 1;
  config.max_seq_len = 200;
  config.num_pages = longest_sequence_pages(config);
  compare(all, want, windows, config, 1, &preemptions);
  EXPECT_GT(preemptions, 0);
}

/// The comparisons above could not fail otherwise: a window does change the answer.
TEST_P(Pressure, AWindowChangesTheAnswer) {
  const std::vector<Request> all = {{prompt_of(60, 5), 8, false}};
  const auto windowed = alone(all, {9, 9}), whole = alone(all, {0, 0});
  EXPECT_NE(windowed[0]->job(0).logits.at(59), whole[0]->job(0).logits.at(59));
  EXPECT_EQ(windowed[0]->job(0).logits.at(7), whole[0]->job(0).logits.at(7));
}

constexpr int kEncoderPositions = 90;

SchedulerConfig encoding() {
  SchedulerConfig c = ample();
  c.max_encoder_len = kEncoderPositions;
  return c;
}

std::vector<int32_t> ids_of(int n, uint32_t salt) {
  std::vector<int32_t> ids = prompt_of(n, salt);
  for (int32_t& id : ids)
    id %= test::FakeEncoderDecoder::kVocab;
  return ids;
}

TEST_P(Pressure, EncodedAnswersDoNotDependOnCompanyPagesOrPreemption) {
  struct Encoded {
    std::vector<int32_t> text, prompt;
    int new_tokens;
  };
  std::vector<Encoded> all;
  std::vector<std::unique_ptr<Runner>> want;
  for (uint32_t i = 0; i < 7; ++i) {
    // One of them has the encoder's maximum length: far more rows than a step.
    all.push_back({ids_of(i == 3 ? kEncoderPositions : static_cast<int>(i * 11 % 40) + 1, i),
                   ids_of(static_cast<int>(i) % 3 + 1, 50 + i), 12 + static_cast<int>(i)});
    want.push_back(std::make_unique<Runner>(std::make_unique<test::FakeEncoderDecoder>(kEncoderPositions),
                                            encoding(), options(1)));
    want.back()->add(all.back().prompt, all.back().new_tokens, true, all.back().text);
    want.back()->run();
  }
  EXPECT_NE(want[0]->job(0).sequence.tokens, want[1]->job(0).sequence.tokens);
  int64_t preemptions = 0;
  for (const int page_size : {1, 4, 16}) {
    SCOPED_TRACE(page_size);
    SchedulerConfig config = encoding();
    config.page_size = page_size;
    config.max_batched_tokens = 16;
    config.max_logit_rows = 8;
    config.max_seq_len = 24;
    config.watermark = 1;
    config.num_pages = longest_sequence_pages(config) + 3;
    auto model = std::make_unique<test::FakeEncoderDecoder>(kEncoderPositions);
    const test::FakeEncoderDecoder& fake = *model;
    Runner runner(std::move(model), config, options());
    for (const Encoded& e : all)
      runner.add(e.prompt, e.new_tokens, false, e.text);
    runner.run();
    if (HasFatalFailure()) return;
    preemptions += runner.scheduler().stats().preemptions;
    int rows = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same_answer(runner.job(i), want[i]->job(0));
      rows += static_cast<int>(all[i].text.size()) * (1 + runner.job(i).sequence.preemptions);
    }
    EXPECT_EQ(fake.encoded_rows, rows);  // once, and once more after each preemption
    EXPECT_LT(fake.encodes, static_cast<int>(all.size()) + 1 + runner.scheduler().stats().preemptions);
  }
  EXPECT_GT(preemptions, 0);
}

TEST_P(Pressure, WhatIsEncodedChangesTheAnswerAndOnlyItsOwn) {
  const auto logits = [&](const std::vector<int32_t>& text) {
    Runner runner(std::make_unique<test::FakeEncoderDecoder>(kEncoderPositions), encoding(), options());
    runner.add(ids_of(4, 1), 2, true, text);
    runner.add(ids_of(4, 1), 2, true, ids_of(20, 2));
    runner.run();
    return std::pair(runner.job(0).logits.at(0), runner.job(1).logits.at(0));
  };
  auto text = ids_of(20, 9);
  const auto first = logits(text);
  text.back() = (text.back() + 1) % test::FakeEncoderDecoder::kVocab;
  const auto second = logits(text);
  EXPECT_NE(first.first, second.first);
  EXPECT_EQ(first.second, second.second);
}

INSTANTIATE_TEST_SUITE_P(Backends, Pressure, testing::Values("TORCH_NATIVE", "CPU_ATTN"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace fovea
