#pragma once
// Sparse attention by the dense kernels: each token becomes a sequence of one query row, whose keys are those
// that its list names, in the order of the list. Host code.
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/params.h"

struct CUstream_st;

namespace fovea::cuda::mla {

/// The lists of a step, and where its work items go; device memory.
struct SparseLists {
  const int32_t* chosen = nullptr;  ///< [Tq, topk] positions; entries outside of a sequence's keys are none
  int64_t chosen_row_stride = 0;
  int topk = 0;
  /// One item for each token, its row_first being the token's row in its sequence: those of a schedule whose
  /// packed rows are tokens (group 1, one row a tile, no splits).
  const WorkItem* tokens = nullptr;
  const int32_t* num_tokens = nullptr;
  const int32_t* pages = nullptr;  ///< KvParams::pages; null: ragged
  FastDivisor page_size;
  /// Between pages and between slots, in a unit that divides both.
  int64_t page_units = 0;
  int slot_units = 1;
  int heads = 0, tile_rows = 1;
  /// Listed keys of a split, and the splits of a whole list; sequences with more rows than max_split_tokens
  /// are not split.
  int split_keys = 1, splits = 1, max_split_tokens = 0;
  int32_t* slots = nullptr;  ///< [tokens, topk] receives the places of the listed keys in units, without gaps
  WorkItem* items = nullptr;  ///< [tokens, splits, tiles of heads]
  int32_t* num_items = nullptr;

  FOVEA_HOST_DEVICE int tiles() const { return (heads + tile_rows - 1) / tile_rows; }
};

/// Makes slots and items, in one kernel that can be captured, for at most max_tokens tokens. Kernels read the
/// records as pages of one slot that are a unit apart. A token of a sequence whose keys cannot be read has an
/// item without keys (kLostKeys). Partial results of the split tokens of sequence b begin at those of token
/// b * max_split_tokens. Errors: those of the CUDA runtime.
Status launch_lists(const SparseLists& lists, int max_tokens, CUstream_st* stream);

}  // namespace fovea::cuda::mla
