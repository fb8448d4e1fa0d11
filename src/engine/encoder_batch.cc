#include "engine/encoder_batch.h"

#include <algorithm>

namespace fovea {

void EncoderBatch::build(std::span<const ScheduledChunk> chunks, int page_size,
                         std::span<const int32_t> q_offsets) {
  ids_.clear();
  features_.clear();
  cross_slots_.clear();
  rows_.clear();
  cross_lens_.clear();
  size_t stride = 1;
  for (const ScheduledChunk& chunk : chunks) {
    if (chunk.encode) add_input(*chunk.sequence, page_size);
    cross_lens_.push_back(chunk.sequence->encoder_len());
    stride = std::max(stride, chunk.sequence->cross_pages.size());
  }
  // Entries past a sequence's last page are stale values of earlier steps and are never read.
  cross_table_.resize(std::max(cross_table_.size(), stride * chunks.size()));
  for (size_t b = 0; b < chunks.size(); ++b)
    std::ranges::copy(chunks[b].sequence->cross_pages,
                      cross_table_.begin() + static_cast<std::ptrdiff_t>(b * stride));
  cross_ = {};
  cross_.q_offsets = q_offsets;
  cross_.kv_lens = cross_lens_;
  cross_.page_table = std::span(cross_table_).first(stride * chunks.size());
  cross_.page_table_stride = static_cast<int64_t>(stride);
}

void EncoderBatch::add_input(const Sequence& sequence, int page_size) {
  const EncoderInput& input = *sequence.encoder;
  ids_.insert(ids_.end(), input.ids.begin(), input.ids.end());
  features_.insert(features_.end(), input.features.begin(), input.features.end());
  for (int row = 0; row < input.rows; ++row) {
    const int64_t page = sequence.cross_pages[static_cast<size_t>(row / page_size)];
    cross_slots_.push_back(page * page_size + row % page_size);
  }
  rows_.add(input.rows);
}

EncodeInput EncoderBatch::input() const {
  EncodeInput input;
  input.token_ids = ids_;
  input.features = features_;
  input.offsets = rows_.offsets();
  input.cross_slots = cross_slots_;
  return input;
}

}  // namespace fovea
