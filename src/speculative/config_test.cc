#include <gtest/gtest.h>

#include <numeric>

#include "fovea/speculative.h"

namespace fovea {
namespace {

std::string refusal(const SpeculativeConfig& config) {
  const Status status = validate(config);
  return status ? "" : status.error().message;
}

SpeculativeConfig ngram() {
  SpeculativeConfig config;
  config.method = DraftMethod::ngram;
  config.num_tokens = 5;
  return config;
}

TEST(SpeculativeConfig, RefusalsNameTheKeyAndTheRange) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal(ngram()), "");
  const auto expect = [](auto change, const char* part) {
    SpeculativeConfig config = ngram();
    change(config);
    EXPECT_NE(refusal(config).find(part), std::string::npos) << refusal(config);
    EXPECT_NE(refusal(config), "");
  };
  expect([](auto& c) { c.num_tokens = 0; }, "num_speculative_tokens is 0; it must be 1 to 15");
  expect([](auto& c) { c.num_tokens = 16; }, "num_speculative_tokens is 16");
  expect([](auto& c) { c.prompt_lookup_min = 6; }, "prompt_lookup_max is 5");
  expect([](auto& c) { c.prompt_lookup_max = 0; }, "prompt_lookup_max is 0");
  expect([](auto& c) { c.by_batch = {{3, 2, 1}}; }, "range 3 to 2");
  expect([](auto& c) { c.by_batch = {{1, 2, 16}}; }, "per_batch_size is 16");
  expect([](auto& c) { c.synthetic_rates = {0.5}; }, "1 entries");
  expect([](auto& c) { c.synthetic_rates = {0.5, 0.6, 0, 0, 0}; }, "0.6");
  expect([](auto& c) { c.method = DraftMethod::draft_model; }, "\"model\"");
  expect(
      [](auto& c) {
        c.method = DraftMethod::suffix;
        c.suffix_min_token_prob = 1.5;
      },
      "suffix_decoding_min_token_prob is 1.5");
}

TEST(SpeculativeConfig, SyntheticRatesHaveTheMeanThatWasAskedFor) {
  for (const double length : {1.0, 1.3, 2.0, 3.0, 5.9, 6.0}) {
    const auto rates = synthetic_rates_of(length, 5);
    ASSERT_TRUE(rates.ok());
    EXPECT_NEAR(1 + std::accumulate(rates->begin(), rates->end(), 0.0), length, 1e-9);
    SpeculativeConfig config = ngram();
    config.synthetic_rates = *rates;
    EXPECT_EQ(refusal(config), "");
  }
  EXPECT_FALSE(synthetic_rates_of(6.1, 5).ok());
  EXPECT_FALSE(synthetic_rates_of(0.9, 5).ok());
}

TEST(SpeculativeConfig, CountsAreThoseOfVllm) {
  SpeculativeCounts counts;
  EXPECT_EQ(counts.mean_acceptance_length(), 0);
  counts.add(0, 0);
  counts.add(3, 0);
  counts.add(5, 2);
  counts.add(1, 1);
  EXPECT_EQ(counts.drafts, 3);
  EXPECT_EQ(counts.draft_tokens, 9);
  EXPECT_EQ(counts.accepted_tokens, 3);
  EXPECT_EQ(counts.accepted_by_position, (std::vector<int64_t>{2, 1, 0, 0, 0}));
  EXPECT_EQ(counts.mean_acceptance_length(), 2);
}

}  // namespace
}  // namespace fovea
