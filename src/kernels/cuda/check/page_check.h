#pragma once
// Finds page ids that a step would read and that the cache does not have; without the check, attention would
// read unrelated memory. It reads every id once, four bytes for each page of each sequence: with pages of 16
// keys, 8 heads and 128 16-bit elements that is one byte in 16384 of what attention reads in each layer.
#include <cstdint>

#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"

struct CUstream_st;

namespace fovea::cuda {

/// The pages of a step: a table, or with `indptr` the CSR form. Device memory.
struct PageCheck {
  const int32_t* q_offsets = nullptr;  ///< [num_seqs + 1]; skips sequences without rows. Null: skips none
  const int32_t* kv_lens = nullptr;    ///< [num_seqs]
  int num_seqs = 0;
  const int32_t* table = nullptr;  ///< [num_seqs, table_columns] by rows of table_stride
  int64_t table_stride = 0;
  int table_columns = 0;
  const int32_t* indptr = nullptr;   ///< [num_seqs + 1] into `indices`
  const int32_t* indices = nullptr;  ///< null: a sequence's keys are rows of a tensor, from indptr[seq] on
  int64_t num_indices = 0;
  int page_size = 1;
  int num_pages = 0;  ///< of the cache, or rows of the tensor
  /// The mask of the step's rows; page ids whose keys no row sees are arbitrary. (A packed mask hides no
  /// page.)
  MaskSpec mask;
  const Span* spans = nullptr;  ///< with mask.spans, as in BatchMeta
  const int32_t* span_offsets = nullptr;
};

/// The first fault by (seq, entry).
struct PageFault {
  enum Kind : int32_t {
    none,
    id,       ///< `value` at `entry` of the sequence is no page
    missing,  ///< the sequence has `value` pages and entries for `entry` of them
    indptr,   ///< the sequence's entries [`entry`, `value`) do not lie in `indices`
    rows,     ///< the sequence has rows [`entry`, `value`), not all of which lie in the tensor
  };
  int32_t kind = none, seq = 0, entry = 0, value = 0;
};
static_assert(sizeof(PageFault) == 16);

/// Queues the check, which writes its result to `fault` (device memory, 16-byte aligned). Lengths below 0
/// have no pages here; the planner rejects them. Can be captured. Errors: arrays missing, sizes below 0;
/// those of the CUDA runtime.
Status launch_page_check(const PageCheck& check, PageFault* fault, CUstream_st* stream);

/// Queues a kernel that sets bad[seq] (device memory, [num_seqs]) to whether the sequence has a fault, for
/// PlanInput::bad_pages. Can be captured. Errors as above.
Status launch_bad_pages(const PageCheck& check, uint8_t* bad, CUstream_st* stream);

/// The error for a fault, copied to the host; no error for PageFault::none.
Status page_fault_status(const PageFault& fault, const PageCheck& check);

}  // namespace fovea::cuda
