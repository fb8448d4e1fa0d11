#include "engine/logits_processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>

#include "engine/sampler.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
using Ids = std::vector<int32_t>;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The documented rules over the whole vocabulary, each operation in double and rounded to float. This equals
/// the float operation, because double has more than twice its digits.
std::vector<float> expected(std::vector<float> logits, const SamplingParams& p,
                            const std::vector<Ids>& bad_words, const Ids& ends, const Ids& prompt,
                            const Ids& answer) {
  const auto round = [](double x) { return static_cast<float>(x); };
  for (const Ids& word : bad_words) {
    const size_t n = word.size() - 1;
    if (n > answer.size()) continue;
    const Ids tail(answer.end() - static_cast<std::ptrdiff_t>(n), answer.end());
    if (tail == Ids(word.begin(), word.end() - 1)) logits[static_cast<size_t>(word.back())] = -kInf;
  }
  if (static_cast<int>(answer.size()) < p.min_tokens) {
    for (int32_t id : ends)
      logits[static_cast<size_t>(id)] = -kInf;
    for (int32_t id : p.stop_token_ids)
      logits[static_cast<size_t>(id)] = -kInf;
  }
  for (size_t id = 0; id < logits.size(); ++id) {
    float& x = logits[id];
    for (const LogitBias& b : p.logit_bias)
      if (b.token_id == static_cast<int32_t>(id))
        x = round(static_cast<double>(x) + static_cast<double>(b.bias));
    const auto count = std::count(answer.begin(), answer.end(), static_cast<int32_t>(id));
    const bool seen = count > 0 || std::count(prompt.begin(), prompt.end(), static_cast<int32_t>(id)) > 0;
    const double penalty = static_cast<double>(p.repetition_penalty);
    if (seen && x > 0)
      x = round(static_cast<double>(x) / penalty);
    else if (seen)
      x = round(static_cast<double>(x) * penalty);
    const float frequency = round(static_cast<double>(p.frequency_penalty) * static_cast<double>(count));
    if (count > 0) {
      x = round(static_cast<double>(x) - static_cast<double>(frequency));
      x = round(static_cast<double>(x) - static_cast<double>(p.presence_penalty));
    }
  }
  return logits;
}

struct Case {
  SamplingParams params;
  std::vector<Ids> bad_words;
  Ids ends, prompt;
  int vocab = 0;
};

Case random_case(std::mt19937& rng) {
  Case c;
  c.vocab = 5 + static_cast<int>(rng() % 60);
  const auto id = [&] { return static_cast<int32_t>(rng() % static_cast<uint32_t>(c.vocab)); };
  const auto value = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng);
  };
  SamplingParams& p = c.params;
  p.temperature = rng() % 3 == 0 ? 0.0f : value(0.3f, 2);
  p.top_k = rng() % 2 ? static_cast<int>(rng() % 20) : 0;
  p.top_p = rng() % 2 ? value(0.3f, 1) : 1;
  p.min_p = rng() % 3 == 0 ? value(0, 0.2f) : 0;
  if (rng() % 2) p.repetition_penalty = value(0.5f, 2);
  if (rng() % 2) p.frequency_penalty = value(-2, 2);
  if (rng() % 2) p.presence_penalty = value(-2, 2);
  p.min_tokens = static_cast<int>(rng() % 6);
  for (size_t i = rng() % 3; i > 0; --i)
    p.stop_token_ids.push_back(id());
  for (size_t i = rng() % 3; i > 0; --i)
    c.ends.push_back(id());
  Ids biased(static_cast<size_t>(c.vocab));
  for (size_t i = 0; i < biased.size(); ++i)
    biased[i] = static_cast<int32_t>(i);
  std::shuffle(biased.begin(), biased.end(), rng);
  for (size_t i = rng() % 4; i > 0; --i)
    p.logit_bias.push_back({biased[i], value(-5, 5)});
  for (size_t i = rng() % 4; i > 0; --i) {
    Ids word;
    for (size_t n = 1 + rng() % 3; n > 0; --n)
      word.push_back(id() % 5);  // few tokens, so that bad words occur
    c.bad_words.push_back(word);
  }
  if (rng() % 2) {
    p.allowed_token_ids.emplace();
    for (size_t i = 1 + rng() % 9; i > 0; --i)
      p.allowed_token_ids->push_back(id());
  }
  for (size_t i = 1 + rng() % 20; i > 0; --i)
    c.prompt.push_back(id());
  return c;
}

std::vector<float> random_logits(int vocab, std::mt19937& rng) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& x : logits)
    x = rng() % 20 == 0 ? -kInf : normal(rng);
  logits[rng() % logits.size()] = 1;
  return logits;
}

/// Growing answers of random requests: the edited logits equal the reference bit for bit, undo() restores
/// them, and the token equals that sampled from a row edited and masked beforehand.
TEST(LogitsProcessorTest, EqualsThePlainRulesOnRandomRequests) {
  std::mt19937 rng(5);
  int drawn = 0, refused = 0, changed = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const Case c = random_case(rng);
    LogitsProcessor direct(c.params, c.bad_words, c.ends), sampled(c.params, c.bad_words, c.ends);
    Sampler sampler, plain;
    Ids tokens = c.prompt;
    for (int step = 0; step < 12; ++step) {
      const std::vector<float> raw = random_logits(c.vocab, rng);
      const Ids answer(tokens.begin() + static_cast<std::ptrdiff_t>(c.prompt.size()), tokens.end());
      std::vector<float> want = expected(raw, c.params, c.bad_words, c.ends, c.prompt, answer);
      std::vector<float> got = raw;
      std::vector<LogitsProcessor::Edit> edits;
      if (direct.active()) direct.apply(tokens, c.prompt.size(), got, edits);
      ASSERT_TRUE(same_bits(got, want));
      changed += !same_bits(got, raw);
      LogitsProcessor::undo(got, edits);
      ASSERT_TRUE(same_bits(got, raw));

      if (c.params.allowed_token_ids)
        for (int32_t id = 0; id < c.vocab; ++id)
          if (!std::count(c.params.allowed_token_ids->begin(), c.params.allowed_token_ids->end(), id))
            want[static_cast<size_t>(id)] = -kInf;
      const auto token = sampler.sample(got, c.params, 3, tokens.size(), &sampled, tokens, c.prompt.size());
      ASSERT_TRUE(same_bits(got, raw));
      const auto reference = plain.sample(want, c.params, 3, tokens.size());
      ASSERT_EQ(token.ok(), reference.ok());
      if (token) {
        ASSERT_EQ(*token, *reference);
      }
      ++(token ? drawn : refused);
      tokens.push_back(token ? *token : static_cast<int32_t>(rng() % static_cast<uint32_t>(c.vocab)));
    }
  }
  EXPECT_GT(drawn, 3000);
  EXPECT_GT(refused, 10);
  EXPECT_GT(changed, 2000);
}

/// A preempted request that resumes with all of its tokens gets the same edits as one that was never
/// preempted.
TEST(LogitsProcessorTest, CountsAreAFunctionOfTheTokens) {
  SamplingParams p;
  p.repetition_penalty = 1.3f;
  p.frequency_penalty = 0.5f;
  std::mt19937 rng(6);
  constexpr int32_t kVocab = 20000;  // enough distinct ids for the table to grow
  Ids tokens;
  LogitsProcessor stepwise(p, {}, {});
  std::vector<float> logits(kVocab, 1.0f), other = logits;
  std::vector<LogitsProcessor::Edit> edits;
  for (int i = 0; i < 6000; ++i) {
    tokens.push_back(static_cast<int32_t>(rng() % kVocab));
    if (i % 97 != 0 || i < 1000) continue;
    stepwise.apply(tokens, 1000, logits, edits);
    LogitsProcessor::undo(logits, edits);
  }
  stepwise.apply(tokens, 1000, logits, edits);
  edits.clear();
  LogitsProcessor afresh(p, {}, {});
  afresh.apply(tokens, 1000, other, edits);
  EXPECT_TRUE(same_bits(logits, other));
  EXPECT_TRUE(same_bits(
      other, expected(std::vector<float>(kVocab, 1.0f), p, {}, {}, Ids(tokens.begin(), tokens.begin() + 1000),
                      Ids(tokens.begin() + 1000, tokens.end()))));
}

TEST(LogitsProcessorTest, IdsThatPadTheVocabularyAreLeftAlone) {
  SamplingParams p;
  p.repetition_penalty = 2;
  p.min_tokens = 5;
  LogitsProcessor processor(p, {{9}}, Ids{8});
  std::vector<float> logits = {4, 4, 4};
  std::vector<LogitsProcessor::Edit> edits;
  processor.apply(Ids{1, 7}, 2, logits, edits);
  EXPECT_EQ(logits, (std::vector<float>{4, 2, 4}));
}

TEST(LogitsProcessorTest, ReportsThatThereIsNothingToDo) {
  EXPECT_FALSE(LogitsProcessor(SamplingParams(), {}, Ids{1}).active());
  SamplingParams p;
  p.allowed_token_ids = {3, 1, 3};
  const LogitsProcessor allowed(p, {}, {});
  EXPECT_FALSE(allowed.active());
  EXPECT_EQ(Ids(allowed.allowed().begin(), allowed.allowed().end()), (Ids{1, 3}));
}

TEST(LogitsProcessorTest, ATinyRepetitionPenaltyStaysFinite) {
  SamplingParams p;
  p.repetition_penalty = std::numeric_limits<float>::denorm_min();
  p.temperature = 0;
  LogitsProcessor processor(p, {}, {});
  std::vector<float> logits = {1, 5};
  EXPECT_EQ(*Sampler().sample(logits, p, 1, 1, &processor, Ids{0}, 1), 0);
}

TEST(LogitsProcessor, AppliesWhatTheModelsFilesForce) {
  DecoderForcing forcing;
  forcing.suppressed = {1, 99};  // 99 pads the vocabulary
  forcing.suppressed_first = {2};
  forcing.last = 4;
  SamplingParams params;
  params.logit_bias = {{1, 100.0f}};
  LogitsProcessor processor(params, {}, {}, &forcing, 3);
  EXPECT_TRUE(processor.active());
  const Ids prompt = {0};
  const auto after = [&](Ids tokens) {
    std::vector<float> logits(6, 1.0f);
    std::vector<LogitsProcessor::Edit> edits;
    processor.apply(tokens, prompt.size(), logits, edits);
    const std::vector<float> changed = logits;
    LogitsProcessor::undo(logits, edits);
    EXPECT_EQ(logits, std::vector<float>(6, 1.0f));
    return changed;
  };
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(after({0}), (std::vector<float>{1, kOut, kOut, 1, 1, 1}));
  EXPECT_EQ(after({0, 3}), (std::vector<float>{1, kOut, 1, 1, 1, 1}));
  EXPECT_FALSE(processor.forced(0) || processor.forced(1));
  EXPECT_EQ(processor.forced(2), 4);
  params.ignore_eos = true;
  EXPECT_FALSE(LogitsProcessor(params, {}, {}, &forcing, 3).forced(2));
}

TEST(LogitsProcessor, AForcedEndTokenComesWhateverElseKeepsItOut) {
  DecoderForcing forcing;
  forcing.last = 4;
  forcing.suppressed = {4};
  SamplingParams params;
  params.min_tokens = 3;  // = max_tokens
  params.allowed_token_ids = {1, 2};
  LogitsProcessor processor(params, {}, Ids{4}, &forcing, 3);
  std::vector<float> logits(6, 1.0f);
  EXPECT_NE(*Sampler().sample(logits, params, 1, 2, &processor, Ids{0, 1}, 1), 4);
  const auto last = Sampler().sample(logits, params, 1, 3, &processor, Ids{0, 1, 2}, 1);
  ASSERT_TRUE(last.ok()) << last.error().message;
  EXPECT_EQ(*last, 4);
}

/// Whisper's rules, as published, over a copy: ids that may follow `answer`.
std::vector<bool> may_follow(const std::vector<float>& logits, const TimestampRules& rules,
                             const Ids& answer) {
  const size_t vocab = logits.size();
  const auto first = static_cast<size_t>(rules.first);
  std::vector<bool> may(vocab);
  for (size_t id = 0; id < vocab; ++id)
    may[id] = std::isfinite(logits[id]) && id != static_cast<size_t>(rules.off);
  const auto is_time = [&](size_t back) { return answer[answer.size() - back] >= rules.first; };
  const bool last = !answer.empty() && is_time(1);
  const bool before = answer.size() < 2 || is_time(2);
  for (size_t id = 0; id < vocab; ++id) {
    if (last && before && id >= first) may[id] = false;
    if (last && !before && id < static_cast<size_t>(rules.text_end)) may[id] = false;
    if (answer.empty() && id < first) may[id] = false;
    if (answer.empty() && id > first + static_cast<size_t>(rules.most_initial)) may[id] = false;
  }
  Ids times;
  std::copy_if(answer.begin(), answer.end(), std::back_inserter(times),
               [&](int32_t id) { return id >= rules.first; });
  if (!times.empty())
    for (size_t id = first; id < static_cast<size_t>(times.back()) + (last && !before ? 0 : 1); ++id)
      may[id] = false;
  double sum = 0, best = -1;
  for (size_t id = 0; id < vocab; ++id) {
    if (!may[id]) continue;
    const double p = std::exp(static_cast<double>(logits[id]));
    if (id >= first)
      sum += p;
    else
      best = std::max(best, p);
  }
  for (size_t id = 0; id < first; ++id)
    may[id] = may[id] && !(sum > best && sum > 0);
  return may;
}

TEST(LogitsProcessor, TimestampsFollowWhispersRules) {
  // text 0 to 7, end 8, others 9 and 10, notimestamps 11, times 12 to 19
  const TimestampRules rules{12, 8, 11, 3};
  SamplingParams params;
  params.timestamps = rules;
  LogitsProcessor processor(params, {}, {});
  EXPECT_TRUE(processor.active());
  EXPECT_TRUE(processor.needs_host());
  EXPECT_FALSE(LogitsProcessor(SamplingParams(), {}, {}).needs_host());
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  int only_times = 0, cases = 0;
  for (const Ids& answer : {Ids{},
                            {12},
                            {12, 3},
                            {12, 3, 15},
                            {12, 3, 15, 15},
                            {12, 3, 15, 15, 2},
                            {12, 3, 15, 15, 2, 19},
                            {12, 3, 15, 15, 2, 19, 19},
                            {3},
                            {3, 4, 14},
                            {14, 9}})
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits(20);
      for (float& x : logits)
        x = normal(random);
      if (i % 3 == 0) logits[static_cast<size_t>(random() % 20)] = -kInf;
      const std::vector<bool> want = may_follow(logits, rules, answer);
      Ids tokens = {5, 13};  // the prompt's timestamps don't count
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      std::vector<float> changed = logits;
      std::vector<LogitsProcessor::Edit> edits;
      processor.apply(tokens, 2, changed, edits);
      for (size_t id = 0; id < logits.size(); ++id)
        ASSERT_EQ(changed[id], want[id] ? logits[id] : -kInf) << "token " << id << " after " << answer.size();
      only_times += !answer.empty() && answer.back() < 12 && !std::isfinite(changed[3]);
      ++cases;
      LogitsProcessor::undo(changed, edits);
      ASSERT_TRUE(same_bits(changed, logits));
    }
  EXPECT_GT(only_times, 50);
  EXPECT_LT(only_times, cases / 2);
}

}  // namespace
}  // namespace fovea
