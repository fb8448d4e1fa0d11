#pragma once
// Prefill of latent attention without absorption, on the CPU: cached records are expanded to keys and values
// of every head, a block of positions at a time, and the parts of a row's result are merged.
//
// Blocks are at multiples of kKeys in their sequence, and a row attends to each block on its own and merges
// the parts in ascending order. So its bits depend on its position and the records before it alone: not on
// the chunks of the prompt, cached prefixes or other sequences.
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fovea/attention_backend.h"

namespace fovea {

class ExpandedPrefill {
 public:
  static constexpr int kKeys = 256;  ///< positions of a block

  /// Rows of a step that see the same keys of a block, or with a causal mask those up to their own.
  struct Rows {
    int64_t first = 0, count = 0;
    std::array<int32_t, 2> q_offsets{}, kv_indptr{};
    std::array<int32_t, 1> kv_lens{};
    std::unique_ptr<Plan> plan;
  };
  /// Consecutive positions of one sequence, at most kKeys.
  struct Block {
    std::vector<int64_t> slots;  ///< of their records in the cache
    bool starts = false;         ///< no block of the sequence is before it
    std::array<Rows, 2> rows;    ///< those with positions in the block, and those after it
  };
  /// Where the results of a block go before they are merged.
  struct Scratch {
    float* out = nullptr;  ///< [rows of the step, heads, v_head_dim]
    float* lse = nullptr;  ///< [rows of the step, heads]
  };

  /// `backend` computes the parts; it must outlive this object.
  explicit ExpandedPrefill(AttentionBackend& backend);

  /// `spec` and `limits` as of the absorbed attention.
  Result<size_t> workspace_bytes(const AttentionSpec& spec, const AttentionLimits& limits) const;

  /// Plans the sequences of `meta`, whose arrays are in host memory, with a page table; its first row is row
  /// `first_row` of the step. `spec` in fp32.
  Status plan(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
              int64_t first_row, Workspace workspace, Stream& stream);
  void clear() { blocks_.clear(); }

  /// The blocks of the planned step; those of a sequence in ascending order.
  const std::deque<Block>& blocks() const { return blocks_; }
  int64_t first_row() const { return first_row_; }

  /// Attends to a block and merges the result with that of the blocks before. `args`: q, out (dense) and lse
  /// of all rows of the step, all in fp32, lse [rows, heads]; kv: the block's keys and values, a row for each
  /// position.
  Status attend(const Block& block, const AttentionArgs& args, const Scratch& scratch, Stream& stream) const;

 private:
  Status plan_rows(Rows& rows, const AttentionSpec& spec, const AttentionLimits& limits, int keys,
                   Workspace workspace, Stream& stream) const;

  AttentionBackend* backend_;
  std::vector<int32_t> indices_;  // 0 to kKeys - 1
  AttentionSpec spec_;            // not absorbed
  int64_t first_row_ = 0;
  std::deque<Block> blocks_;
};

}  // namespace fovea
