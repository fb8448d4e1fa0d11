#pragma once
// Proposes tokens that may follow a sequence. What it proposes changes the time of an answer and nothing
// else.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fovea {

/// Drafts wanted for one sequence.
struct DraftJob {
  uint64_t id = 0;                  ///< of the sequence; not used again after it has ended
  std::span<const int32_t> tokens;  ///< all of its tokens, which only grow: the prompt, then the answer
  int prompt_len = 0;
  std::string_view client;              ///< what other requests of the same client may be known from
  int most = 0;                         ///< drafts, at least 1
  std::vector<int32_t> drafts = {};     ///< the result, empty before: at most `most`, all ids of the target
  std::span<const int32_t> pages = {};  ///< of the sequence's keys and values in the model
};

/// What a step computes of one sequence: the states of its rows [first, first + count), whose tokens stay.
struct HiddenRows {
  uint64_t id = 0;
  std::span<const int32_t>
      tokens;  ///< all of the sequence's, except those that the step samples if it is open
  std::span<const int32_t> pages;
  int first = 0, count = 0;
  int64_t row = 0;     ///< of `first` in the step
  bool ended = false;  ///< the sequence's last rows
};

/// One thread calls it.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// All sequences of one step.
  virtual void propose(std::span<DraftJob> jobs) = 0;

  /// Whether propose() might have drafts for the sequence when one more token is known; false only where it
  /// will not. Only `id`, `tokens`, `prompt_len` and `client` of the job are set.
  virtual bool may_draft(const DraftJob& job) {
    (void)job;
    return true;
  }

  /// Tokens of the sequence that propose() computes before its first draft.
  virtual int behind(const DraftJob& job) const {
    (void)job;
    return 0;
  }

  /// For drafters that read the model's hidden states, after each step or while it is still open, and before
  /// the next one overwrites them: `states` f32 [rows of the step, hidden size] of each state that the model
  /// keeps, if the host has them. Rows of a sequence come in order; they start again lower after a
  /// preemption, and higher where a prefix was cached.
  virtual void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) {
    (void)rows, (void)states;
  }
  /// The pages of these sequences may be found in the prefix cache from now on: what observe() has put off is
  /// done as far as tokens are known. `first`, `count` and `row` are not set.
  virtual void settle(std::span<const HiddenRows> sequences) { (void)sequences; }

  /// The sequence has ended, with these tokens; for some it is called without a propose() before.
  virtual void end(uint64_t id, std::span<const int32_t> tokens, int prompt_len, std::string_view client) {
    (void)id, (void)tokens, (void)prompt_len, (void)client;
  }
};

}  // namespace fovea
