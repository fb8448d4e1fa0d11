#pragma once
// Prompts and output lengths of a run.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "load/api.h"

namespace fovea::load {

enum class Dataset { random, sharegpt, prefix_repetition };

struct DatasetConfig {
  Dataset kind = Dataset::random;
  int num_prompts = 1000;
  uint64_t seed = 0;
  // random: lengths are uniform in [len * (1 - range_ratio), len * (1 + range_ratio)]; the prefix is shared.
  int input_len = 1024, output_len = 128, prefix_len = 0;
  double range_ratio = 0;
  // sharegpt: a file in ShareGPT's format, or "" for random prompts with similar lengths.
  std::string path;
  std::optional<int> sharegpt_output_len;
  // prefix_repetition: num_prefixes prefixes, each before the same number of prompts.
  int repeated_prefix_len = 256, suffix_len = 256, num_prefixes = 10, repetition_output_len = 128;
};

/// Data about the server's tokenizer.
struct Vocabulary {
  std::vector<int32_t> ids;    ///< token ids of words; empty = prompts are text
  double tokens_per_word = 1;  ///< average over common_words()
  double bytes_per_token = 4;  ///< of English text, for ShareGPT files
};

/// The words of prompts without token ids; prompts with ids use their tokens.
const std::vector<std::string_view>& common_words();
/// All common words, with a space before each.
std::string all_words();

// Lengths like those of ShareGPT's first turns: log-normal, redrawn when outside the bounds with which `vllm
// bench serve` filters the file (a prompt of 4 to 1024 tokens, an answer of at least 4, at most 2048
// together). The parameters are chosen so that the means are close to the 217 and 200 tokens that such runs
// on the file report.
inline constexpr double kSharegptPromptLogMean = 5.03, kSharegptPromptLogDeviation = 1.4;
inline constexpr double kSharegptAnswerLogMean = 4.77, kSharegptAnswerLogDeviation = 1.1;
inline constexpr int kSharegptShortest = 4, kSharegptLongestPrompt = 1024, kSharegptLongest = 2048;

/// config.num_prompts prompts, plus one of the same kind at the end for the test request and the warm-up.
Result<std::vector<Prompt>> make_prompts(const DatasetConfig& config, const Vocabulary& vocabulary);

/// A conversation's first question and answer.
struct Turn {
  std::string question, answer;
};
/// Reads a ShareGPT file, a JSON list of {"conversations": [{"value": ...}, ...]}; keeps conversations of two
/// or more turns.
Result<std::vector<Turn>> read_sharegpt(std::istream& file, const std::string& name);

}  // namespace fovea::load
