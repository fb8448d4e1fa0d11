#pragma once
// Looks for page ids that a step would read and that the cache does not have. It reads every id once, four
// bytes for each page of each sequence: with pages of 16 keys, 8 heads and 128 16-bit elements one byte in
// 16384 of what attention reads of them in every layer. An id out of range is otherwise followed to memory of
// something else.
#include <cstdint>

#include "fovea/attention_backend.h"
#include "fovea/result.h"

struct CUstream_st;

namespace fovea::cuda {

/// The pages of a step: a table, or with `indptr` the CSR form. Device memory.
struct PageCheck {
  const int32_t* q_offsets = nullptr;  ///< [num_seqs + 1]; sequences without rows are not read. Null: all are
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
  /// Of a step's rows; pages whose keys none of them sees may be anything. (A packed mask hides no page.)
  MaskSpec mask;
  const Span* spans = nullptr;  ///< with mask.spans, as in BatchMeta
  const int32_t* span_offsets = nullptr;
};

/// What was found: the first by (seq, entry).
struct PageFault {
  enum Kind : int32_t {
    none,
    id,       ///< `value` at `entry` of the sequence is no page
    missing,  ///< the sequence has `value` pages and entries for `entry` of them
    indptr,   ///< entries of the sequence do not lie in `indices`: `entry` is where they begin, `value` where
              ///< they end
    rows,     ///< the sequence has rows `entry` to `value`, not all of which the tensor has
  };
  int32_t kind = none, seq = 0, entry = 0, value = 0;
};
static_assert(sizeof(PageFault) == 16);

/// Queues the check; `fault` (device memory, 16-byte aligned) says what it found. Lengths below 0 are the
/// planner's to refuse, and have no pages here. Can be captured. Errors: arrays missing, sizes below 0; what
/// the CUDA runtime says.
Status launch_page_check(const PageCheck& check, PageFault* fault, CUstream_st* stream);

/// Queues a kernel that sets bad[seq] (device memory, [num_seqs]) to whether the sequence has a fault: what a
/// planner needs, PlanInput::bad_pages. Can be captured. Errors as above.
Status launch_bad_pages(const PageCheck& check, uint8_t* bad, CUstream_st* stream);

/// What a fault, copied to the host, means; nothing for none.
Status page_fault_status(const PageFault& fault, const PageCheck& check);

}  // namespace fovea::cuda
