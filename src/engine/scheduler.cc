#include "engine/scheduler.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "fovea/speculative.h"

namespace fovea {

int64_t decoder_pages(const SchedulerConfig& c) {
  const int64_t all = c.pages_for(c.max_seq_len);
  if (c.window == 0) return all;
  // A step's rows see `tokens` keys, their own included, starting anywhere in a page.
  const int64_t tokens = int64_t{c.window} - 1 + c.max_batched_tokens;
  const int64_t window = (tokens + c.page_size - 2) / c.page_size + 1;
  return c.max_seq_len > 0 ? std::min(window, all) : window;
}

int64_t longest_sequence_pages(const SchedulerConfig& c) {
  return decoder_pages(c) + c.pages_for(c.max_encoder_len);
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      pool_(config.num_pages),
      tree_(config.page_size, pool_),
      own_limit_(config.window > 0 ? decoder_pages(config) : config.num_pages),
      // A locked prefix must leave own_limit_ pages, or the longest sequence could wait forever. Without a
      // window, or when the pool holds a whole longest sequence, both are parts of one page table that fits.
      hit_limit_(config.window > 0 && config.num_pages < config.pages_for(config.max_seq_len)
                     ? std::max<int64_t>(0, config.num_pages - own_limit_)
                     : config.num_pages),
      line_(config.policy) {
  FOVEA_CHECK(config.max_running >= 1 && config.max_batched_tokens >= 1);
  FOVEA_CHECK(config.max_logit_rows >= std::min(config.max_running, config.max_batched_tokens));
  FOVEA_CHECK(config.max_seq_len >= 1 && config.num_pages >= longest_sequence_pages(config));
  FOVEA_CHECK(!config.whole_prompts ||
              (!config.prefix_cache && config.max_logit_rows >= config.max_batched_tokens));
  FOVEA_CHECK(config.max_encoder_len == 0 || (!config.prefix_cache && config.window == 0));
  step_.reserve(static_cast<size_t>(std::min(config.max_running, config.max_batched_tokens)));
}

void Scheduler::add(Sequence* sequence) {
  if (sequence->lora || !sequence->cache_salt.empty())
    sequence->cache_space =
        cache_spaces_.space(sequence->lora ? sequence->lora->number : 0, sequence->cache_salt);
  FOVEA_CHECK(sequence->prompt_len >= 1 && sequence->num_tokens() >= sequence->prompt_len);
  FOVEA_CHECK(sequence->num_tokens() <= config_.max_seq_len);
  FOVEA_CHECK(sequence->encoder_len() <= config_.max_encoder_len);
  FOVEA_CHECK(!config_.whole_prompts || sequence->prompt_len <= config_.max_batched_tokens);
  sequence->arrival = arrivals_++;
  line_.add(*sequence);
}

void Scheduler::remove(Sequence* sequence) {
  if (short_of_pages_ == sequence) short_of_pages_ = nullptr;
  line_.remove(*sequence);
  const auto at = std::find(running_.begin(), running_.end(), sequence);
  if (at == running_.end()) {
    forget_answer(*sequence);
    return;
  }
  running_.erase(at);
  if (sequence->rows_in_flight > 0)
    retiring_.push_back(sequence);
  else
    retire(*sequence);
}

/// Gives up the pages of a sequence that has ended. Nothing will ask for the pages of its answer again if
/// they would serve it alone.
void Scheduler::retire(Sequence& sequence) {
  store_prefix(sequence,
               config_.phases_differ ? std::min(sequence.computed, sequence.prompt_len) : sequence.computed);
  release_pages(sequence);
  forget_answer(sequence);
}

std::vector<const Sequence*> Scheduler::first_in_order(size_t count) const {
  std::vector<const Sequence*> first(
      running_.begin(), running_.begin() + static_cast<std::ptrdiff_t>(std::min(count, running_.size())));
  const auto next = line_.first_ones(count - first.size());
  first.insert(first.end(), next.begin(), next.end());
  return first;
}

std::span<const ScheduledChunk> Scheduler::schedule(DraftSource* drafts) {
  FOVEA_CHECK(open_steps() < config_.overlap.open_steps);
  step_.clear();
  budget_ = config_.max_batched_tokens;
  logit_budget_ = config_.max_logit_rows;
  encoder_budget_ = config_.max_encoder_rows();
  must_wait_ = false;
  drafts_ = drafts;
  make_way();
  preempted_ = false;
  decodes_ = 0;
  spare_seqs_ = config_.max_running - running();
  if (!must_wait_) schedule_decodes();
  if (!must_wait_) schedule_prefills();
  // After a preemption for pages, the preempted sequence would take the last pages back.
  while (!must_wait_ && !preempted_ && admit_first()) {
  }
  if (must_wait_) step_.clear();  // closing the open steps may free enough pages without a preemption
  FOVEA_CHECK(!step_.empty() || !open_.empty() || idle());
  if (step_.empty()) return {};
  if (drafts != nullptr) schedule_drafts(*drafts);
  open_step();
  return open_.back();
}

void Scheduler::open_step() {
  for (const ScheduledChunk& chunk : step_) {
    chunk.sequence->rows_in_flight += chunk.count;
    chunk.sequence->tokens_in_flight += chunk.samples;
    chunk.sequence->drafts_in_flight += chunk.drafts;
    line_.charge(*chunk.sequence, chunk.count - chunk.drafts);  // drafts do not change whose turn is next
  }
  line_.advance();
  open_.push_back(step_);
}

/// False while open steps have rows of the sequence, whose pages they use, or while a removed sequence still
/// has pages, which it will release.
bool Scheduler::preemptible(const Sequence& sequence) const {
  return sequence.rows_in_flight == 0 && retiring_.empty();
}

bool Scheduler::awaits_token(const Sequence& sequence) const {
  if (sequence.tokens_in_flight == 0) return false;
  return !config_.overlap.future_tokens || sequence.sampled_on_host ||
         sequence.length() + sequence.drafts_in_flight >= sequence.max_tokens;
}

/// When the batch or the pool is full, preempts a sequence of a client that is over its share in favour of
/// the first waiting one. Otherwise a client with many long answers would block all others until they finish.
void Scheduler::make_way() {
  const Sequence* first = line_.first();
  const bool blocked = std::exchange(short_of_pages_, nullptr) == first;
  // Without chunking, recomputing an answer takes one step per token.
  if (first == nullptr || config_.whole_prompts || !room_for_lora(*first)) return;
  const int places = std::min(config_.max_running, config_.max_batched_tokens);
  if (running() < places && !blocked) return;
  Sequence* other = who_makes_way(*first);
  if (other == nullptr) return;
  if (preemptible(*other)) {
    preempt(*other);
  } else {
    must_wait_ = true;
    if (blocked) short_of_pages_ = first;
  }
}

Sequence* Scheduler::who_makes_way(const Sequence& first) const {
  // The first running sequence is never preempted, which guarantees progress. No preemption if it would not
  // free enough pages.
  Sequence* last = nullptr;
  int64_t pages = available_pages();
  for (size_t i = 1; i < running_.size(); ++i) {
    if (!line_.takes_place(first, *running_[i])) continue;
    last = running_[i];
    pages += static_cast<int64_t>(last->pages.size()) - last->first_own() +
             static_cast<int64_t>(last->cross_pages.size());
  }
  const int64_t wanted = std::min(config_.pages_for(first.num_tokens()), own_limit_);
  return wanted + config_.pages_for(first.encoder_len()) <= pages ? last : nullptr;
}

void Scheduler::schedule_decodes() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.decoding() || awaits_token(sequence)) continue;
    const int64_t pages = config_.pages_for(sequence.next() + sequence.drafts_in_flight +
                                            std::min(sequence.remaining(), budget_));
    // Pages before the window are dropped when rows in flight are committed.
    if (sequence.rows_in_flight > 0 && pages - sequence.first_own() > own_limit_) continue;
    bool fits = grow(sequence, pages);
    while (!fits) {
      // Preempt the last in order; none after i has been scheduled yet. A single sequence always fits.
      Sequence& victim = *running_.back();
      if (!preemptible(victim)) {
        must_wait_ = true;
        return;
      }
      FOVEA_CHECK(running_.size() > 1);
      preempt(victim);
      if (&victim == &sequence) break;
      fits = grow(sequence, pages);
    }
    if (fits) schedule_chunk(sequence, true);
  }
}

void Scheduler::schedule_prefills() {
  std::vector<Sequence*> prefills;
  for (Sequence* sequence : running_)
    if (!sequence->decoding() && !awaits_token(*sequence)) prefills.push_back(sequence);
  std::ranges::stable_sort(prefills, [this](const auto* a, const auto* b) { return line_.before(a, b); });
  for (Sequence* sequence : prefills) {
    // A client's prefills in progress do not block the requests of another client.
    for (const Sequence* first = line_.first(); !preempted_ && first && first->share != sequence->share &&
                                                line_.before(first, sequence) &&
                                                first->priority == sequence->priority && admit_first();)
      first = line_.first();
    if (budget_ > 0) schedule_chunk(*sequence, false);
  }
}

void Scheduler::schedule_chunk(Sequence& sequence, bool decode) {
  ScheduledChunk chunk;
  chunk.sequence = &sequence;
  chunk.first = sequence.next();
  chunk.ahead = sequence.drafts_in_flight;
  chunk.decode = decode;
  chunk.encode = sequence.encoder && !sequence.encoded && sequence.rows_in_flight == 0;
  if (chunk.encode && sequence.encoder_len() > encoder_budget_) return;
  chunk.count = std::min(sequence.remaining(), budget_);
  if (config_.phases_differ) keep_to_phase(chunk);
  if (config_.whole_prompts) {
    chunk.count = chunk.first == 0 ? sequence.prompt_len : 1;
    if (chunk.count > budget_) return;
  }
  if (sequence.rows_in_flight > 0) {  // with a window, they may fill all its pages
    const int64_t held = static_cast<int64_t>(sequence.pages.size()) * config_.page_size;
    chunk.count = static_cast<int>(std::min<int64_t>(chunk.count, held - chunk.first - chunk.ahead));
  }
  // Rows with logits: prompt positions whose logits are still wanted, and the newest token.
  const int last_prompt = sequence.prompt_len - 1;
  const bool owes = sequence.logits_from < last_prompt && chunk.end() > sequence.logits_from;
  if (owes) {
    chunk.logits_first = std::max(chunk.first, sequence.logits_from);
    chunk.count = std::min(chunk.count, chunk.logits_first - chunk.first + logit_budget_);
  } else {
    if (chunk.end() == sequence.length() && logit_budget_ == 0) --chunk.count;
    chunk.logits_first = chunk.end() - (chunk.end() == sequence.length());
  }
  if (chunk.count == 0) return;
  FOVEA_CHECK(config_.pages_for(chunk.end() + chunk.ahead) <= static_cast<int64_t>(sequence.pages.size()));
  chunk.samples = chunk.end() == sequence.length();
  add_to_step(chunk);
}

/// Ends a prompt's chunk with the prompt, so that its last row is prefill's, whether or not others of it were
/// cached. Generated positions are decode's: several in one step are sequences of one row each in the batch,
/// which attention computes as it does in steps of their own.
void Scheduler::keep_to_phase(ScheduledChunk& chunk) const {
  const Sequence& sequence = *chunk.sequence;
  chunk.decode = next_is_generated(sequence);
  if (!chunk.decode) {
    chunk.count = std::min(chunk.count, sequence.prompt_len - chunk.first);
    return;
  }
  chunk.single_rows = true;
  // Cross attention's arrays have one entry for a sequence.
  chunk.count = sequence.encoder ? 1 : std::min(chunk.count, 1 + spare_seqs_);
}

/// Rows of drafts come after everything else: they take no row from a token that is known, and preempt
/// nothing.
void Scheduler::schedule_drafts(DraftSource& source) {
  std::vector<DraftRoom> rooms;
  std::vector<ScheduledChunk*> chunks;
  for (ScheduledChunk& chunk : std::span(step_).first(decodes_)) {
    chunk.sequence->drafts.clear();
    if (draft_room(chunk) > 0) chunks.push_back(&chunk);
  }
  int rows = std::min(budget_, logit_budget_);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int share = rows / static_cast<int>(chunks.size() - i);
    const int most = std::min(share, draft_room(*chunks[i]));
    rows -= most;
    if (most > 0) rooms.push_back({chunks[i]->sequence, most});
  }
  if (rooms.empty()) return;
  source.propose(rooms, static_cast<int>(decodes_));
  size_t room = 0;
  for (ScheduledChunk* chunk : chunks) {
    if (room == rooms.size() || rooms[room].sequence != chunk->sequence) continue;
    const auto proposed = static_cast<int>(chunk->sequence->drafts.size());
    FOVEA_CHECK(proposed <= rooms[room++].most);
    // Others may have taken pages since.
    if (proposed > 0) add_drafts(*chunk, std::min(proposed, draft_room(*chunk)));
  }
}

/// Rows of drafts that the chunk could have.
int Scheduler::draft_room(const ScheduledChunk& chunk) const {
  const Sequence& sequence = *chunk.sequence;
  if (!chunk.samples || config_.whole_prompts) return 0;
  if (sequence.rows_in_flight > 0 && !sequence.drafts_there) return 0;
  if (chunk.single_rows && sequence.encoder) return 0;
  const int left = sequence.max_tokens - sequence.length() - chunk.ahead;  // for tokens after this one
  int64_t room = std::min({budget_, logit_budget_, left - 1, kMaxDrafts});
  if (chunk.single_rows) room = std::min<int64_t>(room, std::max(spare_seqs_, rows_beside(chunk)));
  const auto held = static_cast<int64_t>(sequence.pages.size());
  const int64_t more = std::min(available_pages(), own_limit_ - (held - sequence.first_own()));
  return static_cast<int>(std::min(room, (held + more) * config_.page_size - chunk.end() - chunk.ahead));
}

/// Drafts that one sequence of the batch may have with the known token of a decode.
int Scheduler::rows_beside(const ScheduledChunk& chunk) const {
  return chunk.count == 1 ? config_.decode_rows - 1 : 0;
}

void Scheduler::add_drafts(ScheduledChunk& chunk, int count) {
  if (count <= 0) return;
  FOVEA_CHECK(grow(*chunk.sequence, config_.pages_for(chunk.end() + chunk.ahead + count)));
  if (count <= rows_beside(chunk)) chunk.single_rows = false;
  chunk.count += count;
  chunk.drafts = count;
  budget_ -= count;
  logit_budget_ -= count;
  if (chunk.single_rows) spare_seqs_ -= count;
}

void Scheduler::accept_drafts(Sequence& sequence, int count) {
  sequence.computed = std::min(sequence.computed + count, sequence.num_tokens());
  for (std::vector<ScheduledChunk>& step : open_)
    for (ScheduledChunk& chunk : step) {
      if (chunk.sequence != &sequence) continue;
      chunk.first += count;
      chunk.logits_first += count;
    }
  line_.charge(sequence, count);
  drop_old_pages(sequence);
}

void Scheduler::add_to_step(const ScheduledChunk& chunk) {
  budget_ -= chunk.count;
  logit_budget_ -= chunk.logit_rows();
  if (chunk.encode) encoder_budget_ -= chunk.sequence->encoder_len();
  if (chunk.single_rows) spare_seqs_ -= chunk.count - 1;
  if (chunk.decode) {
    step_.insert(step_.begin() + static_cast<std::ptrdiff_t>(decodes_++), chunk);
  } else {
    step_.push_back(chunk);
  }
}

/// Whether the running sequences would not have too many adapters with it.
bool Scheduler::room_for_lora(const Sequence& sequence) const {
  if (!sequence.lora || config_.max_loras == 0) return true;
  std::set<const LoraAdapter*> adapters;
  for (const Sequence* other : running_)
    if (other->lora) adapters.insert(other->lora.get());
  return adapters.contains(sequence.lora.get()) || adapters.size() < static_cast<size_t>(config_.max_loras);
}

/// The first waiting sequence; where the running ones have too many adapters for it, the first for which they
/// don't. Null if there is none, or if the first one has been overtaken often enough.
Sequence* Scheduler::next_in_line() const {
  constexpr int kMostOvertakers = 64;
  Sequence* const first = line_.first();
  if (first == nullptr || room_for_lora(*first)) return first;
  if (first->arrival == overtaken_ && overtakers_ >= kMostOvertakers) return nullptr;
  return line_.first_where([this](const Sequence& sequence) { return room_for_lora(sequence); });
}

/// False when the next waiting sequence cannot be admitted. No other overtakes it, unless it waits for
/// another adapter to be done.
bool Scheduler::admit_first() {
  if (line_.empty() || running() >= config_.max_running || budget_ <= 0 || spare_seqs_ <= 0) return false;
  Sequence* const sequence = next_in_line();
  if (sequence == nullptr) return false;
  const Sequence* const first = line_.first();
  if (sequence->encoder_len() > encoder_budget_) return false;
  if (config_.whole_prompts && sequence->prompt_len > budget_) return false;
  if (!try_admit(*sequence)) {
    short_of_pages_ = sequence;
    return false;
  }
  --spare_seqs_;
  if (sequence != first)
    overtakers_ = std::exchange(overtaken_, first->arrival) == first->arrival ? overtakers_ + 1 : 1;
  line_.admit(*sequence);
  running_.insert(std::ranges::upper_bound(running_, sequence, line_.order()), sequence);
  // Decodes come first, so this is a prefill even if only the newest token is left; but see keep_to_phase().
  schedule_chunk(*sequence, false);
  return true;
}

void Scheduler::match_prefix(Sequence& sequence) {
  // The newest token is always computed, because its logits are needed; so are positions whose logits are
  // wanted.
  int64_t reusable = sequence.num_tokens() - 1;
  if (sequence.logits_from < sequence.prompt_len - 1)
    reusable = std::min<int64_t>(reusable, sequence.logits_from);
  reusable = std::min(reusable, hit_limit_ * config_.page_size);
  auto match = tree_.match(key_of(sequence, static_cast<size_t>(reusable)));
  sequence.lock = match.node;
  sequence.pages = std::move(match.pages);
  sequence.shared_pages = static_cast<int>(sequence.pages.size());
  sequence.computed = sequence.shared_pages * config_.page_size;
}

bool Scheduler::try_admit(Sequence& sequence) {
  FOVEA_CHECK(sequence.pages.empty() && sequence.cross_pages.empty() && !sequence.lock);
  if (config_.prefix_cache) match_prefix(sequence);
  // Take all pages of the known tokens at once (or as many as its window ever needs), so that a started
  // prefill never stalls. Also require headroom for the running sequences, or the next decodes would preempt
  // this one immediately.
  const int64_t wanted = config_.pages_for(sequence.num_tokens());
  const int64_t own = std::min(wanted - sequence.shared_pages, own_limit_);
  const int64_t cross = config_.pages_for(sequence.encoder_len());
  int64_t room = 0;
  if (!running_.empty()) {
    room = headroom(sequence) - own;
    for (const Sequence* other : running_)
      room += headroom(*other);
  }
  if (own + cross + room > available_pages()) {
    release_pages(sequence);
    return false;
  }
  FOVEA_CHECK(take(own, sequence.pages) && take(cross, sequence.cross_pages));
  if (config_.prefix_cache) {
    stats_.prefix_queries += sequence.num_tokens();
    stats_.prefix_hits += sequence.computed;
  }
  if (!sequence.admitted_before) sequence.cached_tokens = sequence.computed;
  sequence.admitted_before = true;
  drop_old_pages(sequence);
  return true;
}

int64_t Scheduler::headroom(const Sequence& sequence) const {
  const int64_t length = std::min(sequence.length() + std::max(1, config_.watermark), config_.max_seq_len);
  const auto held = static_cast<int64_t>(sequence.pages.size());
  const int64_t room_in_window = own_limit_ - (held - sequence.first_own());
  return std::max<int64_t>(0, std::min(config_.pages_for(length) - held, room_in_window));
}

bool Scheduler::grow(Sequence& sequence, int64_t pages) {
  return take(pages - static_cast<int64_t>(sequence.pages.size()), sequence.pages);
}

bool Scheduler::take(int64_t count, std::vector<int32_t>& pages) {
  if (count <= 0) return true;
  if (count > available_pages()) return false;
  if (count > pool_.free_pages()) tree_.evict(count - pool_.free_pages());
  return pool_.allocate(count, pages);
}

void Scheduler::preempt(Sequence& sequence) {
  running_.erase(std::ranges::find(running_, &sequence));
  if (drafts_ != nullptr && config_.prefix_cache) drafts_->preempts(sequence);
  store_prefix(sequence, sequence.computed);  // resuming is cheap while the pages stay cached
  release_pages(sequence);
  line_.put_back(sequence);
  preempted_ = true;
  ++sequence.preemptions;
  ++stats_.preemptions;
}

void Scheduler::close_step(bool computed) {
  FOVEA_CHECK(!open_.empty());
  closed_ = std::move(open_.front());
  open_.pop_front();
  for (const ScheduledChunk& chunk : closed_) {
    Sequence& sequence = *chunk.sequence;
    sequence.rows_in_flight -= chunk.count;
    sequence.tokens_in_flight -= chunk.samples;
    sequence.drafts_in_flight -= chunk.drafts;
    const auto retiring = std::ranges::find(retiring_, &sequence);
    if (retiring == retiring_.end()) {
      if (computed) commit(chunk);
    } else if (sequence.rows_in_flight == 0) {
      retiring_.erase(retiring);
      retire(sequence);
    }
  }
}

void Scheduler::commit(const ScheduledChunk& chunk) {
  Sequence& sequence = *chunk.sequence;
  sequence.computed = chunk.known_end();
  sequence.encoded = sequence.encoded || chunk.encode;
  // Share a finished prefill at once, so that waiting requests with the same prefix hit it. Not if it has
  // outgrown the window: its path would lock pages that no row sees any more.
  const bool whole = sequence.dropped == 0 && sequence.computed / config_.page_size <= hit_limit_;
  const bool completes = config_.phases_differ ? chunk.end() == sequence.prompt_len : chunk.samples;
  if (!chunk.decode && completes && whole) store_prefix(sequence, sequence.computed);
  drop_old_pages(sequence);
}

/// By what the prefix tree knows the sequence's first `count` tokens; valid until the next call. If phases
/// differ, the pages from the one with the first generated position on are the sequence's alone. The tree
/// compares whole pages, so it tells them by a key in place of their tokens, which follow from the sequence:
/// a number of its own, negative as no token is. (Numbers repeat after 2^31 sequences; a page is then long
/// gone, since one that ended leaves none.)
std::span<const int32_t> Scheduler::key_of(const Sequence& sequence, size_t count) {
  const int prompt_pages = sequence.prompt_len / config_.page_size;
  const auto shared = static_cast<size_t>(prompt_pages) * static_cast<size_t>(config_.page_size);
  const bool by_phase = config_.phases_differ && count > shared;
  if ((!by_phase && sequence.cache_space == 0) || count == 0) return std::span(sequence.tokens).first(count);
  const auto own = -1 - static_cast<int32_t>(sequence.arrival & 0x7fffffff);
  const size_t common = by_phase ? shared : count;
  key_.assign(sequence.tokens.begin(), sequence.tokens.begin() + static_cast<std::ptrdiff_t>(common));
  if (sequence.cache_space > 0 && common > 0)
    key_.front() = cache_spaces_.key(sequence.cache_space, key_.front()).value_or(own);
  key_.resize(count, own);
  return key_;
}

/// Stores the whole pages of the first `computed` tokens.
void Scheduler::store_prefix(Sequence& sequence, int computed) {
  if (!config_.prefix_cache) return;
  const int full = computed / config_.page_size, first = sequence.first_own();
  if (full <= first) return;
  RadixTree::Node* stored = tree_.insert(
      key_of(sequence, static_cast<size_t>(full) * static_cast<size_t>(config_.page_size)),
      std::span(sequence.pages).subspan(static_cast<size_t>(first), static_cast<size_t>(full - first)));
  if (!stored) return;  // pages dropped from the window were evicted since, so there is no prefix to extend
  if (sequence.lock) tree_.unlock(sequence.lock);
  sequence.lock = stored;
  sequence.shared_pages = full;
}

/// Frees the pages in the tree that only this sequence, which has ended, could have used.
void Scheduler::forget_answer(const Sequence& sequence) {
  if (!config_.phases_differ || !config_.prefix_cache) return;
  if (sequence.preemptions == 0 && config_.window == 0) return;  // it stored none
  const int prompt_pages = sequence.prompt_len / config_.page_size;
  tree_.forget(key_of(sequence, sequence.tokens.size()), static_cast<size_t>(prompt_pages));
}

void Scheduler::drop_old_pages(Sequence& sequence) {
  if (config_.window == 0) return;
  // The first key that the next row (position `computed`) sees is computed - window + 1.
  const int dropped = std::max(0, sequence.computed - config_.window + 1) / config_.page_size;
  if (dropped <= sequence.dropped) return;
  const int first = sequence.first_own();
  const int own = std::max(0, dropped - first);
  if (own > 0) {
    const auto old = std::span(sequence.pages).subspan(static_cast<size_t>(first), static_cast<size_t>(own));
    RadixTree::Node* stored = nullptr;
    if (config_.prefix_cache) {
      const auto end = static_cast<size_t>(dropped) * static_cast<size_t>(config_.page_size);
      stored = tree_.insert(key_of(sequence, end), old);
    }
    if (stored)
      tree_.unlock(stored);  // evictable from now on
    else
      pool_.release(old);
  }
  std::fill(sequence.pages.begin() + sequence.dropped, sequence.pages.begin() + dropped, 0);
  sequence.dropped = dropped;
  if (sequence.lock && dropped >= sequence.shared_pages) {
    tree_.unlock(sequence.lock);
    sequence.lock = nullptr;
  }
  // A prefill takes as many new pages as it dropped: those are free or evictable now.
  const int64_t wanted = config_.pages_for(sequence.num_tokens());
  FOVEA_CHECK(grow(sequence, std::min(wanted, static_cast<int64_t>(sequence.pages.size()) + own)));
}

void Scheduler::release_pages(Sequence& sequence) {
  pool_.release(std::span(sequence.pages).subspan(static_cast<size_t>(sequence.first_own())));
  pool_.release(sequence.cross_pages);
  if (sequence.lock) tree_.unlock(sequence.lock);
  sequence.lock = nullptr;
  sequence.pages.clear();
  sequence.cross_pages.clear();
  sequence.shared_pages = sequence.dropped = 0;
  sequence.computed = 0;
  sequence.encoded = false;
}

bool Scheduler::consistent(const Sequence& s) const {
  const auto table = static_cast<int64_t>(s.pages.size());
  if (config_.pages_for(s.next()) > table || s.dropped > table) return false;
  if (table - s.first_own() > own_limit_) return false;
  if (static_cast<int64_t>(s.cross_pages.size()) != config_.pages_for(s.encoder_len())) return false;
  for (int i = 0; i < s.dropped; ++i)
    if (s.pages[static_cast<size_t>(i)] != 0) return false;
  // The first key that the next row sees must not be dropped.
  if (config_.window == 0) return s.dropped == 0;
  return int64_t{s.dropped} * config_.page_size <= std::max(0, s.computed - config_.window + 1);
}

bool Scheduler::consistent() const {
  if (!pool_.consistent()) return false;
  if (!std::ranges::is_sorted(running_, line_.order())) return false;
  std::vector<RadixTree::Node*> locks;
  std::unordered_set<int32_t> owned;
  std::vector<const Sequence*> owners(running_.begin(), running_.end());
  owners.insert(owners.end(), retiring_.begin(), retiring_.end());
  for (const Sequence* sequence : owners) {
    if (!consistent(*sequence)) return false;
    if (sequence->lock) locks.push_back(sequence->lock);
    for (auto page = static_cast<size_t>(sequence->first_own()); page < sequence->pages.size(); ++page)
      if (!pool_.taken(sequence->pages[page]) || !owned.insert(sequence->pages[page]).second) return false;
    for (const int32_t page : sequence->cross_pages)
      if (!pool_.taken(page) || !owned.insert(page).second) return false;
  }
  for (const Sequence* sequence : line_.first_ones(line_.size()))
    if (sequence->lock || !sequence->pages.empty() || !sequence->cross_pages.empty() ||
        sequence->computed != 0 || sequence->encoded || sequence->rows_in_flight != 0 ||
        sequence->tokens_in_flight != 0 || sequence->drafts_in_flight != 0)
      return false;
  if (!tree_.consistent(locks)) return false;
  // Pages owned by sequences, owned by the tree, and free add up to the total.
  return static_cast<int64_t>(owned.size()) + tree_.pages() + pool_.free_pages() == pool_.total();
}

}  // namespace fovea
