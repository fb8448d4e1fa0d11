#pragma once
// The arrays of the encoder's own attention on a device that is not the CPU.
#include <cstdint>

#include "fovea/attention_step.h"
#include "tensor/buffer.h"

namespace fovea {

class EncoderArrays {
 public:
  /// Maximum sequences and rows that the encoder computes in one step. Throws std::bad_alloc.
  EncoderArrays(Device& device, int max_seqs, int max_rows);

  /// Queues copies of the arrays of `meta`, a RaggedBatch's, which must not change until they are done. The
  /// result is valid until the next upload().
  Result<BatchMeta> upload(const BatchMeta& meta, Stream& stream);

  int64_t device_bytes() const { return static_cast<int64_t>(memory_.size()); }
  /// device_bytes(), from the limits alone.
  static int64_t bytes(int max_seqs, int max_rows);

 private:
  Device& device_;
  int max_seqs_, max_rows_;
  Buffer memory_;  // i32 [max_seqs + 1] offsets, [max_seqs] lengths, [max_rows] row numbers
};

}  // namespace fovea
