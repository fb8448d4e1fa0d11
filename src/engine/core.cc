#include "engine/core.h"

#include <algorithm>

#include "base/check.h"
#include "engine/logprobs.h"

namespace fovea {

EngineCore::EngineCore(const SchedulerConfig& config, ModelRunner& runner, Stream& stream)
    : runner_(runner),
      stream_(stream),
      scheduler_(config),
      samplers_(static_cast<size_t>(stream.pool().size())) {}

void EngineCore::add(std::unique_ptr<Request> request) {
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
  // The sequences of a request have consecutive ids that start at its own.
  for (uint64_t at = id; at < id + kMaxChoices; ++at) {
    const auto found = requests_.find(at);
    if (found != requests_.end() && found->second->group() == id) cancel_one(*found->second);
  }
}

void EngineCore::cancel_one(Request& request) {
  request.finish(FinishReason::cancelled);
  release_siblings(request);
  const auto owner = take(request);  // before emit(): the sink may query the engine
  request.emit(std::chrono::steady_clock::now());
}

void EngineCore::cancel_all() {
  while (!requests_.empty())
    cancel(requests_.begin()->second->group());
}

Request& EngineCore::request_of(const Sequence& sequence) const {
  return *requests_.at(sequence.id);
}

void EngineCore::step(const std::function<void()>& before_emit) {
  if (idle()) return;
  const StepStart start = begin_step();
  const auto chunks = scheduler_.schedule();
  batch_.build(chunks, scheduler_.config().page_size);
  touched_.clear();
  for (const ScheduledChunk& chunk : chunks)
    touched_.push_back(&request_of(*chunk.sequence));
  for (Request* request : touched_)
    request->mark_started(start.time);
  const Status status = runner_.run(batch_, stream_);
  if (status.ok()) {
    collect_rows(chunks);
    evaluate_rows();
    scheduler_.commit();
    const Time computed = std::chrono::steady_clock::now();
    for (size_t i = 0; i < rows_.size(); ++i)
      deliver(rows_[i], runner_.logits(static_cast<int>(i)), computed);
  } else {
    for (Request* request : touched_)
      request->finish(FinishReason::error, status.error());
  }
  const Time end = std::chrono::steady_clock::now();
  count_step(chunks, start, end);
  std::vector<std::unique_ptr<Request>> ended;
  for (Request* request : touched_) {
    if (request->finished() || request->sequence.num_tokens() > request->sequence.prompt_len)
      release_siblings(*request);
    if (request->finished()) ended.push_back(take(*request));
  }
  before_emit();
  for (Request* request : touched_)
    request->emit(end);
  FOVEA_DCHECK(!idle() || (scheduler_.consistent() && scheduler_.pages_in_use() == 0));
}

EngineCore::StepStart EngineCore::begin_step() {
  step_tokens_ = 0;
  return {std::chrono::steady_clock::now(), runner_.attention_seconds(), runner_.plan_seconds()};
}

void EngineCore::count_step(std::span<const ScheduledChunk> chunks, const StepStart& start, Time end) {
  const double seconds = std::chrono::duration<double>(end - start.time).count();
  int decodes = 0, rows = 0;
  for (const ScheduledChunk& chunk : chunks) {
    rows += chunk.count;
    if (chunk.decode) ++decodes;
  }
  ++stats_.steps;
  stats_.busy_seconds += seconds;
  stats_.decode_tokens += decodes;
  stats_.prefill_tokens += rows - decodes;
  if (rows > decodes) {
    stats_.prefill_step_tokens += rows;
    stats_.prefill_step_seconds += seconds;
  }
  // A decode's previous token came from an earlier step, so last_step_end_ is set.
  if (decodes > 0) token_gaps_.add(std::chrono::duration<double>(end - last_step_end_).count());
  last_step_end_ = end;
  if (step_tokens_ > 0) {
    const auto bound = std::ranges::lower_bound(kStepTokenBounds, step_tokens_);
    ++stats_.step_tokens[static_cast<size_t>(bound - kStepTokenBounds.begin())];
  }
  if (last_steps_.size() == kSnapshotSteps) last_steps_.pop_front();
  last_steps_.push_back({seconds, runner_.attention_seconds() - start.attention_seconds,
                         runner_.plan_seconds() - start.plan_seconds, rows - decodes, decodes});
}

void EngineCore::collect_rows(std::span<const ScheduledChunk> chunks) {
  rows_.clear();
  for (size_t c = 0; c < chunks.size(); ++c)
    for (int position = chunks[c].logits_first; position < chunks[c].end(); ++position)
      rows_.push_back({touched_[c], position, chunks[c].samples && position + 1 == chunks[c].end(), {}});
}

void EngineCore::evaluate_rows() {
  const auto row = [&](int64_t index, int worker) {
    evaluate(static_cast<int>(index), samplers_[static_cast<size_t>(worker)]);
  };
  const auto count = static_cast<int64_t>(rows_.size());
  stream_.pool().parallel_tasks(count, row, {static_cast<double>(count) * runner_.vocab_size()});
}

void EngineCore::evaluate(int index, Sampler& sampler) {
  Row& row = rows_[static_cast<size_t>(index)];
  const std::span<float> logits = runner_.logits(index);
  Request& request = *row.request;
  const Sequence& sequence = request.sequence;
  if (row.samples && request.generates()) {
    const auto sampled =
        sampler.sample(logits.first(request.sampled_vocab()), request.sampling(), request.seed(),
                       static_cast<uint64_t>(sequence.num_tokens()), &request.logits_processor(),
                       sequence.tokens, static_cast<size_t>(sequence.prompt_len));
    if (!sampled) {
      row.result.status = sampled.error();
      return;
    }
    row.result.sampled = *sampled;
    const auto top = request.sampling().logprobs;
    if (top && !logits_valid(logits))  // checks padding entries too: they count in log probabilities
      row.result.status = Error{ErrorCode::internal, kBadLogits};
    else if (top)
      row.result.logprobs = token_logprobs(logits, *sampled, *top);
  } else if (!logits_valid(logits)) {
    row.result.status = Error{ErrorCode::internal, kBadLogits};
  } else if (row.position + 1 < sequence.prompt_len) {
    row.result.logprobs = token_logprobs(logits, sequence.tokens[static_cast<size_t>(row.position) + 1],
                                         request.prompt_logprobs());
  }
}

void EngineCore::deliver(Row& row, std::span<const float> logits, Time now) {
  Request& request = *row.request;
  Sequence& sequence = request.sequence;
  if (request.finished()) return;
  if (!row.result.status) {
    const Error& error = row.result.status.error();
    request.finish(FinishReason::error,
                   {error.code, "after token " + std::to_string(row.position) + " " + error.message});
    return;
  }
  if (row.position + 1 < sequence.prompt_len) {
    request.set_prompt_logprobs(row.position, *std::move(row.result.logprobs));
    sequence.logits_from = row.position + 1;
    return;
  }
  if (row.position + 1 == sequence.prompt_len && request.wants_last_logits()) request.set_last_logits(logits);
  if (!row.samples) return;
  if (row.position + 1 == sequence.prompt_len) {  // true once per sequence: the next token makes it longer
    request.mark_prompt_complete(now);
    if (request.index() == 0) {
      stats_.prompt_tokens += sequence.prompt_len;
      step_tokens_ += sequence.prompt_len;
    }
  }
  if (request.generates()) {
    request.accept(*row.result.sampled, std::move(row.result.logprobs));
    ++stats_.generated_tokens;
    ++step_tokens_;
  } else {
    request.finish(FinishReason::length);
  }
}

std::unique_ptr<Request> EngineCore::take(Request& request) {
  scheduler_.remove(&request.sequence);
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
  stats.plan_seconds = runner_.plan_seconds();
  stats.attention = runner_.attention();
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
