#include "engine/logit_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/logprobs.h"

namespace fovea {
namespace {

Error bad_logits() {
  return {ErrorCode::internal, kBadLogits};
}

/// The device's sampler reports at most kMaxTop tokens; all others come from the logits.
bool in_result(int top) {
  return 0 <= top && top <= cuda::kMaxTop;
}

TokenLogprobs logprobs_of(const cuda::SampleResult& result) {
  TokenLogprobs out;
  out.token = {result.token, result.logprob, result.rank};
  for (int i = 0; i < result.num_top; ++i)
    out.top.push_back({result.top_ids[i], result.top_logprobs[i], i + 1});
  return out;
}

}  // namespace

LogitRows::LogitRows(std::span<const SequenceStep> sequences) : sequences_(sequences) {
  for (const SequenceStep& sequence : sequences) {
    const ScheduledChunk& chunk = sequence.chunk;
    first_.push_back(static_cast<int>(rows_.size()));
    for (int position = chunk.logits_first; position < chunk.end(); ++position)
      rows_.push_back({&sequence, position, sequence.sampling && position + 1 == chunk.end(), {}, {}, {}});
  }
}

std::optional<int> LogitRows::Row::top() const {
  if (samples) return sequence->sampling->params->logprobs;
  return scores() ? std::optional(sequence->prompt_logprobs) : std::nullopt;
}

void LogitRows::evaluate(int index, std::span<float> logits, Sampler& sampler) {
  Row& row = rows_[static_cast<size_t>(index)];
  const Sequence& sequence = *row.sequence->chunk.sequence;
  if (row.samples) {
    const SequenceSampling& sampling = *row.sequence->sampling;
    const auto sampled =
        sampler.sample(logits.first(sampling.vocab), *sampling.params, sampling.seed,
                       static_cast<uint64_t>(row.position) + 1, sampling.processor, sequence.tokens,
                       static_cast<size_t>(sequence.prompt_len), sampling.constraint);
    if (!sampled) {
      row.status = sampled.error();
      return;
    }
    row.sampled = *sampled;
    const auto top = row.top();
    if (top && !scan_logits(logits).valid)  // checks padding entries too: they count in log probabilities
      row.status = bad_logits();
    else if (top)
      row.logprobs = token_logprobs(logits, *sampled, *top);
  } else if (!scan_logits(logits).valid) {
    row.status = bad_logits();
  } else if (row.scores()) {
    row.logprobs = token_logprobs(logits, row.next_prompt_token(), row.sequence->prompt_logprobs);
  }
}

cuda::SampleRow LogitRows::sample_row(int index, bool on_host) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  cuda::SampleRow out;
  out.token = cuda::kCheckOnly;
  if (row.samples && !on_host) {
    const SequenceSampling& sampling = *row.sequence->sampling;
    out.token = cuda::kDrawToken;
    out.temperature = sampling.params->temperature;
    out.top_p = sampling.params->top_p;
    out.min_p = sampling.params->min_p;
    out.top_k = sampling.params->top_k;
    out.seed = sampling.seed;
    out.position = static_cast<uint64_t>(row.position) + 1;
  }
  const auto top = row.top();
  if (!top || on_host || !in_result(*top)) return out;
  if (row.scores()) out.token = row.next_prompt_token();
  out.top = *top;
  return out;
}

bool LogitRows::needs_logits(int index, bool on_host) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  const auto top = row.top();
  return on_host || (top && !in_result(*top)) ||
         (row.sequence->last_logits && row.position + 1 == row.prompt_len());
}

void LogitRows::take(int index, const cuda::SampleResult& result, std::span<float> logits) {
  Row& row = rows_[static_cast<size_t>(index)];
  if (result.status == cuda::SampleStatus::nothing_left)
    row.status = invalid(kNothingLeft);
  else if (result.status != cuda::SampleStatus::ok)
    row.status = bad_logits();
  if (!row.status) return;
  if (row.samples) row.sampled = result.token;
  const auto top = row.top();
  if (!top) return;
  if (in_result(*top))
    row.logprobs = logprobs_of(result);
  else if (!scan_logits(logits).valid)
    row.status = bad_logits();
  else
    row.logprobs = token_logprobs(logits, row.samples ? result.token : row.next_prompt_token(), *top);
}

SequenceResult LogitRows::collect(size_t at, int& last_prompt_row) {
  const SequenceStep& sequence = sequences_[at];
  SequenceResult result;
  const int first = first_[at], end = first + sequence.chunk.logit_rows();
  for (int index = first; index < end; ++index) {
    Row& row = rows_[static_cast<size_t>(index)];
    if (!row.status) {
      const Error& error = row.status.error();
      result.status = Error{error.code, "after token " + std::to_string(row.position) + " " + error.message};
      return result;
    }
    if (row.position + 1 < row.prompt_len()) {
      result.prompt_logprobs.push_back(*std::move(row.logprobs));
      continue;
    }
    if (row.position + 1 == row.prompt_len() && sequence.last_logits) last_prompt_row = index;
    if (!row.sampled) continue;
    result.tokens.push_back(*row.sampled);
    if (row.logprobs) result.logprobs.push_back(*std::move(row.logprobs));
  }
  return result;
}

}  // namespace fovea
