// The real engine on tiny models: what ends a request, what is refused, cancelling, preemption, sampling.
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/logprobs.h"
#include "kernels/cpu/ops.h"
#include "tests/engine/fixture.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using test::Answer;
using test::greedy;
using test::make_engine;
using test::prompt_of;
using test::run_all;
using test::run_one;

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = make_engine(test::fixture_config());
    ASSERT_NE(engine_, nullptr);
  }
  std::string refusal(const GenerateRequest& request) {
    const auto id = engine_->submit(request, nullptr);
    return id ? "" : id.error().message;
  }
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnswersAndAccounts) {
  const Answer a = run_one(*engine_, greedy(prompt_of(21), 30));
  EXPECT_EQ(a.last.finish, FinishReason::length);
  EXPECT_EQ(a.ids.size(), 30u);
  EXPECT_EQ(a.text, engine_->detokenize(a.ids, true));
  EXPECT_EQ(a.last.prompt_tokens, 21);
  EXPECT_EQ(a.last.completion_tokens, 30);
  EXPECT_EQ(a.last.cached_tokens, 0);
  EXPECT_EQ(a.outputs, 30);  // one a step

  const EngineStats s = engine_->stats();
  EXPECT_EQ(s.steps, 30);
  EXPECT_EQ(s.prefill_tokens, 21);
  EXPECT_EQ(s.decode_tokens, 29);
  EXPECT_EQ(s.running + s.waiting, 0);
  EXPECT_EQ(s.pages_in_use, 0);
  EXPECT_EQ(s.pages_cached, 12);  // 50 computed tokens (the last one is never computed): 12 whole pages of 4
  EXPECT_EQ(s.pages_free + s.pages_cached, s.pages_total);

  const Answer again = run_one(*engine_, greedy(prompt_of(21), 30));
  EXPECT_EQ(again.ids, a.ids);
  EXPECT_EQ(again.last.cached_tokens, 20);
}

TEST_F(EngineTest, InfoSaysWhatWasDecided) {
  const EngineInfo& info = engine_->info();
  EXPECT_EQ(info.architecture, "LlamaForCausalLM");
  EXPECT_EQ(info.dtype, DType::bf16);
  EXPECT_EQ(info.kv_dtype, KvCacheDType::bfloat16);
  EXPECT_EQ(info.max_seq_len, 1024);
  EXPECT_EQ(info.kv_tokens, 4096);
  EXPECT_EQ(info.kv_sequences, 4);
  EXPECT_EQ(info.kv_bytes_per_token, 2 * 2 * 1 * 16 * 2);
  EXPECT_EQ(info.kv_bytes, info.kv_tokens * info.kv_bytes_per_token);
  EXPECT_EQ(info.selection.page_size, 4);
  EXPECT_EQ(info.specs.front().page_size, 4);
}

/// Start of the first of `stops` that is complete in `text`, and the longest that ends there; npos = none.
size_t cut_of(const std::string& text, const std::vector<std::string>& stops, std::string* which) {
  for (size_t end = 1; end <= text.size(); ++end) {
    which->clear();
    for (const std::string& stop : stops)
      if (stop.size() <= end && stop.size() > which->size() &&
          text.compare(end - stop.size(), stop.size(), stop) == 0)
        *which = stop;
    if (!which->empty()) return end - which->size();
  }
  return std::string::npos;
}

TEST_F(EngineTest, StopStringsCutTheTextExactlyBeforeThem) {
  // Random bytes as tokens: partial characters, replaced ones and ASCII, so stops begin and end anywhere.
  const Answer whole = run_one(*engine_, greedy(prompt_of(9, 5), 60));
  int stopped = 0;
  for (size_t from = 0; from + 4 < whole.text.size(); from += 3) {
    size_t begin = from, end = from + 1 + from % 7;
    auto inside = [&](size_t at) { return at < whole.text.size() && (whole.text[at] & 0xC0) == 0x80; };
    while (inside(begin))
      ++begin;
    while (inside(end))
      ++end;
    if (end <= begin || end > whole.text.size()) continue;
    GenerateRequest request = greedy(prompt_of(9, 5), 60);
    request.sampling.stop = {whole.text.substr(begin, end - begin), "never in there"};
    std::string which;
    const size_t cut = cut_of(whole.text, request.sampling.stop, &which);
    ASSERT_NE(cut, std::string::npos);
    const Answer a = run_one(*engine_, request);
    EXPECT_EQ(a.text, whole.text.substr(0, cut));
    EXPECT_EQ(a.last.finish, FinishReason::stop);
    EXPECT_EQ(a.last.stop_reason, which);
    EXPECT_EQ(a.last.stop_token, std::nullopt);
    request.sampling.include_stop_str_in_output = true;
    EXPECT_EQ(run_one(*engine_, request).text, whole.text.substr(0, cut) + which);
    ++stopped;
  }
  EXPECT_GT(stopped, 10);
}

TEST_F(EngineTest, StopTokensEndWithoutBeingPartOfTheAnswer) {
  const Answer whole = run_one(*engine_, greedy(prompt_of(9), 20));
  const int32_t stop = whole.ids[7];
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), stop);
  GenerateRequest request = greedy(prompt_of(9), 20);
  request.sampling.stop_token_ids = {stop};
  const Answer a = run_one(*engine_, request);
  EXPECT_EQ(a.ids, std::vector<int32_t>(whole.ids.begin(), first));
  EXPECT_EQ(a.last.finish, FinishReason::stop);
  EXPECT_FALSE(a.last.stop_reason.empty());
  EXPECT_EQ(a.last.stop_token, stop);
  EXPECT_EQ(a.last.completion_tokens, static_cast<int>(a.ids.size()) + 1);  // it was sampled, so it counts
  EXPECT_EQ(a.text, engine_->detokenize(a.ids, true));
}

/// A copy of the fixture that a test may change.
class ChangedModel {
 public:
  explicit ChangedModel(const std::string& name = test::kLlama) {
    fs::copy(test::fixture_dir(name), dir_.path(), fs::copy_options::recursive);
  }
  EngineConfig config() const {
    EngineConfig c = test::fixture_config();
    c.model = dir_.path();
    return c;
  }
  test::TempDir& dir() { return dir_; }

 private:
  test::TempDir dir_;
};

TEST_F(EngineTest, EndTokensAreTheUnionOfAllFiles) {
  const Answer whole = run_one(*engine_, greedy(prompt_of(9), 20));
  const int32_t end = whole.ids[5];
  const auto expected =
      std::vector<int32_t>(whole.ids.begin(), std::find(whole.ids.begin(), whole.ids.end(), end));
  ChangedModel model;
  model.dir().write("generation_config.json", "{\"eos_token_id\": [257, " + std::to_string(end) + "]}");
  auto engine = make_engine(model.config());
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = greedy(prompt_of(9), 20);
  EXPECT_EQ(run_one(*engine, request).ids, whole.ids);  // ignore_eos
  request.sampling.ignore_eos = false;
  const Answer ended = run_one(*engine, request);
  EXPECT_EQ(ended.ids, expected);
  EXPECT_EQ(ended.last.finish, FinishReason::stop);
}

TEST_F(EngineTest, TheContextLengthEndsARequest) {
  EngineConfig config = test::fixture_config();
  config.max_seq_len = 40;
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = greedy(prompt_of(30), 1);
  request.sampling.max_tokens.reset();
  const Answer a = run_one(*engine, request);
  EXPECT_EQ(a.ids.size(), 10u);
  EXPECT_EQ(a.last.finish, FinishReason::length);
  EXPECT_EQ(run_one(*engine, greedy(prompt_of(39), 5)).ids.size(), 1u);
}

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  EXPECT_NE(refusal(greedy({}, 5)), "");
  EXPECT_NE(refusal(greedy({1, 258}, 5)).find("0 to 257"), std::string::npos);
  EXPECT_NE(refusal(greedy({-1}, 5)), "");
  EXPECT_NE(refusal(greedy({1}, 0)), "");
  GenerateRequest request = greedy({1}, 5);
  request.sampling.top_p = 0;
  EXPECT_NE(refusal(request).find("top_p"), std::string::npos);
  const std::string too_long = refusal(greedy(prompt_of(1025), 5));
  EXPECT_NE(too_long.find("prompt has 1025 tokens"), std::string::npos) << too_long;
  EXPECT_NE(too_long.find("maximum context length is 1024 tokens"), std::string::npos) << too_long;
  EXPECT_NE(refusal(greedy(prompt_of(1024), 5)), "");
  EXPECT_EQ(engine_->stats().steps, 0);
}

TEST_F(EngineTest, ScoresWithoutGenerating) {
  GenerateRequest request = greedy(prompt_of(1024), 0);  // the whole context
  request.prompt_logprobs = 0;
  request.last_logits = true;
  const Answer a = run_one(*engine_, request);
  EXPECT_EQ(a.last.finish, FinishReason::length);
  EXPECT_TRUE(a.ids.empty());
  EXPECT_EQ(a.last.prompt_logprobs.size(), 1023u);
  EXPECT_EQ(a.last.last_logits.size(), 258u);
}

TEST_F(EngineTest, PromptLogprobsAreThoseOfThePrefixesLastLogits) {
  const auto prompt = prompt_of(23);
  GenerateRequest whole = greedy(prompt, 0);
  whole.prompt_logprobs = 0;
  const Answer scored = run_one(*engine_, whole);
  ASSERT_EQ(scored.last.prompt_logprobs.size(), prompt.size() - 1);
  for (size_t n = 1; n < prompt.size(); ++n) {
    GenerateRequest prefix =
        greedy(std::vector(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n)), 0);
    prefix.last_logits = true;
    const std::vector<float> logits = run_one(*engine_, prefix).last.last_logits;
    EXPECT_EQ(scored.last.prompt_logprobs[n - 1], token_logprobs(logits, prompt[n], 0));
    const double logprob = static_cast<double>(logits[static_cast<size_t>(prompt[n])]) -
                           log_sum_exp(logits.data(), static_cast<int64_t>(logits.size()));
    EXPECT_NEAR(scored.last.prompt_logprobs[n - 1].token.logprob, logprob, 1e-5);
  }
}

TEST_F(EngineTest, CancelEndsARequestWithinAStep) {
  auto answer = std::make_shared<Answer>();
  const auto sink = test::collect(answer);
  Engine* engine = engine_.get();
  const auto id = engine_->submit(greedy(prompt_of(5), 1000), [=](const RequestOutput& output) {
    sink(output);
    if (answer->outputs == 3) engine->cancel(output.id);
  });
  ASSERT_TRUE(id.ok());
  engine_->cancel(*id + 1000);  // unknown: nothing happens
  engine_->wait_idle();
  EXPECT_EQ(answer->last.finish, FinishReason::cancelled);
  EXPECT_EQ(answer->ids.size(), 3u);
  EXPECT_EQ(engine_->stats().pages_in_use, 0);
  EXPECT_EQ(run_one(*engine_, greedy(prompt_of(5), 5)).ids.size(), 5u);
}

TEST_F(EngineTest, DestroyingTheEngineCancelsWhatRuns) {
  std::vector<std::shared_ptr<Answer>> answers;
  for (uint32_t i = 0; i < 5; ++i) {
    answers.push_back(std::make_shared<Answer>());
    ASSERT_TRUE(engine_->submit(greedy(prompt_of(5, i), 1000), test::collect(answers.back())).ok());
  }
  engine_.reset();
  for (const auto& answer : answers)
    EXPECT_EQ(answer->last.finish, FinishReason::cancelled);
}

TEST_F(EngineTest, ASeedFixesTheAnswerWhateverRunsBesideIt) {
  auto sampled = [&](uint32_t salt, std::optional<uint64_t> seed) {
    GenerateRequest request = greedy(prompt_of(6, salt), 25);
    request.sampling.temperature = 1.5f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = seed;
    return request;
  };
  const Answer alone = run_one(*engine_, sampled(1, 42));
  std::vector<GenerateRequest> company;
  for (uint32_t i = 2; i < 9; ++i)
    company.push_back(sampled(i, i));
  company.push_back(sampled(1, 42));
  EXPECT_EQ(run_all(*engine_, company).back().ids, alone.ids);
  EXPECT_NE(run_one(*engine_, sampled(1, 43)).ids, alone.ids);
  // Without a seed: derived from the engine's seed and the request's number.
  const auto a = run_one(*engine_, sampled(1, std::nullopt)).ids;
  EXPECT_NE(run_one(*engine_, sampled(1, std::nullopt)).ids, a);
  auto fresh = [&](uint64_t seed) {
    EngineConfig config = test::fixture_config();
    config.seed = seed;
    auto engine = make_engine(config);
    return run_one(*engine, sampled(1, std::nullopt)).ids;
  };
  const auto first = fresh(7);
  EXPECT_EQ(fresh(7), first);
  EXPECT_NE(fresh(8), first);
}

TEST_F(EngineTest, PreemptedRequestsGetTheSameTokens) {
  std::vector<GenerateRequest> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(greedy(prompt_of(18 + static_cast<int>(i), i), 36));
    if (i % 2) requests.back().sampling.temperature = 1;
    requests.back().sampling.seed = i;
    if (i == 3) requests.back().prompt_logprobs = 2;
  }
  const std::vector<Answer> ample = run_all(*engine_, requests);
  EXPECT_EQ(engine_->stats().preemptions, 0);
  for (bool prefix_cache : {true, false}) {
    EngineConfig config = test::fixture_config();
    config.max_seq_len = 64;
    config.num_pages = 27;  // one request grows to 16 pages
    config.prefix_cache = prefix_cache;
    auto engine = make_engine(config);
    ASSERT_NE(engine, nullptr);
    const std::vector<Answer> tight = run_all(*engine, requests);
    EXPECT_GT(engine->stats().preemptions, 0);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(tight[i].ids, ample[i].ids) << i;
      EXPECT_EQ(tight[i].text, ample[i].text) << i;
    }
    EXPECT_EQ(tight[3].last.prompt_logprobs, ample[3].last.prompt_logprobs);
    EXPECT_EQ(engine->stats().pages_in_use, 0);
  }
}

/// Overwrites one row of a bf16 matrix of the fixture's model.safetensors with NaN.
void poison_row(const std::string& dir, const std::string& tensor, int64_t row, int64_t width) {
  const std::string path = dir + "/model.safetensors";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const size_t at = header.find("\"data_offsets\":[", header.find("\"" + tensor + "\""));
  ASSERT_NE(at, std::string::npos);
  const int64_t offset = std::stoll(header.substr(at + 16));
  const std::vector<uint16_t> nans(static_cast<size_t>(width), 0x7fc0);
  file.seekp(static_cast<std::streamoff>(8 + header_bytes) + offset + row * width * 2);
  file.write(reinterpret_cast<const char*>(nans.data()), width * 2);
}

TEST_F(EngineTest, LogitsThatAreNotNumbersEndOnlyTheirRequest) {
  ChangedModel model;
  poison_row(model.dir().path(), "model.embed_tokens.weight", 100, 64);
  auto engine = make_engine(model.config());
  ASSERT_NE(engine, nullptr);
  std::vector<int32_t> good = prompt_of(9), bad = prompt_of(9);
  std::replace(good.begin(), good.end(), 100, 101);
  bad[4] = 100;
  GenerateRequest scored = greedy(bad, 0);
  scored.prompt_logprobs = 0;
  const auto answers = run_all(*engine, {greedy(good, 4), greedy(bad, 4), scored, greedy(good, 4)});
  EXPECT_EQ(answers[0].last.finish, FinishReason::length);
  EXPECT_EQ(answers[3].ids, answers[0].ids);
  for (size_t i : {1u, 2u}) {
    EXPECT_EQ(answers[i].last.finish, FinishReason::error);
    EXPECT_NE(answers[i].last.error.message.find("not numbers"), std::string::npos);
    EXPECT_TRUE(answers[i].ids.empty());
  }
  EXPECT_EQ(engine->stats().pages_in_use, 0);
}

TEST(EngineCreate, BackendsAreSelectedBeforeTheWeightsAreOpened) {
  ChangedModel model;
  fs::remove(model.dir().path() + "/model.safetensors");
  auto message = [&](auto change) {
    EngineConfig config = model.config();
    change(config);
    const auto engine = Engine::create(config);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_NE(message([](auto& c) { c.attention.backend = "nonsense"; }).find("nonsense"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.kv_cache_dtype = KvCacheDType::nvfp4; }).find("kv_cache_dtype"),
            std::string::npos);
  EXPECT_NE(message([](auto& c) { c.attention.page_size = -3; }).find("-3"), std::string::npos);
  EXPECT_NE(message([](auto&) {}).find("safetensors"), std::string::npos);
}

TEST(EngineCreate, RefusesBadSettingsInOneLine) {
  auto message = [&](auto change) {
    EngineConfig config = test::fixture_config();
    change(config);
    const auto engine = Engine::create(config);
    if (engine) return std::string();
    EXPECT_EQ(engine.error().message.find('\n'), std::string::npos);
    return engine.error().message;
  };
  EXPECT_NE(message([](auto& c) { c.model = "/nowhere"; }), "");
  EXPECT_NE(message([](auto& c) { c.max_seq_len = 1025; }).find("1024"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.max_seq_len = 0; }), "");
  EXPECT_NE(message([](auto& c) { c.threads = -1; }), "");
  EXPECT_NE(message([](auto& c) { c.max_running_requests = 0; }), "");
  EXPECT_NE(message([](auto& c) { c.max_batched_tokens = 0; }), "");
  EXPECT_NE(message([](auto& c) { c.num_pages = 255; }).find("1020"), std::string::npos);
  EXPECT_EQ(message([](auto& c) { c.num_pages = 256; }), "");
  EXPECT_NE(message([](auto& c) {
              c.num_pages.reset();
              c.memory_share = 0;
            }),
            "");
}

TEST(EngineCreate, KvDtypeIsTheModelsUnlessGiven) {
  EngineConfig config = test::fixture_config();
  config.kv_cache_dtype = KvCacheDType::float32;
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().kv_dtype, KvCacheDType::float32);
  config.kv_cache_dtype = KvCacheDType::auto_;
  config.dtype = DType::f16;
  engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().kv_dtype, KvCacheDType::float16);
}

TEST(EngineCreate, AModelWithoutTokenizerTakesIds) {
  ChangedModel model;
  fs::remove(model.dir().path() + "/tokenizer.json");
  auto engine = make_engine(model.config());
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->tokenize("x", true).ok());
  const Answer a = run_one(*engine, greedy(prompt_of(5), 4));
  EXPECT_EQ(a.ids.size(), 4u);
  EXPECT_EQ(a.text, "");
  GenerateRequest request = greedy(prompt_of(5), 4);
  request.sampling.stop = {"x"};
  EXPECT_FALSE(engine->submit(request, nullptr).ok());
}

TEST(EngineThreads, SubmitCancelAndStatsFromManyThreads) {
  EngineConfig config = test::fixture_config();
  config.max_seq_len = 64;
  config.num_pages = 40;
  auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  std::atomic<int> finished{0}, submitted{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 12; ++i) {
        const auto id = engine->submit(greedy(prompt_of(1 + static_cast<int>((t * 7 + i) % 30), i), 20),
                                       [&](const RequestOutput& o) {
                                         if (o.finish != FinishReason::none) ++finished;
                                       });
        ASSERT_TRUE(id.ok());
        ++submitted;
        if (i % 3 == 0) engine->cancel(*id);
        const EngineStats s = engine->stats();
        EXPECT_EQ(s.pages_free + s.pages_cached + s.pages_in_use, s.pages_total);
      }
    });
  for (auto& thread : threads)
    thread.join();
  engine->wait_idle();
  EXPECT_EQ(finished.load(), submitted.load());
  EXPECT_EQ(engine->stats().pages_in_use, 0);
}

}  // namespace
}  // namespace fovea
