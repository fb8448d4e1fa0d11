#include "engine/speculator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "engine/batch_builder.h"
#include "speculative/ngram_drafter.h"
#include "speculative/suffix_drafter.h"

namespace fovea {

Speculator::Speculator(SpeculativeConfig config, std::unique_ptr<Drafter> drafter, int vocab)
    : config_(std::move(config)),
      drafter_(std::move(drafter)),
      vocab_(static_cast<uint64_t>(vocab)),
      table_(config_.method == DraftMethod::draft_model) {
  FOVEA_CHECK(vocab > 0 && (drafter_ != nullptr || config_.ngram_on_device));
}

/// Drafts of each sequence in a step of `decodes` sequences.
DraftTable::Choice Speculator::choose(int decodes) {
  if (measures_) return table_.choose(decodes, config_.num_tokens);
  for (const SpeculativeConfig::BatchRule& rule : config_.by_batch)
    if (rule.from <= decodes && decodes <= rule.to) return {std::min(rule.num_tokens, config_.num_tokens)};
  return {config_.num_tokens};
}

/// Twice as many as were accepted lately, and one: rows that are rejected cost little, but not nothing. Where
/// almost none is accepted, one now and then finds out when that changes.
int Speculator::tokens_for(const Sequence& sequence, int most) const {
  constexpr double kHopeless = 0.1;
  constexpr size_t kTryEvery = 8;  // steps; all sequences in the same one, so that the others have no drafts
  if (!config_.adaptive || !config_.synthetic_rates.empty()) return most;
  const auto lately = accepted_.find(sequence.id);
  if (lately == accepted_.end()) return most;
  if (lately->second < kHopeless) return plans_ % kTryEvery == 0 ? 1 : 0;
  return std::min(most, 1 + static_cast<int>(std::lround(2 * lately->second)));
}

void Speculator::count(const Sequence& sequence, int verified, int accepted) {
  constexpr double kNewest = 0.25;  // its weight
  counts_.add(verified, accepted);
  if (measures_) table_.count(verified, accepted);
  const auto start = static_cast<double>(config_.num_tokens);
  double& lately = accepted_.try_emplace(sequence.id, start).first->second;
  lately += kNewest * (accepted - lately);
}

void Speculator::took(int decodes, DraftTable::Choice drafts, double seconds, int tokens) {
  if (measures_) table_.add(decodes, drafts, seconds, tokens);
}

DraftTable::Choice Speculator::planned(int decodes) {
  if (!planned_) planned_ = choose(decodes);
  return *planned_;
}

bool Speculator::plans_drafts(std::span<const Sequence* const> sequences) {
  const int most = planned(static_cast<int>(sequences.size())).drafts;
  if (most == 0 || !drafter_) return false;
  bool plans = false;
  for (const Sequence* s : sequences) {  // all: the drafter prepares for them while the device computes
    if (tokens_for(*s, most) == 0) continue;
    const bool may = drafter_->may_draft({s->id, s->tokens, s->prompt_len, s->draft_client});
    plans = plans || may || !config_.synthetic_rates.empty();
  }
  return plans;
}

DraftTable::Choice Speculator::end_plan() {
  ++plans_;
  const auto plan = std::exchange(planned_, std::nullopt);
  return std::exchange(proposed_, false) && plan ? *plan : DraftTable::Choice();
}

void Speculator::propose(std::span<const DraftRoom> rooms, int decodes) {
  const auto [most, alone] = planned(decodes);
  if (most == 0) return;
  if (!drafter_) return ask_there(rooms, most);
  jobs_.clear();
  drafted_.clear();
  for (const DraftRoom& room : rooms) {
    Sequence& sequence = *room.sequence;
    const int wanted = std::min(room.most, tokens_for(sequence, most));
    if (wanted == 0) continue;
    jobs_.push_back({sequence.id,
                     sequence.tokens,
                     sequence.prompt_len,
                     sequence.draft_client,
                     wanted,
                     {},
                     sequence.pages});
    drafted_.push_back(&sequence);
  }
  if (jobs_.empty()) return;
  if (alone) keep_one_job();
  drafter_->propose(jobs_);
  for (size_t i = 0; i < jobs_.size(); ++i) {
    FOVEA_CHECK(jobs_[i].drafts.size() <= static_cast<size_t>(jobs_[i].most));
    if (!config_.synthetic_rates.empty()) fill(jobs_[i]);
    keep_allowed(*drafted_[i], jobs_[i].drafts);
    drafted_[i]->drafts = std::move(jobs_[i].drafts);
    proposed_ = proposed_ || !drafted_[i]->drafts.empty();
  }
}

/// Rows for drafts that the device makes, as many as it may have.
void Speculator::ask_there(std::span<const DraftRoom> rooms, int most) {
  for (const DraftRoom& room : rooms) {
    Sequence& sequence = *room.sequence;
    const int wanted = sequence.drafts_there ? std::min(room.most, tokens_for(sequence, most)) : 0;
    sequence.drafts.assign(static_cast<size_t>(wanted), kFutureToken);
    proposed_ = proposed_ || wanted > 0;
  }
}

/// The one that the drafter has least to compute for.
void Speculator::keep_one_job() {
  const auto behind = [this](const DraftJob& job) { return drafter_->behind(job); };
  const auto least = std::ranges::min_element(jobs_, {}, behind) - jobs_.begin();
  std::swap(jobs_.front(), jobs_[static_cast<size_t>(least)]);
  std::swap(drafted_.front(), drafted_[static_cast<size_t>(least)]);
  jobs_.resize(1);
  drafted_.resize(1);
}

/// Acceptance by dice needs drafts in every step.
void Speculator::fill(DraftJob& job) const {
  while (job.drafts.size() < static_cast<size_t>(job.most))
    job.drafts.push_back(
        static_cast<int32_t>(philox_bits(job.id, job.tokens.size() + job.drafts.size()) % vocab_));
}

void Speculator::keep_allowed(const Sequence& sequence, std::vector<int32_t>& drafts) const {
  TokenConstraint* constraint = constraint_of_ && !drafts.empty() ? constraint_of_(sequence) : nullptr;
  if (constraint == nullptr) return;
  int allowed = 0;
  while (allowed < static_cast<int>(drafts.size()) &&
         constraint->advance(drafts[static_cast<size_t>(allowed)]))
    ++allowed;
  constraint->roll_back(allowed);
  drafts.resize(static_cast<size_t>(allowed));
}

void Speculator::settle(std::span<const Sequence* const> sequences) {
  if (!drafter_) return;
  std::vector<HiddenRows> all;
  for (const Sequence* sequence : sequences) {
    HiddenRows& rows = all.emplace_back();
    rows.id = sequence->id;
    rows.tokens = sequence->tokens;
    rows.pages = sequence->pages;
  }
  drafter_->settle(all);
}

void Speculator::end(const Sequence& sequence) {
  accepted_.erase(sequence.id);
  if (drafter_) drafter_->end(sequence.id, sequence.tokens, sequence.prompt_len, sequence.draft_client);
}

std::unique_ptr<Drafter> make_drafter(const SpeculativeConfig& config) {
  if (config.method == DraftMethod::ngram)
    return std::make_unique<NgramDrafter>(config.prompt_lookup_min, config.prompt_lookup_max);
  if (config.method == DraftMethod::suffix) return std::make_unique<SuffixDrafter>(config);
  return nullptr;
}

}  // namespace fovea
