#include "engine/cpu_executor.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "engine/logprobs.h"

namespace fovea {

CpuExecutor::CpuExecutor(ModelRunner& runner, Stream& stream)
    : runner_(runner), stream_(stream), samplers_(static_cast<size_t>(stream.pool().size())) {}

Ticket CpuExecutor::submit(const Step& step) {
  FOVEA_CHECK(submitted_ == taken_);
  const double planned = runner_.plan_seconds(), attended = runner_.attention_seconds();
  result_ = {};
  result_.status = runner_.run(step.batch, stream_);
  result_.plan_seconds = runner_.plan_seconds() - planned;
  result_.attention_seconds = runner_.attention_seconds() - attended;
  if (result_.status.ok()) {
    collect_rows(step.sequences);
    evaluate_rows();
    size_t row = 0;
    for (const SequenceStep& sequence : step.sequences) {
      result_.sequences.push_back(collect_result(sequence, row));
      row += static_cast<size_t>(sequence.chunk.logit_rows());
    }
  }
  return {++submitted_};
}

StepResult CpuExecutor::wait(Ticket ticket) {
  FOVEA_CHECK(ticket.number == submitted_ && taken_ + 1 == submitted_);
  ++taken_;
  return std::move(result_);
}

void CpuExecutor::collect_rows(std::span<const SequenceStep> sequences) {
  rows_.clear();
  for (const SequenceStep& sequence : sequences) {
    const ScheduledChunk& chunk = sequence.chunk;
    for (int position = chunk.logits_first; position < chunk.end(); ++position)
      rows_.push_back({&sequence, position, sequence.sampling && position + 1 == chunk.end(), {}, {}, {}});
  }
}

void CpuExecutor::evaluate_rows() {
  const auto row = [&](int64_t index, int worker) {
    evaluate(static_cast<int>(index), samplers_[static_cast<size_t>(worker)]);
  };
  const auto count = static_cast<int64_t>(rows_.size());
  stream_.pool().parallel_tasks(count, row, {static_cast<double>(count) * runner_.vocab_size()});
}

void CpuExecutor::evaluate(int index, Sampler& sampler) {
  Row& row = rows_[static_cast<size_t>(index)];
  const std::span<float> logits = runner_.logits(index);
  const Sequence& sequence = *row.sequence->chunk.sequence;
  if (row.samples) {
    const SequenceSampling& sampling = *row.sequence->sampling;
    const auto sampled = sampler.sample(logits.first(sampling.vocab), *sampling.params, sampling.seed,
                                        static_cast<uint64_t>(sequence.num_tokens()), sampling.processor,
                                        sequence.tokens, static_cast<size_t>(sequence.prompt_len));
    if (!sampled) {
      row.status = sampled.error();
      return;
    }
    row.sampled = *sampled;
    const auto top = sampling.params->logprobs;
    if (top && !scan_logits(logits).valid)  // checks padding entries too: they count in log probabilities
      row.status = Error{ErrorCode::internal, kBadLogits};
    else if (top)
      row.logprobs = token_logprobs(logits, *sampled, *top);
  } else if (!scan_logits(logits).valid) {
    row.status = Error{ErrorCode::internal, kBadLogits};
  } else if (row.position + 1 < sequence.prompt_len) {
    row.logprobs = token_logprobs(logits, sequence.tokens[static_cast<size_t>(row.position) + 1],
                                  row.sequence->prompt_logprobs);
  }
}

/// The result of `sequence`, whose rows begin at `first_row`.
SequenceResult CpuExecutor::collect_result(const SequenceStep& sequence, size_t first_row) {
  SequenceResult result;
  const int prompt_len = sequence.chunk.sequence->prompt_len;
  const auto end = first_row + static_cast<size_t>(sequence.chunk.logit_rows());
  for (size_t index = first_row; index < end; ++index) {
    Row& row = rows_[index];
    if (!row.status) {
      const Error& error = row.status.error();
      result.status = Error{error.code, "after token " + std::to_string(row.position) + " " + error.message};
      return result;
    }
    if (row.position + 1 < prompt_len) {
      result.prompt_logprobs.push_back(*std::move(row.logprobs));
      continue;
    }
    if (row.position + 1 == prompt_len && sequence.last_logits) {
      const auto logits = runner_.logits(static_cast<int>(index));
      result.last_logits.assign(logits.begin(), logits.end());
    }
    if (!row.sampled) continue;
    result.tokens.push_back(*row.sampled);
    if (row.logprobs) result.logprobs.push_back(*std::move(row.logprobs));
  }
  return result;
}

}  // namespace fovea
