#pragma once
// The BatchMeta of sequences that attend to their own rows of the step, without a cache: K and V are ragged
// tensors, whose pages are their rows.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fovea/attention_backend.h"

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
  }
  int num_rows() const { return offsets_.back(); }
  const std::vector<int32_t>& offsets() const { return offsets_; }

  /// Valid until the next call of anything that isn't const.
  BatchMeta meta() {
    const size_t stride = static_cast<size_t>(*std::max_element(lengths_.begin(), lengths_.end()));
    pages_.resize(std::max(pages_.size(), stride * lengths_.size()));
    for (size_t b = 0; b < lengths_.size(); ++b)
      for (int32_t i = 0; i < lengths_[b]; ++i)
        pages_[b * stride + static_cast<size_t>(i)] = offsets_[b] + i;
    BatchMeta meta;
    meta.q_offsets = offsets_;
    meta.kv_lens = lengths_;
    meta.page_table = std::span(pages_).first(stride * lengths_.size());
    meta.page_table_stride = static_cast<int64_t>(stride);
    return meta;
  }

 private:
  std::vector<int32_t> offsets_ = {0}, lengths_, pages_;
};

}  // namespace fovea
