#pragma once
// A sequence as the scheduler sees it: tokens, how many of them are in the KV cache, and its pages.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/encoder_input.h"

#include "kv/radix_tree.h"
#include "ops/lora.h"

namespace fovea {

struct ClientShare;

struct Sequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  ///< prompt, then generated tokens
  int prompt_len = 0;
  /// Prompt positions [logits_from, prompt_len - 1) whose logits are wanted too (prompt_logprobs); advances
  /// as they are delivered. prompt_len - 1 when none are wanted.
  int logits_from = 0;
  /// Maximum tokens of prompt and answer together; no further token is sampled.
  int max_tokens = std::numeric_limits<int>::max();
  int accepted = 1;                             ///< how many of the newest tokens came with the last result
  bool sampled_on_host = false;                 ///< Executor::samples_on_host()
  bool drafts_there = false;                    ///< Executor::drafts_there(), after its newest step
  int priority = 0;                             ///< lower = served sooner; SchedulingPolicy::priority only
  std::vector<int32_t> drafts;                  ///< may follow `tokens`; verified by the next step
  std::string client;                           ///< clients get equal shares
  std::string cache_salt;                       ///< GenerateRequest::cache_salt
  std::string draft_client;                     ///< DraftJob::client: client and salt
  std::shared_ptr<const EncoderInput> encoder;  ///< null = none
  std::shared_ptr<const LoraAdapter> lora;      ///< null = none

  // Scheduler state.
  uint64_t arrival = 0;          ///< arrival number, over all sequences ever added
  uint64_t cache_space = 0;      ///< of its adapter and salt: prefixes are shared in it; 0 = neither
  ClientShare* share = nullptr;  ///< its client's state; used by FairLine only
  int computed = 0;              ///< keys and values of tokens [0, computed) are in `pages`, or were dropped
  std::vector<int32_t> pages;    ///< page table; enough for the next chunk. Entries [0, dropped) are 0
  int dropped = 0;       ///< leading pages that lie wholly before the window: no row sees them any more
  int shared_pages = 0;  ///< leading pages that belong to the prefix tree, locked by `lock`
  RadixTree::Node* lock = nullptr;   ///< null without a prefix cache, while waiting, and when all are dropped
  std::vector<int32_t> cross_pages;  ///< cross keys and values of every decoder layer
  bool encoded = false;              ///< cross_pages are filled
  // Rows and tokens of open steps, whose results are not known yet.
  int rows_in_flight = 0;    ///< from position `computed` on
  int tokens_in_flight = 0;  ///< sampled by these steps: they will follow `tokens`, if no draft is accepted
  int drafts_in_flight = 0;  ///< of rows_in_flight, those of drafts: as many more tokens may follow
  int cached_tokens = 0;     ///< found in the prefix cache when first admitted
  bool admitted_before = false;
  int preemptions = 0;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  /// Includes the tokens that open steps sample.
  int length() const { return num_tokens() + tokens_in_flight; }
  /// The first position that no step has been scheduled for, if no draft in flight is accepted.
  int next() const { return computed + rows_in_flight - drafts_in_flight; }
  int remaining() const { return length() - next(); }
  /// Encoder output rows, each with cross keys and values; 0 = no encoder.
  int encoder_len() const { return encoder ? encoder->rows : 0; }
  /// Index of the first page that the sequence owns.
  int first_own() const { return std::max(shared_pages, dropped); }
  /// Only its newest generated tokens are left to compute: one, or as many as the last result had.
  bool decoding() const { return remaining() <= accepted && length() > prompt_len; }
};

/// Tokens [first, first + count) of a sequence, to be computed in one step.
struct ScheduledChunk {
  Sequence* sequence = nullptr;
  int first = 0;
  int count = 0;
  int logits_first = 0;  ///< positions [logits_first, end()) need logits; none when equal to end()
  bool decode = false;   ///< generated tokens, usually the newest one; false = (part of) a prefill
  /// Each row is a sequence of its own in the batch, over the same pages: a decode of several known tokens,
  /// in which each row has the bits of a step of its own.
  bool single_rows = false;
  bool samples = false;  ///< the chunk ends with the newest token: the next one is sampled from its last row
  bool encode = false;   ///< the encoder runs first, for a newly admitted sequence
  /// The last rows are those of the sequence's first drafts. The row before them and all of them sample; a
  /// draft is accepted if the row before it sampled it.
  int drafts = 0;
  /// Drafts that were in flight when it was scheduled: its positions are as many higher as are accepted.
  int ahead = 0;

  int end() const { return first + count; }
  /// The end of the tokens that are known.
  int known_end() const { return end() - drafts; }
  int logit_rows() const { return end() - logits_first; }
  /// Entries in the batch.
  int batch_seqs() const { return single_rows ? count : 1; }
};

}  // namespace fovea
