#pragma once
// Which tokens of which sequences the next step computes, and who owns the KV pages. Pure: no thread, no
// clock, no model. README.md states its invariants.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/fair_line.h"
#include "engine/sequence.h"
#include "fovea/engine.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace fovea {

struct SchedulerConfig {
  int max_running = 64;
  int max_batched_tokens = 512;  ///< rows of one step
  /// Rows of one step with logits; at least min(max_running, rows of a step), all with whole_prompts.
  int max_logit_rows = 64;
  int page_size = 16;
  int64_t num_pages = 0;     ///< at least longest_sequence_pages()
  bool prefix_cache = true;  ///< not with an encoder, nor with whole_prompts
  /// Without a causal mask: a prompt is computed in one step, so that each of its rows sees all of it, and
  /// each generated token in a step of its own, also after a preemption: no row sees what was drawn after it.
  bool whole_prompts = false;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  int max_seq_len = 0;  ///< tokens of the longest sequence
  int window = 0;       ///< keys that a query sees in every layer, its own included; 0 = all, in some layer
  int max_encoder_len = 0;  ///< rows of the longest encoder input; 0 = no encoder
  /// Tokens for which every running sequence has room after an admission: so many decode steps pass at least
  /// before somebody is preempted.
  int watermark = 32;

  int64_t pages_for(int64_t tokens) const { return (tokens + page_size - 1) / page_size; }
  /// Rows that encoders compute in one step.
  int max_encoder_rows() const { return std::max(max_batched_tokens, max_encoder_len); }
};

/// The most pages of its own that a sequence's decoder ever holds: all, or those that meet the window of a
/// step's first row and the step.
int64_t decoder_pages(const SchedulerConfig& config);
/// What the longest sequence holds with its cross pages: a smaller pool can't serve it.
int64_t longest_sequence_pages(const SchedulerConfig& config);

struct SchedulerStats {
  int64_t preemptions = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  ///< tokens looked up at admissions, tokens found
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  /// Puts it in line. The caller owns the sequence and keeps it alive until remove().
  void add(Sequence* sequence);
  /// Takes a sequence out, waiting or running, and gives up its pages: whole computed ones go to the prefix
  /// cache. Not between schedule() and commit().
  void remove(Sequence* sequence);

  /// The next step: decodes first, then prefill chunks. Empty only when nothing is running or waiting.
  /// May evict cached prefixes and preempt those last in order. Valid until the next call.
  std::span<const ScheduledChunk> schedule();
  /// The step of the last schedule() is in the KV cache. Call before appending sampled tokens.
  void commit();

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(line_.size()); }
  bool idle() const { return running_.empty() && line_.empty(); }
  int64_t pages_total() const { return pool_.total(); }
  int64_t pages_free() const { return pool_.free_pages(); }
  int64_t pages_cached() const { return tree_.evictable_pages(); }
  int64_t pages_in_use() const { return pages_total() - pages_free() - pages_cached(); }
  /// Up to `count` sequences: those that run in the order of service, then those that wait.
  std::vector<const Sequence*> first_in_order(size_t count) const;
  const RadixTree& prefix_tree() const { return tree_; }
  /// Nobody owns the page: what is in it means nothing.
  bool page_free(int32_t page) const { return !pool_.taken(page); }
  const SchedulerStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }

  /// Every page has exactly one owner and every counter agrees. O(pages + tokens): idle moments and tests.
  bool consistent() const;

 private:
  int64_t available_pages() const { return pool_.free_pages() + tree_.evictable_pages(); }
  /// Grows the page table to `pages` entries, evicting where needed; false = not enough.
  bool grow(Sequence& sequence, int64_t pages);
  bool take(int64_t count, std::vector<int32_t>& pages);
  /// Pages that the sequence may take during the next `watermark` tokens.
  int64_t headroom(const Sequence& sequence) const;
  void make_way();
  Sequence* who_makes_way(const Sequence& first) const;
  void schedule_decodes();
  void schedule_prefills();
  bool admit_first();
  bool try_admit(Sequence& sequence);
  void match_prefix(Sequence& sequence);
  void schedule_chunk(Sequence& sequence, bool decode);
  void preempt(Sequence& sequence);
  void store_prefix(Sequence& sequence);
  void drop_old_pages(Sequence& sequence);
  void release_pages(Sequence& sequence);
  bool consistent(const Sequence& sequence) const;

  SchedulerConfig config_;
  PagePool pool_;
  RadixTree tree_;
  int64_t own_limit_;  // decoder_pages()
  int64_t hit_limit_;  // pages that a cached prefix may keep locked
  FairLine line_;
  std::vector<Sequence*> running_;  // in line_.order(): the last is preempted first
  std::vector<ScheduledChunk> step_;
  int budget_ = 0, logit_budget_ = 0, encoder_budget_ = 0;
  uint64_t arrivals_ = 0;
  bool preempted_ = false;                    // in this step, for pages
  const Sequence* short_of_pages_ = nullptr;  // the first in line, if that is why it was not admitted
  SchedulerStats stats_;
};

}  // namespace fovea
