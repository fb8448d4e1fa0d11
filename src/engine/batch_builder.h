#pragma once
// The arrays of one step for the model and the attention backends. Buffers are reused and never shrink.
#include <cstdint>
#include <span>
#include <vector>

#include "attention/phased.h"
#include "engine/encoder_batch.h"
#include "engine/sequence.h"
#include "fovea/attention_step.h"
#include "model/model.h"

namespace fovea {

/// The token id of a row whose token is sampled by an open step; only with Overlap::future_tokens.
inline constexpr int32_t kFutureToken = -1;

class BatchBuilder {
 public:
  /// `chunks`: decodes first. A chunk is one sequence of the batch, or ScheduledChunk::batch_seqs() of them.
  /// The arrays stay valid until the next build().
  void build(std::span<const ScheduledChunk> chunks, int page_size);

  /// Replaces the token of a row of the step.
  void set_token(size_t row, int32_t id) { token_ids_[row] = id; }

  const BatchMeta& meta() const { return meta_; }
  /// Empty unless the model is an encoder-decoder.
  const EncoderBatch& encoder() const { return encoder_; }
  /// For meta() and encoder().cross_meta(); the lengths on the host are not set.
  PhaseSplit split() const { return {num_decodes_, decode_rows_, prefill_offsets_}; }
  int num_logit_rows() const { return static_cast<int>(logit_rows_.size()); }
  /// All fields except `attention` and `kv`.
  ForwardInput input() const {
    ForwardInput input{token_ids_, positions_, slots_, logit_rows_};
    input.lora = lora_.empty() ? nullptr : &lora_;
    return input;
  }

 private:
  /// Adds the rows [first, end of the arrays) of a sequence with an adapter.
  void add_lora(const LoraAdapter& adapter, size_t first_row, size_t first_logit_row);

  std::vector<int32_t> token_ids_, positions_, logit_rows_, q_offsets_, kv_lens_, page_table_;
  std::vector<int32_t> prefill_offsets_;
  std::vector<int64_t> slots_;
  BatchMeta meta_;
  EncoderBatch encoder_;
  LoraBatch lora_;
  int num_decodes_ = 0, decode_rows_ = 0;
};

}  // namespace fovea
