#pragma once
// The integer arrays of a step on a device that is not the CPU: copies of BatchBuilder's arrays, at the same
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
  /// Maximum sequences, rows and pages of one step.
  struct Limits {
    int max_seqs = 0, max_tokens = 0, max_logit_rows = 0;
    int64_t max_pages = 0;  ///< of one sequence
    int open_steps = 1;     ///< maximum steps whose copies are queued at a time
  };

  /// Throws std::bad_alloc.
  StepArrays(Device& device, const Limits& limits);

  /// Queues the copies. `batch` may change afterwards. The results of the functions below are valid until the
  /// next upload().
  Status upload(const BatchBuilder& batch, Stream& stream);

  /// All fields except `attention` and `kv`.
  const StepTensors& tensors() const { return tensors_; }
  /// batch.meta() with arrays on the device.
  const BatchMeta& meta() const { return meta_; }
  /// batch.split() with its prefill_offsets on the device, and the host's q_offsets and kv_lens.
  const PhaseSplit& split() const { return split_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  template <class T>
  Tensor copy_in(std::span<const T> values, size_t& offset, size_t capacity, Stream& stream);

  Limits limits_;
  Device& device_;
  Buffer memory_;
  size_t block_bytes_ = 0;
  // The copies may run after upload() has returned and read these blocks, one for each step in flight.
  std::vector<std::vector<std::byte>> blocks_;
  size_t block_ = 0;
  Status status_;
  StepTensors tensors_;
  BatchMeta meta_;
  PhaseSplit split_;
};

}  // namespace fovea
