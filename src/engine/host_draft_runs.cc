#include "engine/host_draft_runs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fovea {

HostDraftRuns::HostDraftRuns(ModelRunner& runner, Stream& stream, Options options)
    : runner_(runner),
      stream_(stream),
      options_(std::move(options)),
      kept_(static_cast<size_t>(options_.kept_rows) * static_cast<size_t>(options_.width)),
      drafts_(static_cast<size_t>(options_.slots), -1) {}

void HostDraftRuns::begin(std::span<const std::span<const float>> states) {
  step_.assign(states.begin(), states.end());
}

Status HostDraftRuns::keep(std::span<const int32_t> rows, int first) {
  const auto part = static_cast<size_t>(options_.width) / step_.size();
  FOVEA_CHECK(first >= 0 && first + static_cast<int>(rows.size()) <= options_.kept_rows);
  auto to = kept_.begin() + static_cast<std::ptrdiff_t>(first) * options_.width;
  for (const int32_t row : rows)
    for (const std::span<const float> state : step_)
      to = std::ranges::copy(state.subspan(static_cast<size_t>(row) * part, part), to).out;
  return {};
}

/// Fills states_ with those of the run's rows.
void HostDraftRuns::gather(const Run& run) {
  states_.clear();
  const auto add = [&](std::span<const float> from, int32_t row, size_t width) {
    const auto at = from.subspan(static_cast<size_t>(row) * width, width);
    states_.insert(states_.end(), at.begin(), at.end());
  };
  const auto width = static_cast<size_t>(options_.width);
  for (const int32_t row : run.states) {
    if (run.source == States::kept)
      add(kept_, row, width);
    else if (run.source == States::own)
      add(runner_.hidden(0), row, static_cast<size_t>(options_.own_width));
    else
      for (const std::span<const float> state : step_)
        add(state, row, width / step_.size());
  }
}

Status HostDraftRuns::run(const Run& run) {
  for (size_t row = 0; row < run.from.size(); ++row)
    if (run.from[row] >= 0) run.batch.set_token(row, drafts_[static_cast<size_t>(run.from[row])]);
  if (run.source != States::none) {
    gather(run);
    const int64_t width = run.source == States::own ? options_.own_width : options_.width;
    runner_.set_states(host_tensor(states_.data(), static_cast<int64_t>(run.states.size()), width));
  }
  FOVEA_RETURN_IF_ERROR(runner_.run(run.batch, stream_));
  for (size_t row = 0; row < run.slots.size(); ++row)
    if (run.slots[row] >= 0)
      drafts_[static_cast<size_t>(run.slots[row])] = best(runner_.logits(static_cast<int>(row)));
  return {};
}

/// The best of the tokens that the model may sample.
int32_t HostDraftRuns::best(std::span<const float> logits) const {
  int32_t best = -1;
  float best_logit = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t token = options_.tokens.empty() ? static_cast<int32_t>(i) : options_.tokens[i];
    if (token < options_.sampled_vocab && (best < 0 || logits[i] > best_logit)) {
      best = token;
      best_logit = logits[i];
    }
  }
  FOVEA_CHECK(best >= 0);
  return best;
}

Result<std::span<const int32_t>> HostDraftRuns::drafts(int count) {
  return std::span<const int32_t>(drafts_).first(static_cast<size_t>(count));
}

}  // namespace fovea
