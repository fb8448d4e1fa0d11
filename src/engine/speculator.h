#pragma once
// Asks the drafter for a step's drafts, as many as the configuration wants, and counts how they fared.
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "engine/token_constraint.h"
#include "fovea/speculative.h"
#include "speculative/draft_table.h"
#include "speculative/drafter.h"

namespace fovea {

class Speculator final : public DraftSource {
 public:
  /// `vocab`: ids of synthetic drafts are below. `drafter`: null = the executor makes drafts
  /// (Executor::drafts_there()).
  Speculator(SpeculativeConfig config, std::unique_ptr<Drafter> drafter, int vocab);

  /// A sequence's constraint, or null; a draft that it refuses is dropped with those after it.
  using ConstraintOf = std::function<TokenConstraint*(const Sequence&)>;
  void set_constraint_of(ConstraintOf constraint_of) { constraint_of_ = std::move(constraint_of); }

  /// Whether the next step may have drafts for these sequences, when it is known which token follows each.
  /// Otherwise the step need not wait for them.
  bool plans_drafts(std::span<const Sequence* const> sequences);
  void propose(std::span<const DraftRoom> rooms, int decodes) override;
  void preempts(const Sequence& sequence) override {
    const Sequence* const one = &sequence;
    settle({&one, 1});
  }
  /// The step that propose() was asked about, if it was, has been made. Returns the drafts that each sequence
  /// was to have; 0 = no sequence had any.
  DraftTable::Choice end_plan();
  /// From now on the number of drafts follows what steps of as many sequences took: for a device whose steps
  /// are alike. Not with rules by batch size.
  void measure() { measures_ = config_.adaptive && config_.by_batch.empty(); }
  /// A step of `decodes` sequences, and of no prompts, with the drafts of end_plan() took `seconds` and gave
  /// `tokens`.
  void took(int decodes, DraftTable::Choice drafts, double seconds, int tokens);

  /// A step's rows, for drafters that read the model's hidden states.
  void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) {
    if (drafter_) drafter_->observe(rows, states);
  }
  /// Drafter::settle()
  void settle(std::span<const Sequence* const> sequences);
  /// The sequence has ended.
  void end(const Sequence& sequence);
  /// A step has verified drafts.
  void count(const Sequence& sequence, int verified, int accepted);

  const SpeculativeConfig& config() const { return config_; }
  const SpeculativeCounts& counts() const { return counts_; }

 private:
  DraftTable::Choice choose(int decodes);
  DraftTable::Choice planned(int decodes);
  int tokens_for(const Sequence& sequence, int most) const;
  void ask_there(std::span<const DraftRoom> rooms, int most);
  void keep_one_job();
  void fill(DraftJob& job) const;
  void keep_allowed(const Sequence& sequence, std::vector<int32_t>& drafts) const;

  SpeculativeConfig config_;
  std::unique_ptr<Drafter> drafter_;
  uint64_t vocab_;
  ConstraintOf constraint_of_;
  std::vector<DraftJob> jobs_;
  std::vector<Sequence*> drafted_;                 // of jobs_
  std::unordered_map<uint64_t, double> accepted_;  // by sequence: drafts accepted in a step, lately
  SpeculativeCounts counts_;
  bool measures_ = false;
  DraftTable table_;
  std::optional<DraftTable::Choice> planned_;  // of the next step
  bool proposed_ = false;                      // the next step has some
  size_t plans_ = 0;                           // so far
};

/// The drafter of a configuration that needs no model. Null for the others.
std::unique_ptr<Drafter> make_drafter(const SpeculativeConfig& config);

}  // namespace fovea
