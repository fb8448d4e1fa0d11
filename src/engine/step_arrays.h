#pragma once
// The arrays of a step on a device that is not the CPU: copies of BatchBuilder's arrays and of the executor's
// own, in one block of host memory that is copied at once. Page tables become page lists (kv_indptr and
// kv_indices), so that the copy has no unused entries.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/phased.h"
#include "engine/batch_builder.h"
#include "engine/host_buffer.h"
#include "tensor/buffer.h"

namespace fovea {

/// An array of the executor: `row_bytes` for each row of the step, or for each of its logit rows.
struct RowArray {
  const void* data = nullptr;
  size_t row_bytes = 0;  ///< a multiple of 4
  size_t rows = 0;
  bool logit_rows = false;
  Tensor* on_device = nullptr;  ///< receives the copy, u8 [rows * row_bytes], valid until the next upload()
};

class StepArrays {
 public:
  /// Maximum sequences, rows and pages of one step.
  struct Limits {
    int max_seqs = 0, max_tokens = 0, max_logit_rows = 0;
    int64_t max_pages = 0;        ///< of one sequence
    int64_t max_cross_pages = 0;  ///< of one sequence; 0 = the model has no encoder
    int page_size = 1;
    int host_blocks = 1;                        ///< blocks of host memory, used in turn
    size_t row_bytes = 0, logit_row_bytes = 0;  ///< sums over the RowArrays of a step
    int graph_rows = 0;                         ///< More::rows at most
    /// Steps of so few rows have small arrays.
    size_t small_rows() const { return static_cast<size_t>(std::max(max_seqs, graph_rows)); }
  };
  /// What upload() copies besides the batch.
  struct More {
    std::span<const RowArray> row_arrays = {};  ///< the same ones in the same order in every step
    /// A decode step, all of whose rows have logits, is filled up to this many rows and as many sequences, at
    /// most max_seqs: token 0 at position 0, nothing written, and the key of page 0 (with an encoder, also as
    /// the cross key). Each fills a sequence, the last one takes what is left, and sequences that are left
    /// have no rows; a step that is filled up has fewer sequences than max_seqs. 0 = not filled up.
    /// `row_arrays` are filled up already.
    int rows = 0;
  };

  /// Throws std::bad_alloc.
  StepArrays(Device& device, const Limits& limits);

  /// Queues one copy. `batch` may change afterwards; the block is used again `host_blocks` calls later, when
  /// the copy must be done. The results of the functions below are valid until the next upload(). Arrays have
  /// the same addresses in every step of at most small_rows() rows, and in every other step.
  Status upload(const BatchBuilder& batch, Stream& stream, const More& more);
  Status upload(const BatchBuilder& batch, Stream& stream) { return upload(batch, stream, More()); }

  /// All fields except `attention` and `kv`.
  const StepTensors& tensors() const { return tensors_; }
  /// batch.meta() with arrays on the device.
  const BatchMeta& meta() const { return meta_; }
  /// meta().kv_lens, which operations queued before the plan may change.
  const Tensor& kv_lens() const { return lens_there_; }
  /// batch.split() with its prefill_offsets on the device, and the host's q_offsets and kv_lens.
  const PhaseSplit& split() const { return split_; }
  /// The same for batch.encoder().cross_meta(), whose pages follow the decoder's in kv_indices. Only with
  /// max_cross_pages.
  const BatchMeta& cross_meta() const { return cross_meta_; }
  const PhaseSplit& cross_split() const { return cross_split_; }

  int64_t device_bytes() const { return static_cast<int64_t>(memory_.size()); }
  int64_t host_bytes() const { return static_cast<int64_t>(block_bytes_ * blocks_.size()); }
  /// device_bytes(), from the limits alone; every host block has as many.
  static int64_t block_bytes(const Limits& limits);

 private:
  std::byte* reserve(ElementType type, size_t count, size_t capacity, Tensor& there);
  template <class T>
  std::span<T> put(std::span<const T> values, size_t count, size_t capacity, Tensor& there);
  int32_t* put_pages(const BatchMeta& host, size_t seqs, std::span<int32_t> first, const int32_t* begin,
                     int32_t* page) const;

  Limits limits_;
  Device& device_;
  Buffer memory_;
  size_t block_bytes_ = 0, offset_ = 0;
  std::vector<HostBuffer> blocks_;
  size_t block_ = 0;
  std::vector<int32_t> q_offsets_, kv_lens_, cross_lens_;  // of a step that was filled up
  StepTensors tensors_;
  Tensor lens_there_;
  BatchMeta meta_, cross_meta_;
  PhaseSplit split_, cross_split_;
};

}  // namespace fovea
