#include "engine/scheduler.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace fovea {

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config), pool_(config.num_pages), tree_(config.page_size, pool_) {
  FOVEA_CHECK(config.max_running >= 1 && config.max_batched_tokens >= 1);
  FOVEA_CHECK(config.max_logit_rows >= std::min(config.max_running, config.max_batched_tokens));
  step_.reserve(static_cast<size_t>(std::min(config.max_running, config.max_batched_tokens)));
}

void Scheduler::add(Sequence* sequence) {
  FOVEA_CHECK(sequence->prompt_len >= 1 && sequence->num_tokens() >= sequence->prompt_len);
  waiting_.push_back(sequence);
}

void Scheduler::remove(Sequence* sequence) {
  if (const auto at = std::find(running_.begin(), running_.end(), sequence); at != running_.end()) {
    running_.erase(at);
    store_prefix(*sequence);
    release_pages(*sequence);
    return;
  }
  const auto at = std::find(waiting_.begin(), waiting_.end(), sequence);
  FOVEA_CHECK(at != waiting_.end());
  waiting_.erase(at);
}

std::span<const ScheduledChunk> Scheduler::schedule() {
  step_.clear();
  budget_ = config_.max_batched_tokens;
  logit_budget_ = config_.max_logit_rows;
  preempted_ = false;
  schedule_decodes();
  schedule_prefills();
  if (!preempted_) admit();  // who was just preempted would be the first in line: pages are short
  FOVEA_CHECK(!step_.empty() || idle());
  return step_;
}

void Scheduler::schedule_decodes() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.decoding()) continue;
    const int64_t pages = pages_for(sequence.num_tokens());
    bool fits = grow(sequence, pages);
    while (!fits) {
      // The last arrived gives way; nobody after i has been scheduled yet. Alone, a sequence always fits.
      Sequence& victim = *running_.back();
      FOVEA_CHECK(running_.size() > 1);
      preempt(victim);
      if (&victim == &sequence) break;
      fits = grow(sequence, pages);
    }
    if (fits) schedule_chunk(sequence, true);
  }
}

void Scheduler::schedule_prefills() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i)
    if (!running_[i]->decoding()) schedule_chunk(*running_[i], false);
}

void Scheduler::schedule_chunk(Sequence& sequence, bool decode) {
  ScheduledChunk chunk;
  chunk.sequence = &sequence;
  chunk.first = sequence.computed;
  chunk.decode = decode;
  chunk.count = std::min(sequence.remaining(), budget_);
  // Rows with logits: prompt positions still owed, and the newest token's.
  const int last_prompt = sequence.prompt_len - 1;
  const bool owes = sequence.logits_from < last_prompt && chunk.end() > sequence.logits_from;
  if (owes) {
    chunk.logits_first = std::max(chunk.first, sequence.logits_from);
    chunk.count = std::min(chunk.count, chunk.logits_first - chunk.first + logit_budget_);
  } else {
    if (chunk.end() == sequence.num_tokens() && logit_budget_ == 0) --chunk.count;
    chunk.logits_first = chunk.end() - (chunk.end() == sequence.num_tokens());
  }
  if (chunk.count == 0) return;
  chunk.samples = chunk.end() == sequence.num_tokens();
  budget_ -= chunk.count;
  logit_budget_ -= chunk.logit_rows();
  step_.push_back(chunk);
}

void Scheduler::admit() {
  while (!waiting_.empty() && running() < config_.max_running && budget_ > 0) {
    Sequence* sequence = waiting_.front();
    if (!try_admit(*sequence)) return;  // in order of arrival: nobody overtakes
    waiting_.pop_front();
    running_.push_back(sequence);
    schedule_chunk(*sequence, false);  // even if only its newest token is left: decodes come first
  }
}

bool Scheduler::try_admit(Sequence& sequence) {
  FOVEA_CHECK(sequence.pages.empty() && !sequence.lock);
  const int64_t wanted = pages_for(sequence.num_tokens());
  // The newest token is always computed (its logits are needed), and so is what owes logits.
  int reusable = sequence.num_tokens() - 1;
  if (sequence.logits_from < sequence.prompt_len - 1) reusable = std::min(reusable, sequence.logits_from);
  if (config_.prefix_cache) {
    auto match = tree_.match(std::span(sequence.tokens).first(static_cast<size_t>(reusable)));
    sequence.lock = match.node;
    sequence.pages = std::move(match.pages);
    sequence.shared_pages = static_cast<int>(sequence.pages.size());
    sequence.computed = sequence.shared_pages * config_.page_size;
  }
  // All pages of the known tokens at once, so that a prefill never waits half done; and one more for each
  // running sequence, or the next decodes would preempt this one right away.
  const int64_t needed = wanted - static_cast<int64_t>(sequence.pages.size());
  if (needed + running() > available_pages() || !grow(sequence, wanted)) {
    release_pages(sequence);
    return false;
  }
  if (config_.prefix_cache) {
    stats_.prefix_queries += sequence.num_tokens();
    stats_.prefix_hits += sequence.computed;
  }
  if (!sequence.admitted_before) sequence.cached_tokens = sequence.computed;
  sequence.admitted_before = true;
  return true;
}

bool Scheduler::grow(Sequence& sequence, int64_t pages) {
  const int64_t missing = pages - static_cast<int64_t>(sequence.pages.size());
  if (missing <= 0) return true;
  if (missing > available_pages()) return false;
  if (missing > pool_.free_pages()) tree_.evict(missing - pool_.free_pages());
  return pool_.allocate(missing, sequence.pages);
}

void Scheduler::preempt(Sequence& sequence) {
  FOVEA_CHECK(running_.back() == &sequence);
  running_.pop_back();
  store_prefix(sequence);  // as long as nobody needs the pages, resuming costs little
  release_pages(sequence);
  waiting_.push_front(&sequence);
  preempted_ = true;
  ++sequence.preemptions;
  ++stats_.preemptions;
}

void Scheduler::commit() {
  for (const ScheduledChunk& chunk : step_) {
    Sequence& sequence = *chunk.sequence;
    sequence.computed = chunk.end();
    // A finished prefill is shared at once: requests that wait with the same prefix find it.
    if (!chunk.decode && chunk.samples) store_prefix(sequence);
  }
}

void Scheduler::store_prefix(Sequence& sequence) {
  if (!config_.prefix_cache) return;
  const int full = sequence.computed / config_.page_size;
  if (full <= sequence.shared_pages) return;
  RadixTree::Node* stored =
      tree_.insert(std::span(sequence.tokens).first(static_cast<size_t>(full * config_.page_size)),
                   std::span(sequence.pages).first(static_cast<size_t>(full)));
  tree_.unlock(sequence.lock);
  sequence.lock = stored;
  sequence.shared_pages = full;
}

void Scheduler::release_pages(Sequence& sequence) {
  pool_.release(std::span(sequence.pages).subspan(static_cast<size_t>(sequence.shared_pages)));
  if (sequence.lock) tree_.unlock(sequence.lock);
  sequence.lock = nullptr;
  sequence.pages.clear();
  sequence.shared_pages = 0;
  sequence.computed = 0;
}

bool Scheduler::consistent() const {
  if (!pool_.consistent()) return false;
  std::vector<RadixTree::Node*> locks;
  std::unordered_set<int32_t> owned;
  for (const Sequence* sequence : running_) {
    if (sequence->lock) locks.push_back(sequence->lock);
    if (pages_for(sequence->computed) > static_cast<int64_t>(sequence->pages.size())) return false;
    for (size_t i = static_cast<size_t>(sequence->shared_pages); i < sequence->pages.size(); ++i)
      if (!pool_.taken(sequence->pages[i]) || !owned.insert(sequence->pages[i]).second) return false;
  }
  for (const Sequence* sequence : waiting_)
    if (sequence->lock || !sequence->pages.empty() || sequence->computed != 0) return false;
  if (!tree_.consistent(locks)) return false;
  // Disjoint owners and the right sum: what sequences own, what the tree owns, and what is free.
  return static_cast<int64_t>(owned.size()) + tree_.pages() + pool_.free_pages() == pool_.total();
}

}  // namespace fovea
