#pragma once
// The integer arrays of a step on a device that is not the CPU: a copy of what BatchBuilder made, at the same
// addresses in every step.
#include <cstdint>
#include <span>
#include <vector>

#include "attention/phased.h"
#include "engine/batch_builder.h"
#include "tensor/buffer.h"

namespace fovea {

class StepArrays {
 public:
  /// Rows, sequences and pages of one step at most.
  struct Limits {
    int max_seqs = 0, max_tokens = 0, max_logit_rows = 0;
    int64_t max_pages = 0;  ///< of one sequence
    int open_steps = 1;     ///< steps whose copies may be queued at a time
  };

  /// Throws std::bad_alloc.
  StepArrays(Device& device, const Limits& limits);

  /// Queues the copies. `batch` may change afterwards; what the functions below return is valid until the
  /// next call.
  Status upload(const BatchBuilder& batch, Stream& stream);

  /// All fields except `attention` and `kv`.
  const StepTensors& tensors() const { return tensors_; }
  /// With arrays on the device.
  const BatchMeta& meta() const { return meta_; }
  /// With the host's lengths, of batch.meta().
  const PhaseSplit& split() const { return split_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  template <class T>
  Tensor copy_in(std::span<const T> values, size_t& offset, size_t capacity, Stream& stream);

  Limits limits_;
  Device& device_;
  Buffer memory_;
  size_t block_bytes_ = 0;
  // Copies are read from here later than upload() returns: one block for each step that may be queued.
  std::vector<std::vector<std::byte>> blocks_;
  size_t block_ = 0;
  Status status_;
  StepTensors tensors_;
  BatchMeta meta_;
  PhaseSplit split_;
};

}  // namespace fovea
