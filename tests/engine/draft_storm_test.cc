// Drafts change nothing but the time: tokens, log probabilities, texts and ends of whole requests, as bytes,
// with drafters of every quality beside the same requests alone without drafts.
#include <algorithm>
#include <array>
#include <random>

#include "base/thread_pool.h"
#include "engine/token_constraint_test_support.h"
#include "tests/engine/recorded_drafter.h"
#include "tests/engine/storm.h"

namespace fovea {
namespace {

using test::Answers;
using test::Case;
using test::config_of;
using test::Core;
using test::prompt_of;
using test::RecordedDrafter;
using test::Setting;

/// Parameters of every kind beside those of cases().
std::vector<Case> mixed_cases(int count, uint32_t seed, const EngineConfig& config) {
  std::mt19937 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Core alone(config);
  std::vector<Case> all;
  for (int i = 0; i < count; ++i) {
    Case c;
    c.request = test::greedy(prompt_of(below(60) + 1, seed + static_cast<uint32_t>(i / 2)),
                             (below(3) ? below(40) : 150) + 1);
    SamplingParams& p = c.request.sampling;
    p.seed = static_cast<uint64_t>(i);
    if (below(2)) p.temperature = 1;
    if (below(3) == 0) p.top_k = 40;
    if (below(3) == 0) p.top_p = 0.8f;
    if (below(3) == 0) p.repetition_penalty = 1.3f;
    if (below(3) == 0) p.frequency_penalty = 0.7f;
    if (below(3) == 0) p.presence_penalty = 0.5f;
    if (below(3) == 0) p.logit_bias = {{below(256), 8}, {below(256), 8}, {below(256), -20}};
    if (below(3) == 0) p.logprobs = below(2) ? 3 : 0;
    if (below(4) == 0) p.ignore_eos = false;
    if (below(4) == 0) p.min_tokens = below(p.max_tokens.value_or(1)) + 1;
    if (below(4) == 0) p.bad_words = {"ab", "e"};
    if (below(4) == 0) {
      p.allowed_token_ids.emplace();
      for (int32_t id = below(9); id < 256; id += 9)
        p.allowed_token_ids->push_back(id);
    }
    if (below(3) == 0) c.request.prompt_logprobs = 1;
    c.alone = alone.run(c.request);
    // Ends in the middle of the answer, so often in the middle of accepted drafts.
    const Case& whole = c;
    const std::vector<int32_t>& ids = whole.alone[0].ids;
    const std::string& text = whole.alone[0].text;
    const auto letter = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(text.size() / 2), text.end(),
                                     [](char x) { return 0x20 < x && x < 0x7f; });
    const int end = below(6);
    if (ids.size() > 2 && end == 0)
      p.stop_token_ids = {ids[ids.size() / 2]};
    else if (letter != text.end() && end == 1)
      p.stop = {std::string(1, *letter)};
    if (!p.stop.empty() || !p.stop_token_ids.empty()) c.alone = alone.run(c.request);
    all.push_back(std::move(c));
  }
  return all;
}

struct Drafts {
  int k = 5;
  double right = 0.8;  // of a RecordedDrafter; below 0: that of the method
  uint32_t seed = 1;
  DraftMethod method = DraftMethod::ngram;
};

EngineConfig with_drafts(const Setting& setting, const std::string& backend, const Drafts& drafts) {
  EngineConfig config = config_of(setting, backend);
  config.speculative.method = drafts.method;
  config.speculative.num_tokens = drafts.k;
  config.speculative.suffix_max_cached_requests = 20;
  if (drafts.method == DraftMethod::draft_model) config.speculative.model = test::fixture_dir(test::kLlama);
  config.speculative.prompt_lookup_min = 1;
  config.speculative.prompt_lookup_max = 3;
  return config;
}

/// All cases at random times, some of them cancelled. The counts of the engine.
EngineStats run_storm(const std::vector<Case>& all, const Setting& setting, const std::string& backend,
                      const Drafts& drafts) {
  std::vector<std::vector<int32_t>> texts;
  for (const Case& c : all)
    for (const auto& answer : c.alone) {
      texts.push_back(c.request.prompt_ids);
      texts.back().insert(texts.back().end(), answer.ids.begin(), answer.ids.end());
    }
  std::unique_ptr<Drafter> drafter;
  if (drafts.right >= 0)
    drafter = std::make_unique<RecordedDrafter>(std::move(texts), drafts.right, drafts.seed);
  Core core(with_drafts(setting, backend, drafts), true, std::move(drafter));
  std::mt19937 rng(drafts.seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  std::vector<std::shared_ptr<Answers>> got;
  std::vector<uint64_t> doomed;
  while (got.size() < all.size() || !core->idle()) {
    while (got.size() < all.size() && below(3) != 0) {
      const GenerateRequest& request = all[got.size()].request;
      core.add(request, got.emplace_back(std::make_shared<Answers>()));
      if (below(4) == 0)
        doomed.push_back(core.add(all[static_cast<size_t>(below(static_cast<int>(all.size())))].request,
                                  std::make_shared<Answers>()));
    }
    if (!doomed.empty() && below(12) == 0) {
      core->cancel(doomed.back());
      doomed.pop_back();
    }
    core.step();
    if (!core->scheduler().consistent()) {
      ADD_FAILURE() << "pages";
      break;
    }
  }
  const EngineStats stats = core->stats();
  EXPECT_EQ(stats.pages_in_use, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
  for (size_t i = 0; i < got.size(); ++i)
    for (size_t n = 0; n < all[i].alone.size(); ++n)
      EXPECT_EQ((*got[i])[n], all[i].alone[n]) << "request " << i << ", answer " << n;
  return stats;
}

class DraftStorm : public testing::TestWithParam<const char*> {};

TEST_P(DraftStorm, AnswersHaveTheBytesOfThoseWithoutDrafts) {
  const std::string backend = GetParam();
  std::vector<Case> all = mixed_cases(40, 5, config_of({}, backend));
  for (Case& c : test::cases(20, 9, backend))
    all.push_back(std::move(c));
  const struct {
    Setting setting;
    Drafts drafts;
  } runs[] = {
      {{16, true, 512, 16, 0}, {5, 1, 1}},
      {{16, true, 512, 16, 0}, {15, 0, 2}},
      {{1, true, 37, 12, 300}, {3, 0.8, 3}},
      {{1, false, 16, 8, 300, 2}, {8, 0.9, 4}},
      {{16, false, 64, 12, 18}, {15, 0.95, 5}},
      {{16, true, 37, 12, 18}, {1, 0.7, 6}},
      {{64, true, 512, 8, 6, 2}, {12, 0.9, 7}},
      {{16, true, 100, 16, 0}, {5, -1, 8}},
      {{4, true, 3, 2, 0}, {2, 0.9, 9}},
      {{4, true, 37, 12, 80}, {15, -1, 10, DraftMethod::suffix}},
      {{16, true, 41, 8, 18}, {5, -1, 11, DraftMethod::draft_model}},
  };
  SpeculativeCounts sum;
  int64_t preemptions = 0;
  for (const auto& [setting, drafts] : runs) {
    SCOPED_TRACE(testing::Message() << backend << ", pages of " << setting.page_size << ", steps of "
                                    << setting.chunk << ", k = " << drafts.k << ", right " << drafts.right);
    const EngineStats stats = run_storm(all, setting, backend, drafts);
    if (setting.chunk > 8) {
      EXPECT_GT(stats.speculative.draft_tokens, 50);
    }
    if (drafts.right == 1) {
      EXPECT_GT(stats.speculative.mean_acceptance_length(), 3);
    }
    sum.draft_tokens += stats.speculative.draft_tokens;
    sum.accepted_tokens += stats.speculative.accepted_tokens;
    preemptions += stats.preemptions;
    if (HasFailure()) return;
  }
  EXPECT_GT(sum.accepted_tokens, 1500);
  EXPECT_GT(sum.draft_tokens - sum.accepted_tokens, 1500);
  EXPECT_GT(preemptions, 10);
}

INSTANTIATE_TEST_SUITE_P(Backends, DraftStorm, testing::Values("CPU_ATTN", "TORCH_NATIVE", test::kPair));

/// The test can fail: accepting one draft by dice changes an answer.
TEST(Drafts, SyntheticAcceptanceIsSeen) {
  const GenerateRequest request = test::greedy(prompt_of(20, 3), 200);
  Core plain(config_of({}));
  EngineConfig config = with_drafts({}, test::kPair, {5});
  config.speculative.synthetic_rates = *synthetic_rates_of(3, 5);
  Core core(config);
  const Answers got = core.run(request);
  EXPECT_NE(got, plain.run(request));
  EXPECT_EQ(got[0].ids.size(), 200u);
  EXPECT_NEAR(core->stats().speculative.mean_acceptance_length(), 3, 0.6);
  EXPECT_EQ(got, Core(config).run(request)) << "dice repeat";
}

/// Answers under a constraint, whose state is advanced over drafts and rolled back.
TEST(Drafts, AConstraintSeesTheSameTokens) {
  int64_t accepted = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    GenerateRequest request = test::greedy(prompt_of(10 + static_cast<int>(seed), seed), 50);
    request.sampling.temperature = static_cast<float>(seed % 2);
    request.sampling.seed = seed;
    request.sampling.logprobs = 1;
    request.sampling.frequency_penalty = seed % 3 == 0 ? 1.0f : 0.0f;
    const auto end = static_cast<int32_t>(seed % 4 == 0 ? 17 : -1);
    if (end >= 0) request.sampling.stop_token_ids = {end};
    const auto constraint = [&] { return std::make_unique<test::HashConstraint>(seed, 5, end); };
    Core plain(config_of({}, "CPU_ATTN"));
    const Answers alone = plain.run(request, constraint());
    std::vector<int32_t> text = request.prompt_ids;
    text.insert(text.end(), alone[0].ids.begin(), alone[0].ids.end());
    for (const double right : {1.0, 0.8, 0.0}) {
      Core core(with_drafts({}, "CPU_ATTN", {7}), true,
                std::make_unique<RecordedDrafter>(std::vector<std::vector<int32_t>>{text}, right, seed));
      EXPECT_EQ(core.run(request, constraint()), alone) << "seed " << seed << ", right " << right;
      accepted += core->stats().speculative.accepted_tokens;
    }
    // Every token obeys it.
    test::HashConstraint check(seed, 5, end);
    for (const int32_t id : alone[0].ids)
      EXPECT_TRUE(check.advance(id));
  }
  EXPECT_GT(accepted, 300);
}

/// Forms of answers as requests have them.
std::vector<OutputConstraint> forms() {
  using enum OutputConstraint::Kind;
  constexpr const char* kThings =
      R"({"type":"object","properties":{"things":{"type":"array","minItems":2,"maxItems":4,"items":{"type":"object",
      "properties":{"name":{"enum":["ab","abc"]},"size":{"type":"integer","minimum":0,"maximum":99}},
      "required":["name","size"],"additionalProperties":false}}},"required":["things"],"additionalProperties":false})";
  // What tool_choice = "required" asks for.
  constexpr const char* kCalls =
      R"({"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"type":"object","properties":{"name":{"const":"ls"},
      "parameters":{"$id":"urn:tool:0","type":"object","properties":{"path":{"type":"string","maxLength":6}},
      "required":["path"],"additionalProperties":false}},"required":["name","parameters"],"additionalProperties":false},
      {"type":"object","properties":{"name":{"const":"pwd"},"parameters":{"$id":"urn:tool:1","type":"object",
      "additionalProperties":false}},"required":["name","parameters"],"additionalProperties":false}]}})";
  std::vector<OutputConstraint> all;
  const auto add = [&](OutputConstraint::Kind kind, const char* text) {
    OutputConstraint form;
    form.kind = kind;
    form.text = text;
    all.push_back(std::move(form));
  };
  add(json_schema, kThings);
  add(json_schema, kCalls);
  add(json_object, "");
  add(regex, "(ab|abc)+-[0-9]{3,20}(x|yz){4}");
  add(grammar, "root ::= item item item+ \"end\"\nitem ::= \"[\" [a-c]* \"]\"");
  all.push_back({});
  all.back().kind = choice;
  all.back().choices = {"the first of the choices", "the first of the texts", "another text"};
  return all;
}

/// What an answer may have before its form, or instead of it.
enum class Before : uint8_t { nothing, reasoning, optional, call };

/// Forms and tools' calls: alone, behind reasoning that ends inside a draft, with n-gram drafts and with
/// drafts of every quality.
TEST(Drafts, FormsOfAnswersHaveTheSameBytes) {
  SpeculativeCounts looked_up, recorded;
  const auto sum = [](SpeculativeCounts& to, Core& core) {
    to.draft_tokens += core->stats().speculative.draft_tokens;
    to.accepted_tokens += core->stats().speculative.accepted_tokens;
  };
  uint32_t seed = 0;
  for (const OutputConstraint& form : forms())
    for (const Before before : {Before::nothing, Before::reasoning, Before::optional, Before::call})
      for (const float temperature : {0.0f, 1.0f}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", before " << static_cast<int>(before)
                                        << ", temperature " << temperature);
        Core plain(config_of({}, "CPU_ATTN"));
        GenerateRequest request;
        // What the model says by itself, and where a character is that may end its reasoning.
        std::string said;
        size_t mark = said.npos;
        while (mark == said.npos) {
          request = test::greedy(prompt_of(12, ++seed), 90);
          request.sampling.temperature = temperature;
          request.sampling.seed = seed;
          request.sampling.logprobs = 1;
          request.sampling.ignore_eos = false;
          said = plain.run(request)[0].text;
          for (size_t i = 5; i < said.size() && mark == said.npos; ++i)
            if (said[i] > 0x20 && said[i] < 0x7f) mark = i;
        }
        OutputConstraint wanted = form;
        if (before == Before::call) wanted.instead = {said.substr(0, 1) + said.substr(1, seed % 2)};
        if (before == Before::optional) wanted.after_begin = said.substr(0, 1);
        if (before == Before::reasoning || before == Before::optional) wanted.after = {said.substr(mark, 1)};
        request.sampling.constraint = std::make_shared<const OutputConstraint>(wanted);
        const Answers alone = plain.run(request);
        ASSERT_GT(alone[0].ids.size(), 1U);
        std::vector<int32_t> text = request.prompt_ids;
        text.insert(text.end(), alone[0].ids.begin(), alone[0].ids.end());
        for (const double right : {1.0, 0.8}) {
          Core core(with_drafts({}, "CPU_ATTN", {7}), true,
                    std::make_unique<RecordedDrafter>(std::vector<std::vector<int32_t>>{text}, right, seed));
          EXPECT_EQ(core.run(request), alone) << "right " << right;
          sum(recorded, core);
        }
        Core ngram(with_drafts({}, "CPU_ATTN", {5}));
        EXPECT_EQ(ngram.run(request), alone);
        sum(looked_up, ngram);
        if (HasFailure()) return;
      }
  EXPECT_GT(recorded.accepted_tokens, 800);
  EXPECT_GT(looked_up.accepted_tokens, 100);
  EXPECT_GT(looked_up.draft_tokens, looked_up.accepted_tokens);
}

}  // namespace
}  // namespace fovea
