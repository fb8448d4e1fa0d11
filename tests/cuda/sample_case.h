#pragma once
// Rows of logits with sampling parameters, and what the CPU's sampler gives for them.
#include <cstdint>
#include <random>
#include <vector>

#include "engine/logits_processor.h"
#include "fovea/engine.h"
#include "kernels/cuda/sample/sample.h"

namespace fovea::cuda {

/// One request: a row in each of several steps. Its edits are in `params`, `bad_words`, `ends` and `forcing`.
struct SampleRequest {
  SampleRow row;  // without the addresses of edits and masks
  SamplingParams params;
  std::vector<std::vector<int32_t>> bad_words;
  std::vector<int32_t> ends;
  DecoderForcing forcing;
  size_t max_tokens = 0;
  bool edits = false;
  std::vector<int32_t> tokens;  // prompt and answer so far; with edits, row.position is their number
  size_t prompt_len = 0;
  std::vector<TokenBias> bias;  // params.logit_bias
  LogitsProcessor processor;    // null-like without edits

  EditSpec spec() const;
};

struct SampleCase {
  int32_t width = 0, vocab = 0;
  std::vector<float> logits;        // [rows, width]
  std::vector<uint32_t> masks;      // [rows, ceil(vocab / 32)]
  std::vector<SampleRequest> rows;  // row r draws from logits row r

  int64_t mask_words() const { return (vocab + 31) / 32; }
};

/// Rows of every kind: flat, with ties, sharp, with infinities and NaN; every parameter on and off.
SampleCase random_case(uint32_t seed, int rows, int32_t vocab, int32_t padding);

/// New logits for all rows, for the next step.
void draw_logits(SampleCase& c, std::mt19937_64& rng);

/// The expected results. Fields that a status leaves unset have the bytes 0xff.
std::vector<SampleResult> expected_results(SampleCase& c);

/// Fields that differ, or an empty string.
std::string difference(const SampleResult& got, const SampleResult& want, int top);

}  // namespace fovea::cuda
