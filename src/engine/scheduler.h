#pragma once
// Decides which tokens of which sequences the next step computes, and tracks ownership of KV pages.
// Deterministic: no thread, clock or model. README.md states its invariants.
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/cache_spaces.h"
#include "engine/fair_line.h"
#include "engine/sequence.h"
#include "fovea/engine.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace fovea {

/// How far the engine may run ahead of the results of its steps; Executor::overlap() returns the maximum.
struct Overlap {
  int open_steps = 1;  ///< steps scheduled and not yet committed; 1 = each waits for the one before
  /// A row may be scheduled for a token that an open step samples: the executor reads the token from its
  /// sampler's output. Every sampling chunk then yields exactly one token. Without future_tokens, a sequence
  /// waits until the host has its newest token.
  bool future_tokens = false;
};

struct SchedulerConfig {
  int max_running = 64;
  int max_batched_tokens = 512;  ///< rows of one step
  /// Rows of one step with logits; at least min(max_running, max_batched_tokens), with whole_prompts at least
  /// max_batched_tokens.
  int max_logit_rows = 64;
  int page_size = 16;
  int64_t num_pages = 0;     ///< at least longest_sequence_pages()
  bool prefix_cache = true;  ///< not with an encoder, nor with whole_prompts
  /// For models without a causal mask: a prompt is computed in one step, so that each row sees all of it, and
  /// each generated token in a step of its own, also after a preemption, so that no row sees later tokens.
  bool whole_prompts = false;
  /// Prefill and decode may give a position different bits (not same_bits_across_phases()). Then prefill
  /// computes every prompt position and nothing else, and decode every generated one, each with a row of its
  /// own, also when an answer is computed again after a preemption; a page with generated positions is found
  /// in the prefix cache only by the answer that it belongs to. README.md, "Provenance".
  bool phases_differ = false;
  /// With phases_differ: rows of one sequence that decode computes in one step with the bits of steps of one
  /// row each. A draft's rows beyond are sequences of their own in the batch.
  int decode_rows = 1;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  int max_seq_len = 0;  ///< tokens of the longest sequence
  int window = 0;  ///< most keys that a query sees in any layer, its own included; 0 = some layer sees all
  int max_encoder_len = 0;  ///< rows of the longest encoder input; 0 = no encoder
  int max_loras = 0;        ///< different adapters among the running sequences; 0 = no limit
  /// Admission leaves every running sequence room for this many tokens, so at least this many decode steps
  /// run before a preemption.
  int watermark = 32;
  Overlap overlap;

  int64_t pages_for(int64_t tokens) const { return (tokens + page_size - 1) / page_size; }
  /// Rows that the encoder computes in one step, at most.
  int max_encoder_rows() const { return std::max(max_batched_tokens, max_encoder_len); }
};

/// The most decoder pages that a sequence ever owns: all of them or, with a window, those that overlap the
/// step's rows and the window of its first row.
int64_t decoder_pages(const SchedulerConfig& config);
/// decoder_pages() plus the cross pages of the longest encoder input: a smaller pool cannot serve the longest
/// sequence.
int64_t longest_sequence_pages(const SchedulerConfig& config);

/// A decode whose rows can be followed by rows of drafts.
struct DraftRoom {
  Sequence* sequence = nullptr;
  int most = 0;  ///< at least 1
};

/// Proposes drafts for the decodes of a step.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  /// Sets Sequence::drafts, at most DraftRoom::most; they are empty before. `decodes`: of the step.
  virtual void propose(std::span<const DraftRoom> rooms, int decodes) = 0;
  /// A running sequence is about to be preempted, and its pages stored in the prefix cache.
  virtual void preempts(const Sequence& sequence) { (void)sequence; }
};

struct SchedulerStats {
  int64_t preemptions = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  ///< tokens looked up at admission, tokens found
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  /// Adds it to the waiting queue. The caller owns the sequence and keeps it alive until remove().
  void add(Sequence* sequence);
  /// Removes a waiting or running sequence and releases its pages; fully computed ones go to the prefix
  /// cache. A sequence with rows in flight keeps its pages, and must stay alive, until the last step with its
  /// rows is closed; these rows do not count as computed.
  void remove(Sequence* sequence);

  /// Opens the next step: decodes first, then prefill chunks. Call with fewer than overlap.open_steps open.
  /// May evict cached prefixes and preempt the last sequences in order, but none with rows in flight. Returns
  /// an empty span and opens no step when nothing is running or waiting, or when all schedulable work depends
  /// on the result of an open step. The span is valid until the step after it is closed.
  /// `drafts`: asked when everything else has its rows; null = no drafts. The rest of the step's budget and
  /// pages that are free or evictable are divided between the decodes whose newest token is known.
  std::span<const ScheduledChunk> schedule(DraftSource* drafts = nullptr);
  /// Closes the oldest open step, whose rows are in the KV cache now. Call before appending sampled tokens.
  void commit() { close_step(true); }
  /// After commit() and after accepted tokens have been appended: the first `count` drafts of its chunk were
  /// among them, so their keys and values, which the step computed, are those of its tokens. Its chunks in
  /// open steps are as many positions further.
  void accept_drafts(Sequence& sequence, int count);
  /// Closes the oldest open step, which failed. Remove its sequences before the next schedule().
  void abandon() { close_step(false); }
  int open_steps() const { return static_cast<int>(open_.size()); }

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(line_.size()); }
  bool idle() const { return running_.empty() && line_.empty() && open_.empty(); }
  int64_t pages_total() const { return pool_.total(); }
  int64_t pages_free() const { return pool_.free_pages(); }
  int64_t pages_cached() const { return tree_.evictable_pages(); }
  int64_t pages_in_use() const { return pages_total() - pages_free() - pages_cached(); }
  /// Up to `count` sequences: running ones in service order, then waiting ones.
  std::vector<const Sequence*> first_in_order(size_t count) const;
  const RadixTree& prefix_tree() const { return tree_; }
  /// The page has no owner; its content is undefined.
  bool page_free(int32_t page) const { return !pool_.taken(page); }
  const SchedulerStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }

  /// Checks that every page has exactly one owner and all counters agree. O(pages + tokens): for idle times
  /// and tests.
  bool consistent() const;

 private:
  int64_t available_pages() const { return pool_.free_pages() + tree_.evictable_pages(); }
  /// Grows the page table to `pages` entries, evicting as needed; false when there are not enough pages.
  bool grow(Sequence& sequence, int64_t pages);
  bool take(int64_t count, std::vector<int32_t>& pages);
  /// Pages that the sequence may take during the next `watermark` tokens.
  int64_t headroom(const Sequence& sequence) const;
  bool preemptible(const Sequence& sequence) const;
  /// The token of its next row must be reported first (without future_tokens), or is past max_tokens.
  bool awaits_token(const Sequence& sequence) const;
  /// The phase of its next row, if the phases differ, follows from the position alone.
  bool next_is_generated(const Sequence& sequence) const { return sequence.next() >= sequence.prompt_len; }
  void make_way();
  Sequence* who_makes_way(const Sequence& first) const;
  void schedule_decodes();
  void schedule_prefills();
  bool admit_first();
  bool try_admit(Sequence& sequence);
  void match_prefix(Sequence& sequence);
  void schedule_chunk(Sequence& sequence, bool decode);
  void keep_to_phase(ScheduledChunk& chunk) const;
  void schedule_drafts(DraftSource& source);
  int rows_beside(const ScheduledChunk& chunk) const;
  int draft_room(const ScheduledChunk& chunk) const;
  void add_drafts(ScheduledChunk& chunk, int count);
  void add_to_step(const ScheduledChunk& chunk);
  void open_step();
  void close_step(bool computed);
  void commit(const ScheduledChunk& chunk);
  void preempt(Sequence& sequence);
  void retire(Sequence& sequence);
  bool room_for_lora(const Sequence& sequence) const;
  Sequence* next_in_line() const;
  std::span<const int32_t> key_of(const Sequence& sequence, size_t count);
  void store_prefix(Sequence& sequence, int computed);
  void forget_answer(const Sequence& sequence);
  void drop_old_pages(Sequence& sequence);
  void release_pages(Sequence& sequence);
  bool consistent(const Sequence& sequence) const;

  SchedulerConfig config_;
  PagePool pool_;
  RadixTree tree_;
  int64_t own_limit_;  // decoder_pages() with a window, else num_pages
  int64_t hit_limit_;  // pages that a cached prefix may keep locked
  FairLine line_;
  std::vector<Sequence*> running_;   // in line_.order(): the last is preempted first
  std::vector<Sequence*> retiring_;  // removed, with rows in flight: they still have their pages
  std::vector<ScheduledChunk> step_;
  std::deque<std::vector<ScheduledChunk>> open_;  // oldest first
  std::vector<ScheduledChunk> closed_;            // the one closed last
  int budget_ = 0, logit_budget_ = 0, encoder_budget_ = 0;
  size_t decodes_ = 0;        // of step_, at its front
  int spare_seqs_ = 0;        // sequences of the batch, beyond one for each that runs, that the step may have
  std::vector<int32_t> key_;  // the last key_of()
  CacheSpaces cache_spaces_;
  uint64_t arrivals_ = 0;
  uint64_t overtaken_ =
      0;  // the arrival of the sequence that was the first in the queue without room for its adapter
  int overtakers_ = 0;                        // sequences admitted before it since then
  DraftSource* drafts_ = nullptr;             // of this step
  bool preempted_ = false;                    // in this step, to free pages
  bool must_wait_ = false;                    // the next sequence to preempt is not preemptible
  const Sequence* short_of_pages_ = nullptr;  // the queue's first sequence, if lack of pages kept it out
  SchedulerStats stats_;
};

}  // namespace fovea
