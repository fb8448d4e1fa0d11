#pragma once
// What a step's logit rows become: sampled tokens, log probabilities, errors. On the CPU a row is evaluated
// from its logits; on a device, from what the device's sampler gave, and from a copy of its logits only where
// these are asked for.
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/sampler.h"
#include "kernels/cuda/sample/sample.h"

namespace fovea {

class LogitRows {
 public:
  /// The rows of `sequences`, in order. They, and what they point to, must stay valid.
  explicit LogitRows(std::span<const SequenceStep> sequences = {});

  int size() const { return static_cast<int>(rows_.size()); }
  /// The first row of each sequence.
  int first_row(size_t sequence) const { return first_[sequence]; }

  /// Samples a token and computes log probabilities. `logits` [vocabulary], unchanged at the end. The result
  /// is a pure function of the row, so rows may be evaluated by several threads.
  void evaluate(int row, std::span<float> logits, Sampler& sampler);

  /// The row as a device's sampler takes it: without logits_row, slot and edits. `on_host`: the host samples.
  cuda::SampleRow sample_row(int row, bool on_host) const;
  /// Whether the host needs the row's logits beside the sampler's result.
  bool needs_logits(int row, bool on_host) const;
  /// The sampler's result instead of evaluate(). `logits` if they are needed.
  void take(int row, const cuda::SampleResult& result, std::span<float> logits);

  /// After all its rows have been evaluated. `logits_of(row)` is called for SequenceStep::last_logits.
  template <class LogitsOf>
  SequenceResult result(size_t sequence, const LogitsOf& logits_of) {
    int last_prompt_row = -1;
    SequenceResult result = collect(sequence, last_prompt_row);
    if (result.status && last_prompt_row >= 0) {
      const auto logits = logits_of(last_prompt_row);
      result.last_logits.assign(logits.begin(), logits.end());
    }
    return result;
  }

 private:
  struct Row {
    const SequenceStep* sequence = nullptr;
    int position = 0;      // of the row's token
    bool samples = false;  // the next token is sampled from it
    Status status;
    std::optional<int32_t> sampled;
    std::optional<TokenLogprobs> logprobs;  // of the sampled, or of the next prompt token

    int prompt_len() const { return sequence->chunk.sequence->prompt_len; }
    bool scores() const { return !samples && position + 1 < prompt_len(); }
    int32_t next_prompt_token() const {
      return sequence->chunk.sequence->tokens[static_cast<size_t>(position) + 1];
    }
    /// How many of the most probable tokens are reported, -1 = all; nullopt = no log probabilities.
    std::optional<int> top() const;
  };
  SequenceResult collect(size_t sequence, int& last_prompt_row);

  std::span<const SequenceStep> sequences_;
  std::vector<Row> rows_;
  std::vector<int> first_;
};

}  // namespace fovea
