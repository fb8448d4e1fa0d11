#pragma once
// Bounds of an expression over a block of queries and keys, without evaluating each pair: whether a mask is
// true everywhere in a block, nowhere, or must be evaluated. Conservative: a bound may be wider than the
// values.
#include <cstdint>
#include <span>
#include <vector>

#include "flex/evaluate.h"
#include "flex/tree.h"

namespace fovea::flex {

/// All values are in [lo, hi]; a real may also be NaN. A boolean is 0 or 1.
struct Interval {
  double lo = 0, hi = 0;
  bool nan = false;
  bool single() const { return lo == hi && !nan; }
};

/// Smallest and largest element of ranges of a buffer, in constant time for each row of it.
class BufferBounds {
 public:
  /// Reads the buffer once: O(elements). `buffer` is in host memory and must outlive this.
  BufferBounds(const Buffer& buffer, Type element);
  /// Bounds over rows and columns, inclusive, both clamped to the buffer.
  Interval of(int64_t row_first, int64_t row_last, int64_t first, int64_t last) const;

 private:
  static constexpr int kBlock = 32;       ///< columns of a leaf
  static constexpr int64_t kMaxRows = 8;  ///< more rows than this: the bounds of the whole buffer

  Interval row_bounds(int64_t row, int64_t first, int64_t last) const;

  Buffer buffer_;
  Type element_;
  int64_t blocks_ = 0, levels_ = 0;
  std::vector<Interval> table_;  ///< [rows, levels, blocks]: bounds of 2^level blocks from each block on
  Interval whole_;
};

/// A block's variables, each an interval. `score` is unbounded.
struct Region {
  Interval b, h, q, k, qlen, klen;
};

enum class Coverage : uint8_t { empty, partial, full };

class Analysis {
 public:
  /// Buffers in host memory, in the order of the types; all must outlive this. Reads those that `mask` reads.
  Analysis(const Tree& mask, std::span<const BufferType> types, std::span<const Buffer> buffers);

  /// Memory for the calls below: one for each thread.
  using Scratch = std::vector<Interval>;
  Scratch scratch() const { return Scratch(tree_.nodes().size()); }

  /// Bounds of the tree over the region.
  Interval bounds(const Region& region, Scratch& scratch) const;
  /// full: true for every pair of the region; empty: for none.
  Coverage coverage(const Region& region, Scratch& scratch) const;

 private:
  Interval read(const Node& node, const Interval& a, const Interval& b) const;

  const Tree& tree_;
  std::vector<BufferBounds> buffers_;
  std::vector<int> place_;  ///< buffer -> index of its bounds; -1 = not read
};

}  // namespace fovea::flex
