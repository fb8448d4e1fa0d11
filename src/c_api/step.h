#pragma once
// Converts a step's arrays to BatchMeta; int64 arrays are narrowed into memory owned by the object.
#include <array>
#include <span>
#include <vector>

#include "c_api/device.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"

namespace fovea::c_api {

/// int32 copies of index arrays. On a GPU they are one block, allocated for the limits when the first array
/// needs it, so that its addresses stay valid in captured graphs.
class IndexBuffers {
 public:
  enum Which : uint8_t { q_offsets, kv_lens, page_table, kv_indptr, kv_indices, span_offsets, count_ };

  IndexBuffers(fovea_device device, const AttentionLimits& limits, int page_size);

  /// Capacity for an array, in int32 elements.
  int64_t capacity(Which which) const { return capacity_[which]; }
  /// Call before the arrays of a step.
  void begin_step() { queued_.clear(); }
  /// Returns the dense destination of `array`, which is filled once queue() has run. On the CPU, values
  /// outside int32 are an error if `array.checked`.
  Result<const int32_t*> narrow(Which which, Narrowing array);
  /// On a GPU: launches one kernel for all arrays of the step.
  Status queue(Stream& stream);
  /// On a GPU: waits, then reports the array of the step that had values outside int32, if any.
  Status check(Stream& stream) const;
  /// Host buffer of an array.
  std::vector<int32_t>& host(Which which) { return host_[which]; }

 private:
  fovea_device device_;
  std::array<int64_t, count_> capacity_ = {};
  std::array<std::vector<int32_t>, count_> host_;
  std::vector<Narrowing> queued_;
  Memory block_;  // a word that marks arrays with values outside int32, then the arrays
};

/// Checks everything visible to the host and returns the input of a backend's plan, which references the
/// step's tensors and `buffers`. `limits` are lowered to what a row of the page table can hold.
Result<BatchMeta> read_step(const fovea_step* step, const AttentionSpec& spec, AttentionLimits& limits,
                            const Arguments& arguments, IndexBuffers& buffers, Stream& stream);

/// The range of page ids that a planned step reads (CPU only).
struct PageRange {
  int64_t least = 0, most = -1;
};
PageRange page_range(const BatchMeta& meta, int page_size);
/// An error about the first page id outside a cache of `num_pages`.
Error page_error(const BatchMeta& meta, int page_size, int64_t num_pages, bool ragged);

}  // namespace fovea::c_api
