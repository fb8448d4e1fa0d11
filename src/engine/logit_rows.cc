#include "engine/logit_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/philox.h"
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

double rate_after(std::span<const double> rates, size_t i) {
  const double before = i == 0 ? 1 : rates[i - 1];
  return before > 0 ? rates[i] / before : 0;
}

LogitRows::LogitRows(std::span<const SequenceStep> sequences) : sequences_(sequences) {
  for (const SequenceStep& sequence : sequences) {
    const ScheduledChunk& chunk = sequence.chunk;
    first_.push_back(static_cast<int>(rows_.size()));
    for (int position = chunk.logits_first; position < chunk.end(); ++position) {
      Row row;
      row.sequence = &sequence;
      row.position = position;
      row.samples = sequence.sampling && position + 1 >= chunk.known_end();
      row.drafts = std::max(0, position + 1 - chunk.known_end());
      if (row.drafts == 0) groups_.push_back(static_cast<int>(rows_.size()));
      rows_.push_back(std::move(row));
    }
  }
}

const int32_t* LogitRows::Row::draft() const {
  const ScheduledChunk& chunk = sequence->chunk;
  if (!samples || drafts >= chunk.drafts) return nullptr;
  if (made) return *made >= 0 ? &*made : nullptr;
  return &chunk.sequence->drafts[static_cast<size_t>(drafts)];
}

void LogitRows::move(size_t sequence, int count) {
  const size_t end = sequence + 1 < first_.size() ? static_cast<size_t>(first_[sequence + 1]) : rows_.size();
  for (auto row = static_cast<size_t>(first_[sequence]); row < end; ++row)
    rows_[row].position += count;
}

std::optional<int> LogitRows::Row::top() const {
  if (samples) return sequence->sampling->params->logprobs;
  return scores() ? std::optional(sequence->prompt_logprobs) : std::nullopt;
}

/// False: the rows of the group that follow are left out.
bool LogitRows::evaluate_row(int index, std::span<float> logits, Sampler& sampler, Ahead& ahead) {
  Row& row = rows_[static_cast<size_t>(index)];
  if (row.samples) {
    sample(row, logits, sampler, ahead);
    return row.status.ok() && row.accepts() && advance(row, ahead);
  }
  if (!scan_logits(logits).valid)
    row.status = bad_logits();
  else if (row.scores())
    row.logprobs = token_logprobs(logits, row.next_prompt_token(), row.sequence->prompt_logprobs);
  return false;
}

void LogitRows::sample(Row& row, std::span<float> logits, Sampler& sampler, const Ahead& ahead) const {
  const Sequence& sequence = *row.sequence->chunk.sequence;
  const SequenceSampling& sampling = *row.sequence->sampling;
  const std::vector<int32_t>& tokens = row.drafts == 0 ? sequence.tokens : ahead.tokens;
  const auto sampled = sampler.sample(logits.first(sampling.vocab), *sampling.params, sampling.seed,
                                      static_cast<uint64_t>(row.position) + 1, sampling.processor, tokens,
                                      static_cast<size_t>(sequence.prompt_len), sampling.constraint);
  if (!sampled) {
    row.status = sampled.error();
    return;
  }
  row.sampled = *sampled;
  roll_dice(row);
  const auto top = row.top();
  if (top && !scan_logits(logits).valid)  // checks padding entries too: they count in log probabilities
    row.status = bad_logits();
  else if (top)
    row.logprobs = token_logprobs(logits, *row.sampled, *top);
}

/// The row's token is appended to what the next row of the group sees. False: nothing may follow it.
bool LogitRows::advance(Row& row, Ahead& ahead) {
  TokenConstraint* constraint = row.sequence->sampling->constraint;
  if (constraint != nullptr && !constraint->advance(*row.sampled)) return false;
  ++ahead.advanced;
  if (row.drafts == 0) ahead.tokens = row.sequence->chunk.sequence->tokens;
  ahead.tokens.push_back(*row.sampled);
  return true;
}

void LogitRows::roll_back(int index, const Ahead& ahead) {
  const auto& sampling = rows_[static_cast<size_t>(index)].sequence->sampling;
  if (ahead.advanced > 0 && sampling->constraint != nullptr) sampling->constraint->roll_back(ahead.advanced);
}

/// With synthetic rates, dice accept the draft in place of what was sampled.
void LogitRows::roll_dice(Row& row) {
  const std::span<const double> rates = row.sequence->sampling->synthetic_rates;
  const auto i = static_cast<size_t>(row.drafts);
  if (row.draft() == nullptr || i >= rates.size()) return;
  const double rate = rate_after(rates, i);
  // The bits that no draw uses: of the seed's complement.
  row.rejects = philox_uniform(~row.sequence->sampling->seed, static_cast<uint64_t>(row.position)) >= rate;
  if (!row.rejects) row.sampled = *row.draft();
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
  if (row.samples) {
    row.sampled = result.token;
    roll_dice(row);
  }
  const auto top = row.top();
  if (!top) return;
  if (in_result(*top))
    row.logprobs = logprobs_of(result);
  else if (!scan_logits(logits).valid)
    row.status = bad_logits();
  else
    row.logprobs = token_logprobs(logits, row.samples ? *row.sampled : row.next_prompt_token(), *top);
}

SequenceResult LogitRows::collect(size_t at, int& last_prompt_row) {
  const SequenceStep& sequence = sequences_[at];
  SequenceResult result;
  const int first = first_[at], end = first + sequence.chunk.logit_rows();
  result.verified = 0;
  for (int index = first; index < end; ++index)
    *result.verified += rows_[static_cast<size_t>(index)].draft() != nullptr;
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
    if (!row.accepts()) break;
  }
  return result;
}

}  // namespace fovea
