#pragma once
// The slots of a device that is not the CPU, and which adapter each holds: before a step its adapters are
// copied to slots, and its rows are sorted by slot (ops/lora_slots.h).
#include <cstdint>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/step_arrays.h"
#include "fovea/result.h"
#include "ops/lora_slots.h"
#include "tensor/buffer.h"

namespace fovea {

class LoraSlots {
 public:
  /// Bytes of each row of a step, and of each logit row, in its RowArrays.
  static constexpr size_t kRowBytes = sizeof(int32_t) + sizeof(LoraTile);
  /// Slots where the user gives no number: one for each adapter that is loaded at the start, in this range.
  static constexpr int kFewest = 4, kMost = 32;

  /// `slots`: at least as many as a step has adapters; `max_rows`: of a step. `layout` outlives this. Throws
  /// std::bad_alloc.
  LoraSlots(Device& device, const LoraLayout& layout, int slots, int64_t block_rows, int64_t max_rows);
  static int64_t bytes(const LoraLayout& layout, int slots, int64_t max_rows);

  /// Queues the copies of adapters that have no slot, in stream order: earlier steps still find those whose
  /// slots they get. `bucket`: the step is filled up to this many rows, all of which have logits; 0 = it is
  /// not. Then arrays(), until the next call.
  Status prepare(const BatchBuilder& batch, int bucket, Stream& stream);
  /// Whether the prepared step has rows with an adapter.
  bool used() const { return used_; }
  /// For StepArrays::upload(): the same ones in every step.
  std::array<RowArray, 4> arrays();
  /// The step whose arrays() have been copied; null without adapters. Valid until the next prepare().
  const LoraStep* step();

  /// For tests.
  int64_t copies() const { return copies_; }

 private:
  struct Slot {
    uint64_t adapter = 0;  ///< LoraAdapter::number; 0 = empty
    uint64_t step = 0;     ///< the last that used it
  };
  Result<int32_t> slot_of(const LoraAdapter& adapter, Stream& stream);

  Device& device_;
  const LoraLayout& layout_;
  Buffer memory_, counters_;
  bool zeroed_ = false;  // counters_
  std::vector<Slot> slots_;
  uint64_t steps_ = 0;
  int64_t copies_ = 0;
  bool used_ = false;
  std::vector<int32_t> slot_of_row_;
  LoraTileList rows_, logit_rows_;  // the second is empty where all rows have logits
  bool all_logits_ = true;
  std::array<Tensor, 4> there_;  // of arrays()
  LoraStep step_;
};

}  // namespace fovea
