#include "engine/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace fovea {
namespace {

int32_t token_at(const ScheduledChunk& chunk, int position) {
  const Sequence& sequence = *chunk.sequence;
  if (position >= chunk.known_end())
    return sequence.drafts[static_cast<size_t>(position - chunk.known_end())];
  return position < sequence.num_tokens() ? sequence.tokens[static_cast<size_t>(position)] : kFutureToken;
}

}  // namespace

void BatchBuilder::add_lora(const LoraAdapter& adapter, size_t first_row, size_t first_logit_row) {
  auto group = std::ranges::find(lora_, &adapter, &LoraGroup::adapter);
  if (group == lora_.end()) group = lora_.insert(lora_.end(), LoraGroup{&adapter, {}, {}});
  for (size_t row = first_row; row < token_ids_.size(); ++row)
    group->rows.push_back(static_cast<int32_t>(row));
  for (size_t row = first_logit_row; row < logit_rows_.size(); ++row)
    group->logit_rows.push_back(static_cast<int32_t>(row));
}

void BatchBuilder::build(std::span<const ScheduledChunk> chunks, int page_size) {
  for (auto* v : {&token_ids_, &positions_, &logit_rows_, &q_offsets_, &kv_lens_, &prefill_offsets_})
    v->clear();
  slots_.clear();
  lora_.clear();
  num_decodes_ = decode_rows_ = 0;
  q_offsets_.push_back(0);
  size_t stride = 1;
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    FOVEA_CHECK(!chunk.decode || num_decodes_ == static_cast<int>(kv_lens_.size()));
    FOVEA_CHECK(!chunk.single_rows || (chunk.decode && (chunk.count == 1 || !sequence.encoder)));
    if (chunk.decode) {
      num_decodes_ += chunk.batch_seqs();
      decode_rows_ += chunk.count;
    }
    const size_t first_row = token_ids_.size(), first_logit_row = logit_rows_.size();
    for (int least = chunk.first; least < chunk.end(); ++least) {
      if (least >= chunk.logits_first) logit_rows_.push_back(static_cast<int32_t>(token_ids_.size()));
      token_ids_.push_back(token_at(chunk, least));
      const int position = least + chunk.ahead;
      positions_.push_back(position);
      const int64_t page = sequence.pages[static_cast<size_t>(position / page_size)];
      slots_.push_back(page * page_size + position % page_size);
      if (chunk.single_rows || least + 1 == chunk.end()) {
        q_offsets_.push_back(static_cast<int32_t>(token_ids_.size()));
        kv_lens_.push_back(position + 1);
      }
    }
    if (sequence.lora) add_lora(*sequence.lora, first_row, first_logit_row);
    stride = std::max(stride, static_cast<size_t>((chunk.end() + chunk.ahead + page_size - 1) / page_size));
  }
  for (size_t b = static_cast<size_t>(num_decodes_); b < q_offsets_.size(); ++b)
    prefill_offsets_.push_back(q_offsets_[b] - decode_rows_);
  // Entries past a sequence's last page are stale values of earlier steps and are never read.
  page_table_.resize(std::max(page_table_.size(), stride * kv_lens_.size()));
  size_t b = 0;
  for (const ScheduledChunk& chunk : chunks)
    for (int i = 0; i < chunk.batch_seqs(); ++i, ++b) {
      const auto used = static_cast<std::ptrdiff_t>((kv_lens_[b] + page_size - 1) / page_size);
      std::copy_n(chunk.sequence->pages.begin(), used,
                  page_table_.begin() + static_cast<std::ptrdiff_t>(b * stride));
    }
  // Not past_kv_ready: a chunk of single rows reads the keys of its own earlier rows.
  meta_ = {};
  meta_.q_offsets = q_offsets_;
  meta_.kv_lens = kv_lens_;
  meta_.page_table = std::span(page_table_).first(stride * kv_lens_.size());
  meta_.page_table_stride = static_cast<int64_t>(stride);
  if (!chunks.empty() && chunks.front().sequence->encoder) encoder_.build(chunks, page_size, q_offsets_);
}

}  // namespace fovea
