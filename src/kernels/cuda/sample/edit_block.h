#pragma once
// The edits of one request's logits in one block of memory, built on the host and copied to the device when
// the request gets its slot: what LogitsProcessor does on the CPU. The device's sampler appends each token
// that it draws, so that steps can overlap; after a preemption the block is built again from the known
// tokens.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::cuda {

/// Adds `bias` to a token's logit.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

/// What changes a request's logits, as LogitsProcessor's constructor takes it.
struct EditSpec {
  std::span<const std::vector<int32_t>> bad_words;  ///< sequences of at least one token
  std::span<const int32_t> ends;  ///< tokens masked while the answer is shorter than min_tokens
  int32_t min_tokens = 0;
  std::span<const int32_t> suppressed;        ///< masked always
  std::span<const int32_t> suppressed_first;  ///< masked for the first token of the answer
  std::span<const TokenBias> bias;            ///< each token at most once
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::span<const int32_t> allowed;  ///< the only tokens that may be drawn, any order; empty = all
  /// The token that must be the answer's last, at `max_tokens`, and overrides all else.
  std::optional<int32_t> forced_last;
  int32_t max_tokens = 0;
};

/// Begins a block. Offsets are in 32-bit words from its beginning, 0 = the list is absent.
struct EditBlock {
  uint32_t words;  ///< size of the block
  int32_t vocab;
  uint32_t prompt_len;
  int32_t min_tokens;
  int32_t forced_last;  ///< -1 = none
  uint32_t forced_at;   ///< number of answer tokens before forced_last
  float repetition_penalty, frequency_penalty, presence_penalty;
  uint32_t penalises;       ///< 1 = counts (and with a repetition penalty, prompt) are present
  uint32_t ends, num_ends;  ///< i32 tokens
  uint32_t suppressed, num_suppressed;
  uint32_t suppressed_first, num_suppressed_first;
  uint32_t bias, num_bias;  ///< TokenBias
  uint32_t bad_words,
      num_bad_words;             ///< i32 [num + 1] offsets from the block's beginning, of tokens in the block
  uint32_t recent, recent_mask;  ///< i32 [recent_mask + 1]: answer token j is at j & recent_mask
  uint32_t allowed;              ///< u32 [ceil(vocab / 32)] bit mask
  uint32_t prompt;               ///< likewise, of the prompt's tokens
  uint32_t counts;               ///< u16 [vocab] of the answer's tokens; saturates at 65535
  uint32_t unused[7];
};
static_assert(sizeof(EditBlock) == 128);

/// False when a request has no edits and needs no block.
bool needs_edit_block(const EditSpec& spec);

/// Size of a request's block: constant for its life, a multiple of 16. With penalties about 2.2 bytes per
/// token of the vocabulary; a bit with allowed tokens.
int64_t edit_block_bytes(const EditSpec& spec, int32_t vocab);

/// Builds the block for a request whose tokens so far are `tokens`, the first `prompt_len` the prompt.
/// `block`: edit_block_bytes() bytes. Ids from `vocab` on, which pad the vocabulary, are left out.
void build_edit_block(const EditSpec& spec, int32_t vocab, std::span<const int32_t> tokens, size_t prompt_len,
                      std::span<uint32_t> block);

}  // namespace fovea::cuda
