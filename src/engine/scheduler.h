#pragma once
// Which tokens of which sequences the next step computes, and who owns the KV pages. Pure: no thread, no
// clock, no model. README.md states its invariants.
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace fovea {

struct SchedulerConfig {
  int max_running = 64;
  int max_batched_tokens = 512;  ///< rows of one step
  int max_logit_rows = 64;       ///< rows of one step with logits; at least min(max_running, rows of a step)
  int page_size = 16;
  int64_t num_pages = 0;
  bool prefix_cache = true;
};

struct SchedulerStats {
  int64_t preemptions = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  ///< tokens looked up at admissions, tokens found
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  /// Appends to the waiting queue. The caller owns the sequence and keeps it alive until remove().
  void add(Sequence* sequence);
  /// Takes a sequence out, waiting or running, and gives up its pages: whole computed ones go to the prefix
  /// cache. Not between schedule() and commit().
  void remove(Sequence* sequence);

  /// The next step: decodes first, then prefill chunks. Empty only when nothing is running or waiting.
  /// May evict cached prefixes and preempt the last arrived. Valid until the next call.
  std::span<const ScheduledChunk> schedule();
  /// The step of the last schedule() is in the KV cache. Call before appending sampled tokens.
  void commit();

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  int64_t pages_total() const { return pool_.total(); }
  int64_t pages_free() const { return pool_.free_pages(); }
  int64_t pages_cached() const { return tree_.evictable_pages(); }
  int64_t pages_in_use() const { return pages_total() - pages_free() - pages_cached(); }
  const SchedulerStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }

  /// Every page has exactly one owner and every counter agrees. O(pages + tokens): idle moments and tests.
  bool consistent() const;

 private:
  int64_t available_pages() const { return pool_.free_pages() + tree_.evictable_pages(); }
  int64_t pages_for(int tokens) const { return (tokens + config_.page_size - 1) / config_.page_size; }
  /// Grows `sequence` to hold `tokens`, evicting where needed; false = not enough.
  bool grow(Sequence& sequence, int64_t pages);
  void schedule_decodes();
  void schedule_prefills();
  void admit();
  bool try_admit(Sequence& sequence);
  void schedule_chunk(Sequence& sequence, bool decode);
  void preempt(Sequence& sequence);
  void store_prefix(Sequence& sequence);
  void release_pages(Sequence& sequence);

  SchedulerConfig config_;
  PagePool pool_;
  RadixTree tree_;
  std::deque<Sequence*> waiting_;   // in order of arrival
  std::vector<Sequence*> running_;  // in order of arrival; each arrived before all waiting ones
  std::vector<ScheduledChunk> step_;
  int budget_ = 0, logit_budget_ = 0;
  bool preempted_ = false;
  SchedulerStats stats_;
};

}  // namespace fovea
