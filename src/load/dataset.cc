#include "load/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "fovea/result.h"
#include "load/random.h"

namespace fovea::load {
namespace {

struct Lengths {
  int prompt = 0, output = 0;
};

/// Appends `tokens` tokens, or words that make about as many.
void append_random(Prompt& prompt, int tokens, const Vocabulary& vocabulary, Random& random) {
  prompt.tokens += tokens;
  if (!vocabulary.ids.empty()) {
    const auto last = static_cast<int64_t>(vocabulary.ids.size()) - 1;
    for (int i = 0; i < tokens; ++i)
      prompt.ids.push_back(vocabulary.ids[static_cast<size_t>(random.integer(0, last))]);
    return;
  }
  const auto& words = common_words();
  const auto count = std::max<int64_t>(1, std::llround(tokens / vocabulary.tokens_per_word));
  for (int64_t i = 0; i < count; ++i) {
    if (!prompt.text.empty()) prompt.text += ' ';
    prompt.text += words[static_cast<size_t>(random.integer(0, static_cast<int64_t>(words.size()) - 1))];
  }
}

int draw_length(int length, double range_ratio, Random& random) {
  const double low = std::floor(length * (1 - range_ratio)), high = std::ceil(length * (1 + range_ratio));
  return static_cast<int>(
      random.integer(std::max<int64_t>(static_cast<int64_t>(low), 1), static_cast<int64_t>(high)));
}

std::vector<Prompt> random_prompts(const DatasetConfig& config, const Vocabulary& vocabulary,
                                   Random& random) {
  Prompt prefix;
  if (config.prefix_len > 0) append_random(prefix, config.prefix_len, vocabulary, random);
  std::vector<Prompt> prompts;
  for (int i = 0; i <= config.num_prompts; ++i) {
    Prompt& prompt = prompts.emplace_back(prefix);
    append_random(prompt, draw_length(config.input_len, config.range_ratio, random), vocabulary, random);
    prompt.output_tokens = draw_length(config.output_len, config.range_ratio, random);
  }
  return prompts;
}

/// The order of the prefixes is random, as with requests of many users.
std::vector<Prompt> repeated_prefixes(const DatasetConfig& config, const Vocabulary& vocabulary,
                                      Random& random) {
  std::vector<Prompt> prefixes(static_cast<size_t>(std::min(config.num_prefixes, config.num_prompts)));
  for (Prompt& prefix : prefixes)
    if (config.repeated_prefix_len > 0) append_random(prefix, config.repeated_prefix_len, vocabulary, random);
  std::vector<size_t> turns;
  for (size_t i = 0; i < static_cast<size_t>(config.num_prompts); ++i)
    turns.push_back(i % prefixes.size());
  random.shuffle(turns);
  std::vector<Prompt> prompts;
  for (const size_t turn : turns)
    prompts.push_back(prefixes[turn]);
  prompts.emplace_back();  // the test request must not warm a prefix
  if (config.repeated_prefix_len > 0)
    append_random(prompts.back(), config.repeated_prefix_len, vocabulary, random);
  for (Prompt& prompt : prompts) {
    append_random(prompt, config.suffix_len, vocabulary, random);
    prompt.output_tokens = config.repetition_output_len;
  }
  return prompts;
}

bool is_kept(const Lengths& lengths) {
  return lengths.prompt >= kSharegptShortest && lengths.output >= kSharegptShortest &&
         lengths.prompt <= kSharegptLongestPrompt && lengths.prompt + lengths.output <= kSharegptLongest;
}

Lengths sharegpt_lengths(Random& random) {
  const auto draw = [&](double mean, double deviation) {
    return static_cast<int>(std::lround(std::min(std::exp(mean + deviation * random.normal()), 1e6)));
  };
  for (;;) {
    const int prompt = draw(kSharegptPromptLogMean, kSharegptPromptLogDeviation);
    const Lengths lengths{prompt, draw(kSharegptAnswerLogMean, kSharegptAnswerLogDeviation)};
    if (is_kept(lengths)) return lengths;
  }
}

std::vector<Prompt> sharegpt_like(const DatasetConfig& config, const Vocabulary& vocabulary, Random& random) {
  std::vector<Prompt> prompts;
  for (int i = 0; i <= config.num_prompts; ++i) {
    const Lengths lengths = sharegpt_lengths(random);
    append_random(prompts.emplace_back(), lengths.prompt, vocabulary, random);
    prompts.back().output_tokens = config.sharegpt_output_len.value_or(lengths.output);
  }
  return prompts;
}

Result<std::vector<Prompt>> sharegpt_file(const DatasetConfig& config, const Vocabulary& vocabulary,
                                          Random& random) {
  std::ifstream file(config.path, std::ios::binary);
  if (!file) return io_error("--dataset-path " + config.path + ": cannot be read: " + std::strerror(errno));
  FOVEA_TRY(turns, read_sharegpt(file, "--dataset-path " + config.path));
  random.shuffle(turns);
  const auto tokens = [&](const std::string& text) {
    return static_cast<int>(std::min<int64_t>(
        std::llround(static_cast<double>(text.size()) / vocabulary.bytes_per_token), 1 << 30));
  };
  std::vector<Prompt> kept;
  for (Turn& turn : turns) {
    if (kept.size() > static_cast<size_t>(config.num_prompts)) break;
    const Lengths lengths{tokens(turn.question), config.sharegpt_output_len.value_or(tokens(turn.answer))};
    if (!is_kept(lengths)) continue;
    Prompt& prompt = kept.emplace_back();
    prompt.text = std::move(turn.question);
    prompt.tokens = lengths.prompt;
    prompt.output_tokens = lengths.output;
  }
  if (kept.empty())
    return invalid("--dataset-path " + config.path + ": none of its " + std::to_string(turns.size()) +
                   " conversations has a question of 4 to 1024 tokens and an answer of at least 4, 2048 "
                   "together at most");
  const size_t distinct = kept.size();
  while (kept.size() <= static_cast<size_t>(config.num_prompts))
    kept.push_back(kept[kept.size() % distinct]);
  return kept;
}

}  // namespace

Result<std::vector<Prompt>> make_prompts(const DatasetConfig& config, const Vocabulary& vocabulary) {
  Random random(config.seed);
  switch (config.kind) {
    case Dataset::random: return random_prompts(config, vocabulary, random);
    case Dataset::prefix_repetition: return repeated_prefixes(config, vocabulary, random);
    case Dataset::sharegpt: break;
  }
  return config.path.empty() ? sharegpt_like(config, vocabulary, random)
                             : sharegpt_file(config, vocabulary, random);
}

}  // namespace fovea::load
