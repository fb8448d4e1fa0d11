#pragma once
// Prompts and lengths of a run.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"
#include "load/api.h"

namespace fovea::load {

enum class Dataset { random, sharegpt, prefix_repetition };

struct DatasetConfig {
  Dataset kind = Dataset::random;
  int num_prompts = 1000;
  uint64_t seed = 0;
  // random: lengths are uniform in [len * (1 - range_ratio), len * (1 + range_ratio)], the prefix before it
  // is the same for all.
  int input_len = 1024, output_len = 128, prefix_len = 0;
  double range_ratio = 0;
  // sharegpt: a file of ShareGPT's form, or "" for lengths like its own.
  std::string path;
  std::optional<int> sharegpt_output_len;
  // prefix_repetition: num_prefixes prefixes, each before the same number of prompts.
  int repeated_prefix_len = 256, suffix_len = 256, num_prefixes = 10, repetition_output_len = 128;
};

/// What is known of the server's tokenizer.
struct Vocabulary {
  std::vector<int32_t> ids;    ///< of words; empty = prompts are text
  double tokens_per_word = 1;  ///< of random_words()
  double bytes_per_token = 4;  ///< of English text, for sharegpt's file
};

/// The words that prompts without token ids consist of, and whose tokens those with ids do.
const std::vector<std::string_view>& common_words();
/// All of them, with a space before each.
std::string all_words();

// Lengths like those of ShareGPT's first turns: log-normal, drawn again when they are outside of what `vllm
// bench serve` keeps of the file (a prompt of 4 to 1024 tokens, an answer of at least 4, at most 2048
// together). The parameters are chosen so that the means come near the 217 and 200 tokens that such runs on
// the file report.
inline constexpr double kSharegptPromptLogMean = 5.03, kSharegptPromptLogDeviation = 1.4;
inline constexpr double kSharegptAnswerLogMean = 4.77, kSharegptAnswerLogDeviation = 1.1;
inline constexpr int kSharegptShortest = 4, kSharegptLongestPrompt = 1024, kSharegptLongest = 2048;

/// config.num_prompts prompts, and one more at the end: of the same kind, for trying and for warming up.
Result<std::vector<Prompt>> make_prompts(const DatasetConfig& config, const Vocabulary& vocabulary);

/// A conversation's first question and answer.
struct Turn {
  std::string question, answer;
};
/// A ShareGPT file's conversations of two turns or more: a JSON list of {"conversations": [{"value": ...},
/// ...]}.
Result<std::vector<Turn>> read_sharegpt(std::istream& file, const std::string& name);

}  // namespace fovea::load
