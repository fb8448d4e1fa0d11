#include "load/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "../tests/support/temp_dir.h"
#include "fovea/result.h"
#include "load/arrivals.h"
#include "load/random.h"

namespace fovea::load {
namespace {

Vocabulary some_ids() {
  Vocabulary vocabulary;
  vocabulary.ids = {5, 6, 7, 900};
  return vocabulary;
}

DatasetConfig config_of(Dataset kind, int count) {
  DatasetConfig config;
  config.kind = kind;
  config.num_prompts = count;
  return config;
}

TEST(Dataset, RandomPromptsOfIds) {
  DatasetConfig config = config_of(Dataset::random, 500);
  config.input_len = 100;
  config.output_len = 10;
  config.prefix_len = 8;
  config.range_ratio = 0.5;
  const auto prompts = *make_prompts(config, some_ids());
  ASSERT_EQ(prompts.size(), 501u);
  std::set<int> inputs, outputs;
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(static_cast<size_t>(prompt.tokens), prompt.ids.size());
    EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + 8, prompts[0].ids.begin()));
    for (const int32_t id : prompt.ids)
      EXPECT_TRUE(id == 5 || id == 6 || id == 7 || id == 900);
    inputs.insert(prompt.tokens - 8);
    outputs.insert(prompt.output_tokens);
  }
  EXPECT_EQ(*inputs.begin(), 50);
  EXPECT_EQ(*inputs.rbegin(), 150);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_EQ(*outputs.rbegin(), 15);
  EXPECT_NE(prompts[1].ids, prompts[2].ids);
}

TEST(Dataset, OneSeedGivesTheSamePrompts) {
  DatasetConfig config = config_of(Dataset::random, 3);
  const auto ids = [&](uint64_t seed) {
    config.seed = seed;
    return (*make_prompts(config, some_ids()))[0].ids;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
}

TEST(Dataset, WordsStandForTokens) {
  DatasetConfig config = config_of(Dataset::random, 1);
  config.input_len = 120;
  Vocabulary vocabulary;
  vocabulary.tokens_per_word = 1.5;
  const auto prompts = *make_prompts(config, vocabulary);
  EXPECT_TRUE(prompts[0].ids.empty());
  EXPECT_EQ(std::count(prompts[0].text.begin(), prompts[0].text.end(), ' '), 79);  // 80 words
  EXPECT_EQ(prompts[0].tokens, 120);
}

TEST(Dataset, PrefixesRepeat) {
  DatasetConfig config = config_of(Dataset::prefix_repetition, 20);
  config.num_prefixes = 4;
  config.repeated_prefix_len = 16;
  config.suffix_len = 4;
  const auto prompts = *make_prompts(config, some_ids());
  std::map<std::vector<int32_t>, int> prefixes;
  for (size_t i = 0; i < 20; ++i) {
    ASSERT_EQ(prompts[i].ids.size(), 20u);
    ++prefixes[{prompts[i].ids.begin(), prompts[i].ids.begin() + 16}];
  }
  EXPECT_EQ(prefixes.size(), 4u);
  for (const auto& [prefix, count] : prefixes) {
    EXPECT_EQ(count, 5);
    EXPECT_FALSE(std::equal(prefix.begin(), prefix.end(), prompts[20].ids.begin()));
  }
}

TEST(Dataset, ShareGptLikeLengthsHaveTheDocumentedMeans) {
  const auto prompts = *make_prompts(config_of(Dataset::sharegpt, 20'000), some_ids());
  double inputs = 0, outputs = 0;
  for (const Prompt& prompt : prompts) {
    EXPECT_GE(prompt.tokens, kSharegptShortest);
    EXPECT_LE(prompt.tokens, kSharegptLongestPrompt);
    EXPECT_LE(prompt.tokens + prompt.output_tokens, kSharegptLongest);
    inputs += prompt.tokens;
    outputs += prompt.output_tokens;
  }
  EXPECT_NEAR(inputs / 20'001, 217, 7);
  EXPECT_NEAR(outputs / 20'001, 200, 7);
}

Result<std::vector<Turn>> read(const std::string& text) {
  std::istringstream file(text);
  return read_sharegpt(file, "a.json");
}

TEST(Dataset, ReadsShareGpt) {
  const auto turns = read(
      R"([{"id":"x","conversations":[{"from":"human","value":"q","more":{"value":"no"}},{"value":"a","from":"gpt"},{"value":"q2"}]},)"
      R"({"conversations":[{"value":"only one"}],"value":"no"},{"conversations":[]},7,{"conversations":[{"value":"r"},{"value":"s"}]}])");
  ASSERT_TRUE(turns) << turns.error().message;
  ASSERT_EQ(turns->size(), 2u);
  EXPECT_EQ((*turns)[0].question, "q");
  EXPECT_EQ((*turns)[0].answer, "a");
  EXPECT_EQ((*turns)[1].question, "r");
}

TEST(Dataset, RefusesWhatIsNotShareGpt) {
  for (const std::string& bad : {std::string(), std::string("{}"), std::string("[{\"conversations\":"),
                                 std::string("[]"), std::string("\"a\""), "[" + std::string(200, '[')}) {
    const auto turns = read(bad);
    ASSERT_FALSE(turns) << bad;
    EXPECT_NE(turns.error().message.find("a.json: "), std::string::npos);
    EXPECT_EQ(turns.error().message.find('\n'), std::string::npos);
  }
}

TEST(Dataset, ShareGptFileIsFilteredAndRepeated) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/s.json";
  std::ofstream(path) << R"([{"conversations":[{"value":")" << std::string(80, 'q') << R"("},{"value":")"
                      << std::string(40, 'a')
                      << R"("}]},{"conversations":[{"value":"hi"},{"value":"short"}]}])";
  DatasetConfig config = config_of(Dataset::sharegpt, 3);
  config.path = path;
  const auto prompts = make_prompts(config, {});
  ASSERT_TRUE(prompts) << prompts.error().message;
  ASSERT_EQ(prompts->size(), 4u);
  for (const Prompt& prompt : *prompts) {
    EXPECT_EQ(prompt.text, std::string(80, 'q'));
    EXPECT_EQ(prompt.tokens, 20);
    EXPECT_EQ(prompt.output_tokens, 10);
  }
  config.sharegpt_output_len = 2000;  // 2000 + the prompt of 20 fits 2048; 2040 does not
  EXPECT_EQ((*make_prompts(config, {}))[0].output_tokens, 2000);
  config.sharegpt_output_len = 2040;
  EXPECT_FALSE(make_prompts(config, {}));
  config.path += ".absent";
  EXPECT_NE(make_prompts(config, {}).error().message.find("cannot be read"), std::string::npos);
}

TEST(Arrivals, KeepToTheRate) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(arrival_times(3, inf, 1, 0), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(arrival_times(1, 5, 1, 0), std::vector<double>{0});
  EXPECT_TRUE(arrival_times(0, 5, 1, 0).empty());
  for (const double burstiness : {1e-3, 0.3, 1.0, 50.0, 1e6}) {
    const auto times = arrival_times(1001, 20, burstiness, 7);
    EXPECT_EQ(times.front(), 0);
    EXPECT_NEAR(times.back(), 50, 1e-9);  // 1000 gaps at 20 per second
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  }
}

/// Variance / mean^2 of a gamma distribution is 1 / shape.
TEST(Arrivals, BurstinessIsTheShapeOfTheGaps) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto times = arrival_times(100'001, 1, burstiness, 3);
    double squares = 0;
    for (size_t i = 1; i < times.size(); ++i)
      squares += (times[i] - times[i - 1] - 1) * (times[i] - times[i - 1] - 1);
    EXPECT_NEAR(squares / 100'000 * burstiness, 1, 0.06) << burstiness;
  }
}

TEST(Random, IntegersCoverTheirRange) {
  Random random(1);
  std::map<int64_t, int> counts;
  for (int i = 0; i < 30'000; ++i)
    ++counts[random.integer(-1, 1)];
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [value, count] : counts)
    EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace fovea::load
