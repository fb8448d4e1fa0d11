#pragma once
// Forward passes of a drafter's model, queued one after another: a row's token may be a draft of an earlier
// run, and its state that of a row of the run before, so that a chain of drafts needs no answer in between.
#include <cstdint>
#include <span>

#include "engine/batch_builder.h"
#include "fovea/result.h"

namespace fovea {

class DraftRuns {
 public:
  virtual ~DraftRuns() = default;

  /// Whose states the rows of a head's run continue.
  enum class States : uint8_t {
    none,  ///< a draft model has none
    step,  ///< rows of the model's step, of the last begin()
    kept,  ///< those of keep()
    own,   ///< the head's own, of rows with logits of the run before
  };
  struct Run {
    BatchBuilder& batch;
    std::span<const int32_t> from;   ///< [rows] slot of the draft that is the row's token; -1 = as in `batch`
    std::span<const int32_t> slots;  ///< [logit rows] where the row's draft goes; -1 = it is not wanted
    std::span<const int32_t> states;  ///< [rows] row of `source`
    States source = States::none;
  };

  /// A decode run of this many rows is faster with the logits of all rows.
  virtual bool wants_all_logits(int rows) const = 0;
  /// The next runs follow a step of the model, which may still run where the device has its states. Heads:
  /// `states` as of Drafter::observe(), valid until the next step of the model; empty where the device has
  /// them.
  virtual void begin(std::span<const std::span<const float>> states) = 0;
  /// Keeps the states of these rows of the model's step as rows [first, ...) of States::kept. Once after
  /// begin().
  virtual Status keep(std::span<const int32_t> rows, int first) = 0;
  virtual Status run(const Run& run) = 0;
  /// Slots [0, count) after all runs so far; valid until the next run.
  virtual Result<std::span<const int32_t>> drafts(int count) = 0;
};

}  // namespace fovea
