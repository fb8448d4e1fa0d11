#include "engine/core.h"

#include <algorithm>

#include "base/check.h"
#include "profile/scopes.h"

namespace fovea {
namespace {

SchedulerConfig with_overlap(SchedulerConfig config, Overlap overlap) {
  config.overlap = overlap;
  return config;
}

}  // namespace

EngineCore::EngineCore(SchedulerConfig config, Executor& executor, std::unique_ptr<Speculator> speculator)
    : executor_(executor),
      scheduler_(with_overlap(config, executor.overlap())),
      speculator_(std::move(speculator)) {
  if (!speculator_) return;
  speculator_->set_constraint_of(
      [this](const Sequence& sequence) { return request_of(sequence).sequence_sampling().constraint; });
}

void EngineCore::add(std::unique_ptr<Request> request) {
  request->sequence.sampled_on_host = executor_.samples_on_host(request->sequence_sampling());
  if (request->index() > 0 && scheduler_.config().prefix_cache)
    held_[request->group()].push_back(request.get());
  else
    scheduler_.add(&request->sequence);
  requests_.emplace(request->id(), std::move(request));
}

void EngineCore::release_siblings(const Request& first) {
  if (first.index() > 0) return;
  const auto held = held_.extract(first.group());
  if (held.empty()) return;
  for (Request* request : held.mapped())
    scheduler_.add(&request->sequence);
}

void EngineCore::cancel(uint64_t id) {
  const std::vector<Request*> answers = group(id);
  if (!failure_) settle(answers);
  end_group(id, FinishReason::cancelled, {});
}

/// The answers of a request that have not ended.
std::vector<Request*> EngineCore::group(uint64_t id) const {
  std::vector<Request*> answers;
  // The sequences of a request have consecutive ids that start at its own.
  for (uint64_t at = id; at < id + kMaxChoices; ++at) {
    const auto found = requests_.find(at);
    if (found != requests_.end() && found->second->group() == id) answers.push_back(found->second.get());
  }
  return answers;
}

/// Ends all answers of a request.
void EngineCore::end_group(uint64_t id, FinishReason reason, const Error& error) {
  for (Request* answer : group(id))
    end(*answer, reason, error);
}

void EngineCore::end(Request& request, FinishReason reason, const Error& error) {
  request.finish(reason, error);
  release_siblings(request);
  ended_.push_back(take(request));  // before emit(): the sink may query the engine
  request.emit(std::chrono::steady_clock::now());
  drop_ended();
}

void EngineCore::cancel_all() {
  end_all(FinishReason::cancelled);
}

/// Ends all requests and waits for all open steps.
void EngineCore::end_all(FinishReason reason, const Error& error) {
  while (!requests_.empty())
    end_group(requests_.begin()->second->group(), reason, error);
  for (; !open_.empty(); open_.pop_front()) {
    (void)executor_.wait(open_.front().ticket);
    scheduler_.abandon();
  }
  drop_ended();
}

void EngineCore::drop_ended() {
  std::erase_if(ended_, [](const auto& request) { return request->sequence.rows_in_flight == 0; });
}

Request& EngineCore::request_of(const Sequence& sequence) const {
  return *requests_.at(sequence.id);
}

/// Drafts that the host makes follow tokens that it knows, and give a sequence several: a step that may have
/// some waits for the one before, and so does the step after it.
bool EngineCore::waits_for_tokens() const {
  if (!speculator_ || open_.empty() || !scheduler_.config().overlap.future_tokens) return false;
  const OpenStep& newest = open_.back();
  std::vector<const Sequence*> sequences;
  for (size_t i = 0; i < newest.chunks.size(); ++i) {
    const ScheduledChunk& chunk = newest.chunks[i];
    const Sequence& sequence = *chunk.sequence;
    if (chunk.drafts > 0 && !sequence.drafts_there) return true;
    if (!chunk.samples || newest.requests[i]->finished() || sequence.length() >= sequence.max_tokens)
      continue;
    if (sequence.sampled_on_host) return true;  // else it and the others would alternate
    if (!sequence.drafts_there) sequences.push_back(&sequence);
  }
  if (sequences.empty()) return false;
  const profile::Range range("draft");
  return speculator_->plans_drafts(sequences);
}

bool EngineCore::submit_next() {
  if (waits_for_tokens()) return false;
  const Time start = std::chrono::steady_clock::now();
  const auto chunks = [&] {
    const profile::Range range("schedule");
    return scheduler_.schedule(speculator_.get());
  }();
  if (chunks.empty()) return false;
  if (!open_.empty()) observe(open_.back());  // before the step overwrites its states
  prepare(chunks, start);
  if (speculator_) open_.back().drafts = speculator_->end_plan();
  const profile::Range range("submit", static_cast<int64_t>(chunks.size()));
  open_.back().ticket = executor_.submit({batch_, sequence_steps_});
  for (const ScheduledChunk& chunk : chunks)
    chunk.sequence->drafts_there = executor_.drafts_there(*chunk.sequence);
  return true;
}

/// Builds the batch of a step, the newest of open_.
void EngineCore::prepare(std::span<const ScheduledChunk> chunks, Time start) {
  const profile::Range range("prepare");
  batch_.build(chunks, scheduler_.config().page_size);
  OpenStep& step = open_.emplace_back();
  step.start = start;
  step.chunks = chunks;
  sequence_steps_.clear();
  for (const ScheduledChunk& chunk : chunks) {
    Request& request = request_of(*chunk.sequence);
    step.requests.push_back(&request);
    sequence_steps_.push_back(sequence_step(request, chunk));
  }
  for (Request* request : step.requests)
    request->mark_started(start);
}

SequenceStep EngineCore::sequence_step(Request& request, const ScheduledChunk& chunk) const {
  SequenceStep step;
  step.chunk = chunk;
  if (chunk.samples && request.generates()) {
    step.sampling = request.sequence_sampling();
    if (speculator_) step.sampling->synthetic_rates = speculator_->config().synthetic_rates;
  }
  step.prompt_logprobs = request.prompt_logprobs();
  const int last = request.sequence.prompt_len - 1;
  step.last_logits = request.wants_last_logits() && chunk.logits_first <= last && last < chunk.end();
  return step;
}

void EngineCore::step(const std::function<void()>& before_emit) {
  if (failure_) return end_all(FinishReason::error, *failure_);
  while (scheduler_.open_steps() < scheduler_.config().overlap.open_steps && submit_next()) {
  }
  if (open_.empty()) return;
  OpenStep step = std::move(open_.front());
  open_.pop_front();
  StepResult result = [&] {
    const profile::Range range("wait");
    return executor_.wait(step.ticket);
  }();
  // Skips requests that were cancelled or that an earlier step ended.
  const auto live = [](const Request* request) { return !request->finished(); };
  std::vector<Request*> requests;
  std::ranges::copy_if(step.requests, std::back_inserter(requests), live);
  step_tokens_ = 0;
  if (result.status.ok()) {
    FOVEA_CHECK(result.sequences.size() == step.chunks.size());
    scheduler_.commit();
    const Time computed = std::chrono::steady_clock::now();
    const profile::Range range("deliver");
    std::vector<int> rows(step.chunks.size());
    for (size_t i = 0; i < step.chunks.size(); ++i)
      if (live(step.requests[i]))
        rows[i] = deliver(*step.requests[i], step.chunks[i], result.sequences[i], computed);
    if (speculator_ && executor_.keeps_hidden() && !step.observed) observe(step, rows, result.hidden);
  } else {
    scheduler_.abandon();
    for (Request* request : requests)
      request->finish(FinishReason::error, result.status.error());
  }
  const Time end = std::chrono::steady_clock::now();
  count_step(step, result, end);
  for (Request* request : requests) {
    if (request->finished() || request->sequence.num_tokens() > request->sequence.prompt_len)
      release_siblings(*request);
    if (!request->finished()) continue;
    if (step.observed && result.status) settle({&request, 1});
    ended_.push_back(take(*request));
  }
  // Sinks are called while the device computes the next step, if it has none.
  if (executor_.runs_apart() && open_.empty()) submit_next();
  before_emit();
  {
    const profile::Range range("emit");
    for (Request* request : requests)
      request->emit(end);
  }
  drop_ended();
  failure_ = executor_.failure();
  if (failure_) end_all(FinishReason::error, *failure_);
  FOVEA_DCHECK(!idle() || (scheduler_.consistent() && scheduler_.pages_in_use() == 0));
}

void EngineCore::count_step(const OpenStep& step, const StepResult& result, Time end) {
  // Overlapping steps must not count the same time twice: one counts from the end of the step before.
  const double seconds = std::chrono::duration<double>(end - std::max(step.start, last_step_end_)).count();
  int decodes = 0, rows = 0;
  for (const ScheduledChunk& chunk : step.chunks) {
    rows += chunk.count;
    if (chunk.decode) decodes += chunk.count;
  }
  if (profile::watched(profile::kRanges)) {
    profile::count("running", scheduler_.running());
    profile::count("waiting", scheduler_.waiting());
    profile::count("KV pages used", static_cast<double>(scheduler_.pages_in_use()));
  }
  ++stats_.steps;
  stats_.busy_seconds += seconds;
  stats_.plan_seconds += result.plan_seconds;
  stats_.decode_tokens += decodes;
  stats_.prefill_tokens += rows - decodes;
  if (rows > decodes) {
    stats_.prefill_step_tokens += rows;
    stats_.prefill_step_seconds += seconds;
  }
  // A decode's previous token came from an earlier step, so last_step_end_ is set.
  if (decodes > 0) token_gaps_.add(std::chrono::duration<double>(end - last_step_end_).count());
  last_step_end_ = end;
  if (speculator_)
    speculator_->took(rows == decodes ? static_cast<int>(step.chunks.size()) : 0, step.drafts, seconds,
                      static_cast<int>(step_tokens_));
  if (step_tokens_ > 0) {
    const auto bound = std::ranges::lower_bound(kStepTokenBounds, step_tokens_);
    ++stats_.step_tokens[static_cast<size_t>(bound - kStepTokenBounds.begin())];
  }
  if (last_steps_.size() == kSnapshotSteps) last_steps_.pop_front();
  last_steps_.push_back({seconds, result.attention_seconds, result.plan_seconds, rows - decodes, decodes});
}

/// Before the pages of answers that end go to the prefix cache.
void EngineCore::settle(std::span<Request* const> answers) {
  if (!speculator_ || !scheduler_.config().prefix_cache) return;
  std::vector<const Sequence*> sequences;
  for (const Request* answer : answers)
    sequences.push_back(&answer->sequence);
  speculator_->settle(sequences);
}

/// A step that is still open, without drafts: all of its rows stay.
void EngineCore::observe(OpenStep& step) {
  if (!speculator_ || !executor_.keeps_hidden() || step.observed) return;
  std::vector<int> rows(step.chunks.size());
  for (size_t i = 0; i < rows.size(); ++i)
    if (!step.requests[i]->finished()) rows[i] = step.chunks[i].count;
  step.observed = true;
  observe(step, rows, {});
}

/// Shows the drafter the states of rows whose tokens stay; those of drafts that were rejected are not shown.
void EngineCore::observe(const OpenStep& step, std::span<const int> rows,
                         std::span<const std::span<const float>> states) {
  const profile::Range range("draft");
  hidden_rows_.clear();
  int64_t row = 0;
  for (size_t i = 0; i < step.chunks.size(); ++i) {
    const ScheduledChunk& chunk = step.chunks[i];
    const Sequence& sequence = *chunk.sequence;
    const bool ended = step.requests[i]->finished();
    // No later row sees those before the window. What has ended is wanted for those who will find its pages.
    const int skipped = std::max(0, sequence.dropped * scheduler_.config().page_size - chunk.first);
    if (rows[i] > skipped && (!ended || scheduler_.config().prefix_cache))
      hidden_rows_.push_back({sequence.id, sequence.tokens, sequence.pages, chunk.first + skipped,
                              rows[i] - skipped, row + skipped, ended});
    row += chunk.count;
  }
  speculator_->observe(hidden_rows_, states);
}

int EngineCore::deliver(Request& request, const ScheduledChunk& chunk, SequenceResult& result, Time now) {
  Sequence& sequence = request.sequence;
  int position = chunk.logits_first;
  for (TokenLogprobs& logprobs : result.prompt_logprobs) {
    request.set_prompt_logprobs(position++, std::move(logprobs));
    sequence.logits_from = position;
  }
  if (!result.status && result.tokens.empty()) {
    request.finish(FinishReason::error, result.status.error());
    return 0;
  }
  if (!result.last_logits.empty()) request.set_last_logits(std::move(result.last_logits));
  if (!chunk.samples) return chunk.count;
  if (chunk.end() == sequence.prompt_len) {  // true once per sequence: the next token makes it longer
    request.mark_prompt_complete(now);
    if (request.index() == 0) {
      stats_.prompt_tokens += sequence.prompt_len;
      step_tokens_ += sequence.prompt_len;
    }
  }
  if (!request.generates()) {
    request.finish(FinishReason::length);
    return chunk.count;
  }
  const int accepted = deliver_tokens(request, chunk, result);
  if (!result.status && !request.finished()) request.finish(FinishReason::error, result.status.error());
  // A stop rule may have cut the accepted drafts.
  return std::min(chunk.known_end() + accepted, sequence.num_tokens()) - chunk.first;
}

int EngineCore::deliver_tokens(Request& request, const ScheduledChunk& chunk, SequenceResult& result) {
  Sequence& sequence = request.sequence;
  FOVEA_CHECK(!result.tokens.empty());
  // Other rows in flight assume one token.
  FOVEA_CHECK(result.tokens.size() == 1 || sequence.rows_in_flight == 0 || sequence.drafts_there);
  const int tokens = static_cast<int>(result.tokens.size());
  // After an unusable row there is no token that follows the accepted drafts.
  const int accepted = std::min(chunk.drafts, tokens - (result.status ? 1 : 0));
  sequence.accepted = tokens - accepted;
  for (size_t i = 0; i < result.tokens.size() && !request.finished(); ++i) {
    std::optional<TokenLogprobs> logprobs;
    if (!result.logprobs.empty()) logprobs = std::move(result.logprobs[i]);
    request.accept(result.tokens[i], std::move(logprobs));
    ++stats_.generated_tokens;
    ++step_tokens_;
  }
  if (chunk.drafts == 0) return 0;
  scheduler_.accept_drafts(sequence, accepted);
  const int verified = result.verified.value_or(chunk.drafts);
  speculator_->count(sequence, verified, accepted);
  if (verified > 0) request.count_drafts(verified, accepted);
  return accepted;
}

std::unique_ptr<Request> EngineCore::take(Request& request) {
  scheduler_.remove(&request.sequence);
  if (speculator_) speculator_->end(request.sequence);
  return std::move(requests_.extract(request.id()).mapped());
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  for (const auto& [group, answers] : held_)
    stats.waiting += static_cast<int>(answers.size());
  stats.pages_total = scheduler_.pages_total();
  stats.pages_free = scheduler_.pages_free();
  stats.pages_cached = scheduler_.pages_cached();
  stats.pages_in_use = scheduler_.pages_in_use();
  stats.prefix_queries = scheduler_.stats().prefix_queries;
  stats.prefix_hits = scheduler_.stats().prefix_hits;
  stats.preemptions = scheduler_.stats().preemptions;
  stats.max_step_tokens = scheduler_.config().max_batched_tokens;
  stats.token_gap_p50 = token_gaps_.quantile(0.5);
  stats.token_gap_p99 = token_gaps_.quantile(0.99);
  stats.token_gap_max = token_gaps_.max();
  stats.attention = executor_.attention();
  if (speculator_) stats.speculative = speculator_->counts();
  return stats;
}

void EngineCore::add_to_snapshot(const Sequence& sequence, EngineSnapshot& out) const {
  using State = EngineSnapshot::State;
  if (out.sequences.size() == kSnapshotSequences) return;
  const Request& request = request_of(sequence);
  const bool runs = !sequence.pages.empty();  // running sequences have pages, waiting ones have none
  EngineSnapshot::Sequence& s = out.sequences.emplace_back();
  s.id = request.group();
  s.index = request.index();
  s.state = !runs ? State::waiting : sequence.decoding() ? State::decode : State::prefill;
  s.prompt_tokens = sequence.prompt_len;
  s.computed_tokens = sequence.computed;
  s.generated_tokens = sequence.num_tokens() - sequence.prompt_len;
  s.cached_tokens = sequence.cached_tokens;
  s.pages = static_cast<int64_t>(sequence.pages.size() - static_cast<size_t>(sequence.dropped) +
                                 sequence.cross_pages.size());
  s.shared_pages = std::max(0, sequence.shared_pages - sequence.dropped);
  s.preemptions = sequence.preemptions;
}

EngineSnapshot EngineCore::snapshot() const {
  EngineSnapshot out;
  out.steps_total = stats_.steps;
  out.generated_tokens = stats_.generated_tokens;
  out.speculative = stats_.speculative;
  out.page_size = scheduler_.config().page_size;
  out.pages_total = scheduler_.pages_total();
  out.pages_free = scheduler_.pages_free();
  out.pages_cached = scheduler_.pages_cached();
  out.pages_in_use = scheduler_.pages_in_use();
  out.running = scheduler_.running();
  out.waiting = scheduler_.waiting();
  for (const Sequence* sequence : scheduler_.first_in_order(kSnapshotSequences))
    add_to_snapshot(*sequence, out);
  for (const auto& [group, answers] : held_) {
    out.waiting += static_cast<int>(answers.size());
    for (const Request* request : answers)
      add_to_snapshot(request->sequence, out);
  }
  const RadixTree& tree = scheduler_.prefix_tree();
  const auto overview = tree.overview(kSnapshotNodes, kSnapshotPrefixes);
  out.prefix_nodes = overview.nodes;
  out.prefix_pages = tree.pages();
  out.prefix_locked_pages = tree.pages() - tree.evictable_pages();
  out.prefixes_complete = overview.complete;
  for (const auto& path : overview.longest)
    out.prefixes.push_back({path.tokens, path.tokens / out.page_size, path.locked});
  out.steps.assign(last_steps_.begin(), last_steps_.end());
  out.made = std::chrono::steady_clock::now();
  return out;
}

}  // namespace fovea
