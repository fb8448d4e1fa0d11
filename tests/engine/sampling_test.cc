// Sampling parameters through the whole engine: several answers, log probabilities, masks, biases, penalties;
// an answer that uses all of them depends on nothing else.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "engine/logits_processor.h"
#include "engine/logprobs.h"
#include "tests/engine/fixture.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using test::Answer;
using test::greedy;
using test::make_engine;
using test::prompt_of;
using test::run_one;

/// All outputs of one request, joined by answer.
struct Choices {
  std::vector<Answer> answers;
  std::vector<std::vector<TokenLogprobs>> logprobs;
  std::vector<size_t> text_size;  // of answer 0 after each output
  int finished = 0;
};

OutputSink collect(std::shared_ptr<Choices> out, int n) {
  out->answers.resize(static_cast<size_t>(n));
  out->logprobs.resize(static_cast<size_t>(n));
  return [out](const RequestOutput& output) {
    const auto index = static_cast<size_t>(output.index);
    test::collect(std::shared_ptr<Answer>(out, &out->answers[index]))(output);
    auto& logprobs = out->logprobs[index];
    logprobs.insert(logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    if (index == 0) out->text_size.push_back(out->answers[0].text.size());
    out->finished += output.finish != FinishReason::none;
  };
}

std::vector<Choices> run_requests(Engine& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<Choices>> all;
  test::run_together(engine, requests, [&](size_t i) {
    return collect(all.emplace_back(std::make_shared<Choices>()), requests[i].sampling.n);
  });
  std::vector<Choices> out;
  for (const auto& choices : all)
    out.push_back(*choices);
  return out;
}

Choices run_choices(Engine& engine, const GenerateRequest& request) {
  return run_requests(engine, {request})[0];
}

GenerateRequest sampled(std::vector<int32_t> prompt, int max_tokens, uint64_t seed) {
  GenerateRequest request = greedy(std::move(prompt), max_tokens);
  request.sampling.temperature = 1.2f;
  request.sampling.seed = seed;
  return request;
}

/// The model's logits after `tokens`.
std::vector<float> logits_after(Engine& engine, std::vector<int32_t> tokens) {
  GenerateRequest request = greedy(std::move(tokens), 0);
  request.last_logits = true;
  return run_one(engine, request).last.last_logits;
}

class SamplingTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = make_engine(test::fixture_config());
    ASSERT_NE(engine_, nullptr);
    for (char c = 'a'; c <= 'z'; ++c)
      letters_.push_back((*engine_->tokenize(std::string(1, c), false))[0]);
  }
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> letters_;  // one byte, one id
};

constexpr int32_t kEnd = 257;  // </s>

TEST_F(SamplingTest, SeveralAnswersShareThePromptAndTheFirstIsThatOfOne) {
  const auto prompt = prompt_of(41);
  const Answer alone = run_one(*engine_, sampled(prompt, 20, 9));
  for (bool prefix_cache : {true, false}) {
    EngineConfig config = test::fixture_config();
    config.prefix_cache = prefix_cache;
    auto engine = make_engine(config);
    ASSERT_NE(engine, nullptr);
    GenerateRequest request = sampled(prompt, 20, 9);
    request.sampling.n = 4;
    request.prompt_logprobs = 0;
    request.last_logits = true;
    const Choices got = run_choices(*engine, request);
    EXPECT_EQ(got.finished, 4);
    EXPECT_EQ(engine->stats().prefill_tokens, prefix_cache ? 41 + 3 : 4 * 41);  // pages of 4: 40 shared
    EXPECT_EQ(got.answers[0].ids, alone.ids);
    EXPECT_EQ(got.answers[0].text, alone.text);
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(got.answers[i].ids,
                run_one(*engine_, sampled(prompt, 20, choice_seed(9, static_cast<int>(i)))).ids);
      EXPECT_NE(got.answers[i].ids, alone.ids);
      EXPECT_EQ(got.answers[i].last.cached_tokens, prefix_cache ? 40 : 0);
      EXPECT_TRUE(got.answers[i].last.prompt_logprobs.empty());
      EXPECT_TRUE(got.answers[i].last.last_logits.empty());
      EXPECT_EQ(got.answers[i].last.id, got.answers[0].last.id);
    }
    EXPECT_EQ(got.answers[0].last.prompt_logprobs.size(), 40u);
    EXPECT_EQ(got.answers[0].last.last_logits.size(), 258u);
    EXPECT_EQ(engine->stats().pages_in_use, 0);
    EXPECT_EQ(engine->stats().waiting, 0);
  }
}

TEST_F(SamplingTest, CancellingEndsEveryAnswerWhetherItBeganOrNot) {
  for (int after : {0, 1, 6}) {  // outputs: before the prompt is computed, with it, in the middle
    SCOPED_TRACE(after);
    EngineConfig config = test::fixture_config();
    config.max_batched_tokens = 8;
    auto engine = make_engine(config);
    GenerateRequest request = sampled(prompt_of(200), 500, 1);
    request.sampling.n = 5;
    auto choices = std::make_shared<Choices>();
    const auto inner = collect(choices, 5);
    auto outputs = std::make_shared<int>(0);
    Engine* raw = engine.get();
    const auto id = engine->submit(request, [=](const RequestOutput& output) {
      inner(output);
      if (++*outputs == after) raw->cancel(output.id);
    });
    ASSERT_TRUE(id.ok());
    if (after == 0) engine->cancel(*id);
    engine->cancel(*id + 1);  // no request has this id
    engine->wait_idle();
    EXPECT_EQ(choices->finished, 5);
    for (const Answer& answer : choices->answers)
      EXPECT_EQ(answer.last.finish, FinishReason::cancelled);
    EXPECT_EQ(engine->stats().pages_in_use, 0);
    EXPECT_EQ(run_one(*engine, greedy(prompt_of(5), 5)).ids.size(), 5u);
  }
  auto left = std::make_shared<Choices>();
  GenerateRequest request = sampled(prompt_of(200), 500, 1);
  request.sampling.n = 3;
  ASSERT_TRUE(engine_->submit(request, collect(left, 3)).ok());
  engine_.reset();
  EXPECT_EQ(left->finished, 3);
}

TEST_F(SamplingTest, LogprobsAreTheModelsBeforeAnyChange) {
  EngineConfig config = test::fixture_config();
  config.max_logprobs = -1;
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  const auto prompt = prompt_of(13);
  for (int k : {0, 3, -1}) {
    SCOPED_TRACE(k);
    GenerateRequest request = sampled(prompt, 12, 4);
    request.sampling.logprobs = k;
    request.sampling.top_k = 50;
    request.sampling.repetition_penalty = 1.7f;
    request.sampling.allowed_token_ids = letters_;
    const Choices got = run_choices(*engine, request);
    const std::vector<int32_t>& ids = got.answers[0].ids;
    ASSERT_EQ(got.logprobs[0].size(), ids.size());
    std::vector<int32_t> tokens = prompt;
    for (size_t i = 0; i < ids.size(); ++i) {
      const TokenLogprobs& entry = got.logprobs[0][i];
      EXPECT_EQ(entry, token_logprobs(logits_after(*engine, tokens), ids[i], k));
      EXPECT_EQ(entry.token.token_id, ids[i]);
      EXPECT_EQ(entry.top.size(), k < 0 ? 258u : static_cast<size_t>(k));
      double sum = 0;
      for (const TokenLogprob& t : entry.top)
        sum += std::exp(static_cast<double>(t.logprob));
      if (k < 0) {
        EXPECT_NEAR(sum, 1, 1e-6);
      }
      tokens.push_back(ids[i]);
    }
  }
  GenerateRequest request = greedy(prompt, 3);
  request.sampling.logprobs = 21;
  EXPECT_FALSE(engine_->submit(request, nullptr).ok());  // the default limit is 20
  EXPECT_FALSE(engine_->check(request).ok());
  request.sampling.logprobs.reset();
  request.prompt_logprobs = 21;
  EXPECT_NE(engine_->check(request).error().message.find("prompt_logprobs is 21"), std::string::npos);
}

TEST_F(SamplingTest, PromptLogprobsCarryTheMostProbableTokens) {
  const auto prompt = prompt_of(23);
  GenerateRequest request = greedy(prompt, 2);
  request.prompt_logprobs = 4;
  const auto got = run_one(*engine_, request).last.prompt_logprobs;
  ASSERT_EQ(got.size(), prompt.size() - 1);
  for (size_t n = 1; n < prompt.size(); ++n) {
    const std::vector<int32_t> past(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(got[n - 1], token_logprobs(logits_after(*engine_, past), prompt[n], 4));
  }
  EngineConfig config = test::fixture_config();
  config.max_batched_tokens = 5;
  auto chunked = make_engine(config);
  EXPECT_EQ(run_one(*chunked, request).last.prompt_logprobs, got);
}

TEST_F(SamplingTest, ABiasForcesOrForbidsAToken) {
  const Answer free = run_one(*engine_, greedy(prompt_of(9), 20));
  GenerateRequest request = greedy(prompt_of(9), 20);
  request.sampling.logit_bias = {{letters_[3], 100}};
  EXPECT_EQ(run_one(*engine_, request).ids, std::vector<int32_t>(20, letters_[3]));
  request.sampling.logit_bias = {{free.ids[0], -100}};
  const Answer without = run_one(*engine_, request);
  EXPECT_EQ(std::count(without.ids.begin(), without.ids.end(), free.ids[0]), 0);
}

TEST_F(SamplingTest, NoEndBeforeMinTokens) {
  GenerateRequest request = greedy(prompt_of(9), 20);
  request.sampling.ignore_eos = false;
  request.sampling.logit_bias = {{kEnd, 100}};
  const Answer at_once = run_one(*engine_, request);
  EXPECT_EQ(at_once.ids.size(), 0u);
  EXPECT_EQ(at_once.last.finish, FinishReason::stop);
  request.sampling.min_tokens = 6;
  const Answer later = run_one(*engine_, request);
  EXPECT_EQ(later.ids.size(), 6u);
  EXPECT_EQ(later.last.finish, FinishReason::stop);
  EXPECT_EQ(later.last.completion_tokens, 7);

  const Answer whole = run_one(*engine_, greedy(prompt_of(9), 20));
  GenerateRequest stopped = greedy(prompt_of(9), 20);
  stopped.sampling.stop_token_ids = {whole.ids[2]};
  stopped.sampling.min_tokens = 8;
  const Answer a = run_one(*engine_, stopped);
  EXPECT_GE(a.ids.size(), 8u);
  EXPECT_EQ(std::count(a.ids.begin(), a.ids.end(), whole.ids[2]), 0);
}

TEST_F(SamplingTest, StopStringsAreNotLookedForBeforeMinTokens) {
  GenerateRequest free = sampled(prompt_of(9), 60, 3);
  free.sampling.allowed_token_ids = std::vector<int32_t>(letters_.begin(), letters_.begin() + 3);
  const Choices whole = run_choices(*engine_, free);
  const std::string& text = whole.answers[0].text;
  ASSERT_EQ(text.size(), 60u);
  int stopped = 0, passed = 0;
  for (int min_tokens : {0, 1, 7, 30, 60})
    for (const std::string stop : {"a", "ab", "cab", "bbac"}) {
      SCOPED_TRACE(testing::Message() << min_tokens << ' ' << stop);
      GenerateRequest request = free;
      request.sampling.min_tokens = min_tokens;
      request.sampling.stop = {stop};
      // The first match that ends in the text of a token after the min_tokens-th.
      const size_t quiet = min_tokens == 0 ? 0 : whole.text_size[static_cast<size_t>(min_tokens) - 1];
      const size_t from = quiet + 1 > stop.size() ? quiet + 1 - stop.size() : 0;
      const size_t at = text.find(stop, from);
      const Answer a = run_one(*engine_, request);
      EXPECT_EQ(a.text, text.substr(0, at));
      EXPECT_EQ(a.last.finish, at == std::string::npos ? FinishReason::length : FinishReason::stop);
      stopped += at != std::string::npos;
      passed += text.find(stop) < at;
    }
  EXPECT_GT(stopped, 8);
  EXPECT_GT(passed, 4);
}

TEST_F(SamplingTest, BadWordsNeverAppear) {
  GenerateRequest request = sampled(prompt_of(9), 120, 3);
  request.sampling.allowed_token_ids = std::vector<int32_t>(letters_.begin(), letters_.begin() + 3);
  const std::string free = run_one(*engine_, request).text;
  for (const std::string word : {"b", "ab", "cab"}) {
    SCOPED_TRACE(word);
    ASSERT_NE(free.find(word), std::string::npos);
    request.sampling.bad_words = {word};
    const std::string text = run_one(*engine_, request).text;
    EXPECT_EQ(text.find(word), std::string::npos);
    EXPECT_EQ(text.size(), 120u);
    const size_t at = free.find(word) + word.size() - 1;  // nothing was forbidden up to here
    EXPECT_EQ(text.substr(0, at), free.substr(0, at));
  }
}

TEST(BadWords, AreTokenizedAsTheyAreAndAfterASpace) {
  const auto tokenizer = *Tokenizer::load(std::string(FOVEA_SOURCE_DIR) + "/models/demo");
  EncodeOptions plain;
  plain.add_special_tokens = false;
  int both = 0;
  for (const std::string word : {"the", "very", "zebra", "once upon", "x", "12", "three"}) {
    const auto bare = *tokenizer->encode(word, plain), spaced = *tokenizer->encode(" " + word, plain);
    std::vector<std::vector<int32_t>> want = {bare};
    if (spaced.size() == bare.size() && spaced[0] != bare[0]) want.push_back(spaced);
    both += want.size() == 2;
    EXPECT_EQ(*tokenize_bad_words({word}, *tokenizer), want) << word;
    EXPECT_EQ(*tokenize_bad_words({" \t" + word}, *tokenizer), want) << word;
  }
  EXPECT_GT(both, 0);
}

/// Everything that changes logits, one at a time and all together, against the rules applied in the test to
/// the model's own logits.
TEST_F(SamplingTest, GreedyAnswersFollowTheRules) {
  const auto prompt = prompt_of(12, 3);
  const Answer free = run_one(*engine_, greedy(prompt, 24));
  std::vector<SamplingParams> all(5, greedy(prompt, 24).sampling);
  all[0].repetition_penalty = 1.5f;
  all[1].frequency_penalty = 1.1f;
  all[2].presence_penalty = 2;
  all[3].presence_penalty = -2;
  all[4].repetition_penalty = 0.8f;
  all[4].frequency_penalty = 0.7f;
  all[4].presence_penalty = 0.3f;
  all[4].logit_bias = {{free.ids[1], -1}, {letters_[0], 2}};
  int changed = 0;
  for (const SamplingParams& p : all) {
    GenerateRequest request = greedy(prompt, 24);
    request.sampling = p;
    const Answer got = run_one(*engine_, request);
    std::vector<int32_t> tokens = prompt;
    for (size_t i = 0; i < got.ids.size(); ++i) {
      std::vector<float> logits = logits_after(*engine_, tokens);
      for (const LogitBias& b : p.logit_bias)
        logits[static_cast<size_t>(b.token_id)] += b.bias;
      for (size_t id = 0; id < logits.size(); ++id) {
        const auto is = [&](int32_t t) { return t == static_cast<int32_t>(id); };
        const auto in_answer =
            std::count_if(got.ids.begin(), got.ids.begin() + static_cast<std::ptrdiff_t>(i), is);
        if (std::any_of(tokens.begin(), tokens.end(), is))
          logits[id] = logits[id] > 0 ? logits[id] / p.repetition_penalty : logits[id] * p.repetition_penalty;
        logits[id] -= p.frequency_penalty * static_cast<float>(in_answer);
        if (in_answer > 0) logits[id] -= p.presence_penalty;
      }
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(got.ids[i], best) << i;
      tokens.push_back(got.ids[i]);
    }
    changed += got.ids != free.ids;
  }
  EXPECT_GE(changed, 4);
}

TEST_F(SamplingTest, MasksThatLeaveNothingEndTheRequestWithAnError) {
  GenerateRequest nothing = greedy(prompt_of(9), 20);
  nothing.sampling.allowed_token_ids = {kEnd};
  nothing.sampling.min_tokens = 3;
  GenerateRequest later = greedy(prompt_of(9), 20);  // after one letter no token is left
  later.sampling.allowed_token_ids = {letters_[0], letters_[1]};
  later.sampling.bad_words = {"aa", "ab", "ba", "bb"};
  const auto got = run_requests(*engine_, {nothing, greedy(prompt_of(9), 20), later});
  EXPECT_EQ(got[1].answers[0].ids.size(), 20u);
  for (size_t i : {0u, 2u}) {
    const Answer& a = got[i].answers[0];
    EXPECT_EQ(a.last.finish, FinishReason::error);
    EXPECT_EQ(a.last.error.code, ErrorCode::invalid_argument);
    EXPECT_NE(a.last.error.message.find("no token is left"), std::string::npos) << a.last.error.message;
    EXPECT_EQ(a.ids.size(), i == 0 ? 0u : 1u);
  }
  EXPECT_EQ(engine_->stats().pages_in_use, 0);
}

std::vector<GenerateRequest> everything_on(const std::vector<int32_t>& letters) {
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    GenerateRequest request = sampled(prompt_of(15 + static_cast<int>(i), i), 40, i);
    SamplingParams& p = request.sampling;
    p.n = i % 3 == 0 ? 2 : 1;
    p.repetition_penalty = 1.0f + 0.1f * static_cast<float>(i);
    p.frequency_penalty = 0.4f;
    p.presence_penalty = i % 2 ? -0.5f : 0.5f;
    p.top_p = 0.95f;
    p.logprobs = 3;
    p.min_tokens = 5;
    p.logit_bias = {{letters[i], 3}};
    p.bad_words = {std::string(1, static_cast<char>('a' + i)) + "b"};
    if (i == 2) request.prompt_logprobs = 2;
    requests.push_back(request);
  }
  return requests;
}

TEST_F(SamplingTest, AnswersDependOnNothingElse) {
  const auto requests = everything_on(letters_);
  std::vector<Choices> alone;
  for (const GenerateRequest& request : requests)
    alone.push_back(run_choices(*engine_, request));
  EXPECT_EQ(engine_->stats().preemptions, 0);
  struct Setting {
    int64_t pages;
    int chunk;
    bool prefix_cache;
  };
  for (const Setting& s : {Setting{1024, 512, true}, {1024, 7, false}, {24, 512, true}, {24, 9, false}}) {
    SCOPED_TRACE(testing::Message() << s.pages << ' ' << s.chunk << ' ' << s.prefix_cache);
    EngineConfig config = test::fixture_config();
    config.max_seq_len = 64;
    config.num_pages = s.pages;
    config.max_batched_tokens = s.chunk;
    config.prefix_cache = s.prefix_cache;
    auto engine = make_engine(config);
    ASSERT_NE(engine, nullptr);
    const auto together = run_requests(*engine, requests);
    if (s.pages == 24) {  // two requests are admitted; each grows to 14 pages or more
      EXPECT_GT(engine->stats().preemptions, 0);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i].logprobs, alone[i].logprobs) << i;
      for (size_t c = 0; c < alone[i].answers.size(); ++c) {
        EXPECT_EQ(together[i].answers[c].ids, alone[i].answers[c].ids) << i;
        EXPECT_EQ(together[i].answers[c].text, alone[i].answers[c].text) << i;
        EXPECT_EQ(together[i].answers[c].last.prompt_logprobs, alone[i].answers[c].last.prompt_logprobs) << i;
      }
    }
    EXPECT_EQ(engine->stats().pages_in_use, 0);
  }
}

TEST(GenerationConfig, IsReadFromWhereItIsAsked) {
  test::TempDir model, other;
  fs::copy(test::fixture_dir(test::kLlama), model.path(), fs::copy_options::recursive);
  model.write(
      "generation_config.json",
      R"({"repetition_penalty": 1.25, "max_new_tokens": 7, "temperature": 0.5, "eos_token_id": [3]})");
  other.write("generation_config.json", R"({"repetition_penalty": 1.5, "top_k": 9})");
  other.write("mine.json", R"({"top_k": 11})");
  const auto defaults = [&](const std::string& source) {
    EngineConfig config = test::fixture_config();
    config.model = model.path();
    config.generation_config = source;
    return make_engine(config)->default_sampling();
  };
  const SamplingParams of_model = defaults("auto");
  EXPECT_EQ(of_model.repetition_penalty, 1.25f);
  EXPECT_EQ(of_model.temperature, 0.5f);
  EXPECT_EQ(of_model.max_tokens, 7);
  for (const char* none : {"none", "vllm"}) {
    EXPECT_EQ(defaults(none).repetition_penalty, 1.0f);
    EXPECT_EQ(defaults(none).max_tokens, std::nullopt);
  }
  EXPECT_EQ(defaults(other.path()).repetition_penalty, 1.5f);
  EXPECT_EQ(defaults(other.path()).top_k, 9);
  EXPECT_EQ(defaults(other.path()).max_tokens, std::nullopt);
  EXPECT_EQ(defaults(other.path() + "/mine.json").top_k, 11);
  EngineConfig config = test::fixture_config();
  config.generation_config = "/no/such/place";
  const auto refused = Engine::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("/no/such/place"), std::string::npos);
  EXPECT_NE(refused.error().message.find("auto"), std::string::npos);
}

}  // namespace
}  // namespace fovea
