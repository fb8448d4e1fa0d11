#include "engine/validate_sampling.h"

#include <gtest/gtest.h>

#include <limits>

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Change>
std::string message(Change change, SamplingLimits limits = {100, 98, 20}) {
  SamplingParams p;
  change(p);
  const Status status = validate_sampling(p, limits);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  return status.error().message;
}

TEST(ValidateSampling, DefaultsAndLimitsAreFine) {
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& p) {
              p.top_k = -1;
              p.repetition_penalty = 1e-3f;
              p.frequency_penalty = -2;
              p.presence_penalty = 2;
              p.n = 128;
              p.max_tokens = p.min_tokens = 7;
              p.logprobs = 20;
              p.logit_bias = {{0, -100}, {97, 100}};
              p.allowed_token_ids = {0, 97, 97};
              p.bad_words = {" a"};
              p.stop = {" "};
              p.stop_token_ids = {0, 99, 99};
            }),
            "");
}

/// Every message names the parameter and the given value.
TEST(ValidateSampling, SaysWhatWasGivenAndWhatIsAllowed) {
  const auto names = [](const std::string& text, std::initializer_list<const char*> words) {
    EXPECT_NE(text, "");
    for (const char* word : words)
      EXPECT_NE(text.find(word), std::string::npos) << text << " lacks " << word;
  };
  names(message([](auto& p) { p.temperature = -1; }), {"temperature is -1", "0 or more"});
  names(message([](auto& p) { p.timestamps = TimestampRules{98, 1, 2, 3}; }),
        {"timestamps has 98", "0 to 97"});
  names(message([](auto& p) { p.timestamps = TimestampRules{1, 1, 1, -1}; }), {"most_initial is -1", "0 or"});
  names(message([](auto& p) { p.temperature = kNan; }), {"temperature is nan"});
  names(message([](auto& p) { p.temperature = kInf; }), {"temperature is inf"});
  names(message([](auto& p) { p.top_p = 0; }), {"top_p is 0"});
  names(message([](auto& p) { p.top_p = 1.1f; }), {"top_p is 1.1"});
  names(message([](auto& p) { p.top_p = kNan; }), {"top_p"});
  names(message([](auto& p) { p.min_p = -0.1f; }), {"min_p is -0.1"});
  names(message([](auto& p) { p.min_p = kNan; }), {"min_p"});
  names(message([](auto& p) { p.top_k = -2; }), {"top_k is -2"});
  for (float bad : {0.0f, -1.0f, kNan, kInf})
    names(message([bad](auto& p) { p.repetition_penalty = bad; }), {"repetition_penalty is", "above 0"});
  for (float bad : {-2.1f, 2.1f, kNan, kInf, -kInf}) {
    names(message([bad](auto& p) { p.frequency_penalty = bad; }), {"frequency_penalty is", "-2 to 2"});
    names(message([bad](auto& p) { p.presence_penalty = bad; }), {"presence_penalty is", "-2 to 2"});
  }
  names(message([](auto& p) { p.max_tokens = -1; }), {"max_tokens is -1"});
  names(message([](auto& p) { p.min_tokens = -1; }), {"min_tokens is -1"});
  names(message([](auto& p) {
          p.max_tokens = 4;
          p.min_tokens = 5;
        }),
        {"min_tokens is 5", "max_tokens, which is 4"});
  names(message([](auto& p) { p.n = 0; }), {"n is 0", "1 to 128"});
  names(message([](auto& p) { p.n = 1 << 30; }), {"n is 1073741824", "1 to 128"});
  names(message([](auto& p) {
          p.n = 2;
          p.temperature = 0;
        }),
        {"n is 2", "temperature 0"});
  names(message([](auto& p) {
          p.n = 2;
          p.max_tokens = 0;
        }),
        {"n is 2", "max_tokens 0"});
}

TEST(ValidateSampling, TextsAndTokens) {
  const auto has = [](const std::string& text, const char* word) {
    EXPECT_NE(text.find(word), std::string::npos) << text << " lacks " << word;
  };
  has(message([](auto& p) { p.stop = {""}; }), "stop has an empty string");
  has(message([](auto& p) { p.stop = {"\xC3"}; }), "stop has a string that is not valid UTF-8");
  has(message([](auto& p) { p.stop.assign(65, "x"); }), "stop has 65 strings; at most 64");
  has(message([](auto& p) { p.stop = {std::string(1025, 'x')}; }), "1025 bytes; at most 1024");
  has(message([](auto& p) { p.bad_words = {" \t"}; }), "bad_words has an empty string");
  has(message([](auto& p) { p.bad_words = {"a", "\xC3"}; }),
      "bad_words has a string that is not valid UTF-8");
  has(message([](auto& p) { p.bad_words.assign(1025, "x"); }), "bad_words has 1025 strings; at most 1024");
  has(message([](auto& p) { p.stop_token_ids = {100}; }),
      "stop_token_ids has 100; this model's ids are 0 to 99");
  has(message([](auto& p) { p.stop_token_ids = {-1}; }), "stop_token_ids has -1");
  has(message([](auto& p) { p.stop_token_ids.assign(1025, 1); }), "1025 ids");
  // Ids that only pad the vocabulary are never sampled: allowing or biasing them would have no effect.
  has(message([](auto& p) { p.logit_bias = {{98, 1}}; }), "logit_bias has 98; this model's ids are 0 to 97");
  has(message([](auto& p) { p.logit_bias = {{-1, 1}}; }), "logit_bias has -1");
  for (float bad : {100.5f, -101.0f, kNan, kInf})
    has(message([bad](auto& p) { p.logit_bias = {{3, bad}}; }), "logit_bias of token 3 is ");
  has(message([](auto& p) { p.logit_bias = {{3, 1}, {4, 1}, {3, 1}}; }), "token 3 is given twice");
  has(message([](auto& p) { p.logit_bias.resize(1025); }), "1025 tokens; at most 1024");
  has(message([](auto& p) { p.allowed_token_ids.emplace(); }), "allowed_token_ids is empty");
  has(message([](auto& p) { p.allowed_token_ids = {1, 98}; }), "allowed_token_ids has 98");
  has(message([](auto& p) { p.allowed_token_ids.emplace(99, 1); }), "99 ids; at most 98");
}

TEST(ValidateSampling, LogprobsAreBoundedByTheServersLimitAndTheVocabulary) {
  const auto given = [](int k, int most) {
    return message([k](auto& p) { p.logprobs = k; }, {100, 98, most});
  };
  EXPECT_EQ(given(0, 20), "");
  EXPECT_NE(given(21, 20).find("logprobs is 21; it must be at most 20"), std::string::npos);
  EXPECT_NE(given(-1, 20).find("logprobs is -1"), std::string::npos);
  EXPECT_NE(given(-2, -1), "");
  EXPECT_EQ(given(-1, -1), "");
  EXPECT_EQ(given(100, -1), "");
  EXPECT_NE(given(101, -1).find("at most 100"), std::string::npos);
  EXPECT_EQ(given(0, 0), "");
  EXPECT_NE(given(1, 0), "");
  EXPECT_NE(
      validate_logprobs("prompt_logprobs", 21, {100, 98, 20}).error().message.find("prompt_logprobs is 21"),
      std::string::npos);
}

}  // namespace
}  // namespace fovea
