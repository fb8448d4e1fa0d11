#pragma once
// A tree evaluated for strips of 128 lanes at once: keys of one query row, or the query rows of one tile.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flex/cpu_kernels.h"
#include "flex/evaluate.h"
#include "flex/tree.h"

namespace fovea::flex {

/// What a node's value varies with decides how often it is computed.
class StripCode {
 public:
  explicit StripCode(const Tree& tree);

  /// Registers of the whole tree; one file for rows, one for keys.
  size_t file_bytes() const { return tree_.nodes().size() * kStripBytes; }
  size_t scratch_bytes() const { return 2 * file_bytes(); }

  struct Rows {
    int count = 0;         ///< at most kStrip
    const int32_t *q, *h;  ///< [count]
    int32_t b = 0, qlen = 0, klen = 0;
  };
  /// Once a tile: what depends on neither the key nor the score.
  void start_tile(const CpuKernels& kernels, std::span<const Buffer> buffers, const Rows& rows,
                  std::byte* scratch) const;
  /// Once a tile and block of keys: what depends on the key alone, for keys [first, first + kStrip).
  void start_keys(const CpuKernels& kernels, std::span<const Buffer> buffers, int32_t first,
                  std::byte* scratch) const;
  /// Once a row: everything else. `score` [kStrip] is not read by a mask. The result's kStrip values, int32
  /// or fp32, are valid until the next call.
  const std::byte* run_row(const CpuKernels& kernels, std::span<const Buffer> buffers, int row,
                           const float* score, std::byte* scratch) const;
  /// The result does not depend on key and score (then it is the same for all keys of a row).
  Variables depends() const { return tree_.depends(); }

 private:
  std::byte* key_register(std::byte* scratch, int i) const;
  std::byte* row_register(std::byte* scratch, int i) const;

  const Tree& tree_;
  std::vector<StripOp> row_ops_, constant_ops_, key_ops_, mixed_ops_;
  std::vector<int> to_broadcast_;  ///< nodes of rows that mixed nodes or the result read
};

}  // namespace fovea::flex
