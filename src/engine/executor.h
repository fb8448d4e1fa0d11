#pragma once
// The device side of the engine: steps go in, tokens come out later. The engine's thread decides what a step
// computes; forward pass and sampling are behind this interface.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/logits_processor.h"
#include "engine/scheduler.h"
#include "engine/token_constraint.h"
#include "fovea/engine.h"
#include "fovea/engine_stats.h"

namespace fovea {

/// How the tokens of a sequence are sampled: the same in all of its steps.
struct SequenceSampling {
  const SamplingParams* params = nullptr;
  LogitsProcessor* processor = nullptr;
  uint64_t seed = 0;
  size_t vocab = 0;                       ///< only ids below are sampled; the other logits pad the vocabulary
  TokenConstraint* constraint = nullptr;  ///< in the state after the sequence's tokens; null = none
  /// For load tests: draft i is accepted with probability [i], as SpeculativeConfig::synthetic_rates; empty =
  /// a draft is accepted if it is the token sampled.
  std::span<const double> synthetic_rates = {};
};

/// A chunk of a step, and the results requested from its logit rows. Every row is checked for unusable
/// logits.
struct SequenceStep {
  ScheduledChunk chunk;
  /// Set when the next token is sampled from the last row, and from those before it if there are drafts.
  std::optional<SequenceSampling> sampling;
  /// Most probable tokens reported with each prompt token whose predecessor has a logit row; -1 = all.
  int prompt_logprobs = 0;
  bool last_logits = false;  ///< the chunk has the last prompt token, and its logits were requested
};

struct Step {
  const BatchBuilder& batch;
  std::span<const SequenceStep> sequences;  ///< one for each chunk of `batch`, in its order
};

struct SequenceResult {
  /// The first unusable row's error; rows after a draft that was not accepted are not looked at. The fields
  /// below have no results of this row or later ones. Other sequences are not affected.
  Status status;
  /// Tokens in order, with SequenceStep::sampling: those of accepted drafts, then one more. Without it none,
  /// on an error those before the unusable row.
  std::vector<int32_t> tokens;
  std::optional<int> verified;                 ///< drafts of the chunk that were some; nullopt = all
  std::vector<TokenLogprobs> logprobs;         ///< of `tokens`, if SamplingParams::logprobs is set
  std::vector<TokenLogprobs> prompt_logprobs;  ///< of the prompt tokens after chunk.logits_first, ...
  std::vector<float> last_logits;              ///< [vocab] before any processing
};

struct StepResult {
  Status status;                          ///< an error: nothing was computed for any sequence of the step
  std::vector<SequenceResult> sequences;  ///< as Step::sequences
  double plan_seconds = 0, attention_seconds = 0;
  /// With keeps_hidden() on the CPU, each state: f32 [rows of the step, hidden size], until the next
  /// submit(). Elsewhere ModelRunner::hidden_there().
  std::vector<std::span<const float>> hidden;
};

/// A submitted step.
struct Ticket {
  uint64_t number = 0;
};

/// Steps take effect in the order of submission: a step reads the keys and values that earlier steps wrote,
/// and later steps may write a page that the scheduler has released after it.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Constant. At most overlap().open_steps steps are open (submitted and not waited for) at a time.
  virtual Overlap overlap() const = 0;

  /// Whether submit() returns before the step is done, so that the host can do something else meanwhile.
  virtual bool runs_apart() const { return false; }

  /// Whether the model keeps states of a step's rows (Model::keep_hidden()): those of a step are overwritten
  /// by the next one. Constant.
  virtual bool keeps_hidden() const { return false; }

  /// Called once, on the thread that calls the functions below.
  virtual void begin_thread() {}

  /// Whether the host samples the tokens of such a sequence, so that its next row waits for its newest token
  /// in spite of Overlap::future_tokens. Constant for a sequence.
  virtual bool samples_on_host(const SequenceSampling&) const { return false; }

  /// Whether drafts of the sequence are made on the device after each of its steps, so that a step may verify
  /// them, any number up to the configured one, while the one before is open. Their ids in Sequence::drafts
  /// are kFutureToken.
  virtual bool drafts_there(const Sequence&) const { return false; }

  /// Begins a step. Copies what it needs from `step` before it returns; the sequences, and what their
  /// SequenceSampling points to, stay valid until its wait().
  virtual Ticket submit(const Step& step) = 0;

  /// Blocks until the step is done. Call it once for each ticket, in the order of submission. Afterwards the
  /// step's keys and values are in the cache, unless status is an error.
  virtual StepResult wait(Ticket ticket) = 0;

  /// Why every step fails from now on: the device is lost. Destroying what uses it may block then.
  virtual std::optional<Error> failure() const { return std::nullopt; }

  /// Totals over all completed steps.
  virtual std::vector<AttentionUse> attention() const = 0;
};

}  // namespace fovea
