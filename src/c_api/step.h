#pragma once
// A step's arrays as BatchMeta: int64 ones narrowed into memory of the object's own.
#include <array>
#include <span>
#include <vector>

#include "c_api/device.h"
#include "fovea/attention_backend.h"

namespace fovea::c_api {

/// int32 copies of index arrays. On a GPU one block, sized by the limits when the first array needs it, so
/// that its addresses stay those that a graph has captured.
class IndexBuffers {
 public:
  enum Which : uint8_t { q_offsets, kv_lens, page_table, kv_indptr, kv_indices, span_offsets, count_ };

  IndexBuffers(fovea_device device, const AttentionLimits& limits, int page_size);

  /// The most int32 of an array that fit.
  int64_t capacity(Which which) const { return capacity_[which]; }
  /// Before the arrays of a step.
  void begin_step() { queued_.clear(); }
  /// Where `array` is narrowed to, dense, when queue() has been called. On the CPU what int32 does not have
  /// is an error when `array.checked`.
  Result<const int32_t*> narrow(Which which, Narrowing array);
  /// On a GPU: one kernel for all arrays of the step.
  Status queue(Stream& stream);
  /// On a GPU: waits, then says which array of the step had numbers that int32 does not have.
  Status check(Stream& stream) const;
  /// Host memory of an array.
  std::vector<int32_t>& host(Which which) { return host_[which]; }

 private:
  fovea_device device_;
  std::array<int64_t, count_> capacity_ = {};
  std::array<std::vector<int32_t>, count_> host_;
  std::vector<Narrowing> queued_;
  Memory block_;  // a word of which arrays had numbers beyond, then the arrays
};

/// Checks everything that the host can see, and gives what a backend plans from. The step's tensors and
/// `buffers` are referred to.
/// `limits` are lowered to what a row of the page table has room for.
Result<BatchMeta> read_step(const fovea_step* step, const AttentionSpec& spec, AttentionLimits& limits,
                            const Arguments& arguments, IndexBuffers& buffers, Stream& stream);

/// The page ids that a planned step reads, of a CPU.
struct PageRange {
  int64_t least = 0, most = -1;
};
PageRange page_range(const BatchMeta& meta, int page_size);
/// The first page id that a cache of `num_pages` does not have, as an error.
Error page_error(const BatchMeta& meta, int page_size, int64_t num_pages, bool ragged);

}  // namespace fovea::c_api
