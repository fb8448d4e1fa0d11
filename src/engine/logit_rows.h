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

/// The rate of a draft at place `i`, if those before it are accepted, from
/// SpeculativeConfig::synthetic_rates.
double rate_after(std::span<const double> rates, size_t i);

class LogitRows {
 public:
  /// The rows of `sequences`, in order. They, and what they point to, must stay valid.
  explicit LogitRows(std::span<const SequenceStep> sequences = {});

  int size() const { return static_cast<int>(rows_.size()); }
  /// The first row of each sequence.
  int first_row(size_t sequence) const { return first_[sequence]; }

  /// Groups of rows that depend on no other group, so that several threads may evaluate them: the sampling
  /// rows of a chunk with drafts, or a single row.
  int groups() const { return static_cast<int>(groups_.size()); }
  /// The first row of a group.
  int first_of_group(int group) const { return groups_[static_cast<size_t>(group)]; }
  /// Samples tokens and computes log probabilities. `logits_of(row)`: its logits [vocabulary], unchanged at
  /// the end. Rows after the first draft that was not accepted are left out. The result is a pure function of
  /// the group.
  template <class LogitsOf>
  void evaluate(int group, const LogitsOf& logits_of, Sampler& sampler) {
    const int end =
        group + 1 < groups() ? groups_[static_cast<size_t>(group) + 1] : static_cast<int>(rows_.size());
    Ahead ahead;
    for (int row = first_of_group(group); row < end && evaluate_row(row, logits_of(row), sampler, ahead);)
      ++row;
    roll_back(first_of_group(group), ahead);
  }

  /// Drafts that the device has made, before take(): what the row's token is compared with; negative =
  /// nothing.
  void set_draft(int row, int32_t draft) { rows_[static_cast<size_t>(row)].made = draft; }
  /// The rows of a sequence are `count` positions further, since as many drafts were accepted before them.
  void move(size_t sequence, int count);
  /// The row as a device's sampler takes it: without logits_row, slot and edits. `on_host`: the host samples.
  cuda::SampleRow sample_row(int row, bool on_host) const;
  /// Whether the host needs the row's logits beside the sampler's result.
  bool needs_logits(int row, bool on_host) const;
  /// The sampler's result instead of evaluate(). `logits` if they are needed. Rows may be given in any order.
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
    int position = 0;             // of the row's token
    bool samples = false;         // the next token is sampled from it
    int drafts = 0;               // before it in its chunk, itself included
    bool rejects = false;         // by dice
    std::optional<int32_t> made;  // set_draft()
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
    /// The draft that its token is compared with; null after the last.
    const int32_t* draft() const;
    bool accepts() const { return sampled && !rejects && draft() != nullptr && *draft() == *sampled; }
  };
  /// What evaluating a group has looked ahead.
  struct Ahead {
    std::vector<int32_t> tokens;  // those of the sequence, then accepted drafts
    int advanced = 0;             // of the constraint
  };
  bool evaluate_row(int row, std::span<float> logits, Sampler& sampler, Ahead& ahead);
  void sample(Row& row, std::span<float> logits, Sampler& sampler, const Ahead& ahead) const;
  static bool advance(Row& row, Ahead& ahead);
  void roll_back(int row, const Ahead& ahead);
  static void roll_dice(Row& row);
  SequenceResult collect(size_t sequence, int& last_prompt_row);

  std::span<const SequenceStep> sequences_;
  std::vector<Row> rows_;
  std::vector<int> first_, groups_;
};

}  // namespace fovea
