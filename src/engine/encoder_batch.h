#pragma once
// The arrays of one step for the encoder and the cross attention of an encoder-decoder model.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ragged_batch.h"
#include "engine/sequence.h"
#include "fovea/attention_step.h"
#include "model/model.h"

namespace fovea {

class EncoderBatch {
 public:
  /// `q_offsets`: the decoder's rows, [chunks.size() + 1]. Everything stays valid until the next build().
  void build(std::span<const ScheduledChunk> chunks, int page_size, std::span<const int32_t> q_offsets);

  /// Whether this step runs the encoder for some sequence.
  bool encodes() const { return !rows_.empty(); }
  /// Encoder self-attention: keys and values are the step's rows, a view with page_size 1.
  BatchMeta self_meta() const { return rows_.meta(); }
  /// Cross attention: the decoder's rows over the encoder's keys.
  const BatchMeta& cross_meta() const { return cross_; }
  /// All fields except `attention` and `kv`.
  EncodeInput input() const;

 private:
  void add_input(const Sequence& sequence, int page_size);

  RaggedBatch rows_;  // of the encoder
  std::vector<int32_t> ids_;
  std::vector<float> features_;
  std::vector<int64_t> cross_slots_;
  std::vector<int32_t> cross_lens_, cross_table_;
  BatchMeta cross_;
};

}  // namespace fovea
