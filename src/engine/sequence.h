#pragma once
// One request as the scheduler sees it: tokens, how many of them are in the KV cache, and the pages they own.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/encoder_input.h"

#include "kv/radix_tree.h"

namespace fovea {

struct ClientShare;

struct Sequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  ///< prompt, then what was generated
  int prompt_len = 0;
  /// Prompt positions [logits_from, prompt_len - 1) whose logits are wanted too (prompt_logprobs); moves up
  /// as they are delivered. prompt_len - 1 when none are.
  int logits_from = 0;
  int priority = 0;                             ///< lower = sooner; SchedulingPolicy::priority only
  std::string client;                           ///< who asked: clients get equal shares
  std::shared_ptr<const EncoderInput> encoder;  ///< null = none

  // The scheduler's own.
  uint64_t arrival = 0;              ///< its place among all that were ever added
  ClientShare* share = nullptr;      ///< its client's; FairLine's own
  int computed = 0;                  ///< tokens [0, computed) have had their keys and values in `pages`
  std::vector<int32_t> pages;        ///< page table; enough for the next chunk. Entries [0, dropped) are 0
  int dropped = 0;                   ///< pages wholly older than the window: no row sees them any more
  int shared_pages = 0;              ///< the first ones belong to the prefix tree, locked by `lock`
  RadixTree::Node* lock = nullptr;   ///< null without a prefix cache, while waiting, and when all are dropped
  std::vector<int32_t> cross_pages;  ///< the encoder's keys and values, of every decoder layer
  bool encoded = false;              ///< and they are in there
  int cached_tokens = 0;             ///< found in the prefix cache when first admitted
  bool admitted_before = false;
  int preemptions = 0;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int remaining() const { return num_tokens() - computed; }
  /// Rows that the encoder makes, each with cross keys and values; 0 = no encoder.
  int encoder_len() const { return encoder ? encoder->rows : 0; }
  /// The first page of the table that is the sequence's own.
  int first_own() const { return std::max(shared_pages, dropped); }
  /// Only its newest, generated token is left to compute.
  bool decoding() const { return remaining() == 1 && num_tokens() > prompt_len; }
};

/// Tokens [first, first + count) of a sequence, to be computed in one step.
struct ScheduledChunk {
  Sequence* sequence = nullptr;
  int first = 0;
  int count = 0;
  int logits_first = 0;  ///< positions [logits_first, first + count) need logits; none when equal to the end
  bool decode = false;   ///< a generated token's row; false = (part of) a prefill
  bool samples = false;  ///< the chunk ends with the newest token: its last row's logits give the next one
  bool encode = false;   ///< the encoder runs first: the sequence has just been admitted

  int end() const { return first + count; }
  int logit_rows() const { return end() - logits_first; }
};

}  // namespace fovea
