#pragma once
// BatchMeta for sequences that attend to their own rows of the step, without a KV cache: K and V are ragged
// tensors with one page per row.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fovea/attention_step.h"

namespace fovea {

class RaggedBatch {
 public:
  void clear() {
    offsets_.assign(1, 0);
    lengths_.clear();
  }
  void add(int rows) {
    offsets_.push_back(offsets_.back() + rows);
    lengths_.push_back(rows);
    while (static_cast<int>(rows_.size()) < offsets_.back())
      rows_.push_back(static_cast<int32_t>(rows_.size()));
  }
  bool empty() const { return lengths_.empty(); }
  const std::vector<int32_t>& offsets() const { return offsets_; }

  /// Valid until the next clear() or add().
  BatchMeta meta() const {
    BatchMeta meta;
    meta.q_offsets = meta.kv_indptr = offsets_;
    meta.kv_lens = lengths_;
    meta.kv_indices = std::span(rows_).first(static_cast<size_t>(offsets_.back()));
    return meta;
  }

 private:
  std::vector<int32_t> offsets_ = {0}, lengths_;
  std::vector<int32_t> rows_;  // 0, 1, ...: one page per row
};

}  // namespace fovea
