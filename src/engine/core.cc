#include "engine/core.h"

#include "base/check.h"
#include "kernels/cpu/ops.h"

namespace fovea {

EngineCore::EngineCore(const SchedulerConfig& config, Executor& executor, Stream& stream)
    : executor_(executor),
      stream_(stream),
      scheduler_(config),
      samplers_(static_cast<size_t>(stream.pool().size())) {}

void EngineCore::add(std::unique_ptr<Request> request) {
  scheduler_.add(&request->sequence);
  requests_.emplace(request->id(), std::move(request));
}

void EngineCore::cancel(uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  found->second->finish(FinishReason::cancelled);
  retire(*found->second);
}

void EngineCore::cancel_all() {
  while (!requests_.empty())
    cancel(requests_.begin()->first);
}

Request& EngineCore::request_of(const Sequence& sequence) {
  return *requests_.at(sequence.id);
}

void EngineCore::step() {
  if (idle()) return;
  const auto start = std::chrono::steady_clock::now();
  const auto chunks = scheduler_.schedule();
  batch_.build(chunks, scheduler_.config().page_size);
  touched_.clear();
  for (const ScheduledChunk& chunk : chunks)
    touched_.push_back(&request_of(*chunk.sequence));
  const Status status = executor_.run(batch_, stream_);
  if (status.ok()) {
    collect_rows(chunks);
    evaluate_rows();
    scheduler_.commit();
    for (size_t i = 0; i < rows_.size(); ++i)
      deliver(rows_[i], executor_.logits(static_cast<int>(i)));
  } else {
    for (Request* request : touched_)
      request->finish(FinishReason::error, status.error());
  }
  count_step(chunks, start);
  for (Request* request : touched_) {
    if (request->finished())
      retire(*request);
    else
      request->emit();
  }
  FOVEA_DCHECK(!idle() || (scheduler_.consistent() && scheduler_.pages_in_use() == 0));
}

void EngineCore::count_step(std::span<const ScheduledChunk> chunks,
                            std::chrono::steady_clock::time_point start) {
  const auto end = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - start).count();
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
  // Who decodes now had its last token from an earlier step, so that there is one.
  if (decodes > 0) token_gaps_.add(std::chrono::duration<double>(end - last_step_end_).count());
  last_step_end_ = end;
}

void EngineCore::collect_rows(std::span<const ScheduledChunk> chunks) {
  rows_.clear();
  for (size_t c = 0; c < chunks.size(); ++c)
    for (int position = chunks[c].logits_first; position < chunks[c].end(); ++position)
      rows_.push_back({touched_[c], position, chunks[c].samples && position + 1 == chunks[c].end(), {}});
}

void EngineCore::evaluate_rows() {
  stream_.pool().parallel_tasks(static_cast<int64_t>(rows_.size()), [&](int64_t index, int worker) {
    evaluate(static_cast<int>(index), samplers_[static_cast<size_t>(worker)]);
  });
}

void EngineCore::evaluate(int index, Sampler& sampler) {
  Row& row = rows_[static_cast<size_t>(index)];
  const std::span<const float> logits = executor_.logits(index);
  const Request& request = *row.request;
  const Sequence& sequence = request.sequence;
  if (row.samples && request.generates()) {
    row.result.sampled = sampler.sample(logits.first(request.sampled_vocab()), request.sampling(),
                                        request.seed(), static_cast<uint64_t>(sequence.num_tokens()));
    row.result.valid = row.result.sampled.has_value();
  } else {
    row.result.valid = logits_valid(logits);
  }
  if (!row.result.valid || row.position + 1 >= sequence.prompt_len) return;
  const auto next = static_cast<size_t>(sequence.tokens[static_cast<size_t>(row.position) + 1]);
  row.result.logprob = static_cast<float>(static_cast<double>(logits[next]) -
                                          log_sum_exp(logits.data(), static_cast<int64_t>(logits.size())));
}

void EngineCore::deliver(Row& row, std::span<const float> logits) {
  Request& request = *row.request;
  Sequence& sequence = request.sequence;
  if (request.finished()) return;
  if (!row.result.valid) {
    request.finish(FinishReason::error,
                   {ErrorCode::internal, "the model's logits after token " + std::to_string(row.position) +
                                             " are not numbers (NaN or infinite); the weights or the dtype's "
                                             "range may be at fault: try --dtype float32"});
    return;
  }
  if (row.position + 1 < sequence.prompt_len) {
    request.set_prompt_logprob(row.position, row.result.logprob);
    sequence.logits_from = row.position + 1;
    return;
  }
  if (row.position + 1 == sequence.prompt_len && request.wants_last_logits()) request.set_last_logits(logits);
  if (!row.samples) return;
  if (request.generates())
    request.accept(*row.result.sampled);
  else
    request.finish(FinishReason::length);
}

void EngineCore::retire(Request& request) {
  scheduler_.remove(&request.sequence);
  const auto owner = requests_.extract(request.id());  // the sink may look at the engine: be done first
  request.emit();
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
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
  return stats;
}

}  // namespace fovea
