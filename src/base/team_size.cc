#include "base/team_size.h"

#include <algorithm>

namespace fovea {
namespace {

// Seconds of task time, not wall time: an idle server runs no trials.
constexpr double kTwiceLate =
    0.05;  // a single late thread is chance (a hypervisor, for example), two this close are not
constexpr double kTrial = 0.03;       // ten time slices
constexpr double kHopeless = 0.004;   // a trial at less than half the rate ends here, after one lost slice
constexpr double kFirstLook = 0.012;  // measures the current rate before the first trial
constexpr double kFirstHold = 0.06;
constexpr double kLongestHold = 0.96;  // 32 trials: makes the cost of a bad one negligible
constexpr double kGain = 1.1;          // trials are noisy; a smaller gain does not justify a change
constexpr double kNoLoss = 0.97;       // an additional thread that is not late is kept: it may be one of 64

}  // namespace

TeamSize::TeamSize(int threads) {
  for (int n : {threads, threads - 1, threads * 3 / 4, threads / 2, threads / 4, threads / 8, 1})
    if (n >= 1 && (levels_.empty() || n < levels_.back())) levels_.push_back(n);
}

void TeamSize::late(double now) {
  if (now - last_late_ < kTwiceLate && levels_.size() > 1) settle(0, kFirstLook);
  last_late_ = now;
}

void TeamSize::add(double work, double seconds, bool late) {
  window_.work += work;
  window_.seconds += seconds;
  window_.late |= late;
  if (phase_ == Phase::trial) {
    const bool hopeless = window_.seconds >= kHopeless && window_.rate() < home_rate_ / 2;
    if (hopeless || window_.seconds >= kTrial) end_trial();
  } else if (window_.seconds >= hold_) {
    if (level_ == 0 && !window_.late) {
      phase_ = Phase::quiet;
      last_late_ = -1;
    } else {
      begin_trials();
    }
  }
}

void TeamSize::settle(size_t level, double hold) {
  phase_ = Phase::settled;
  level_ = level;
  hold_ = hold;
  window_ = {};
}

void TeamSize::begin_trials() {
  home_ = best_ = level_;
  home_rate_ = best_rate_ = window_.rate();
  // Try two steps down, as the first may drop only one thread of 64, which shows no gain; and a single
  // thread, as two may already be enough for one to delay the other.
  candidates_.clear();
  for (const size_t level : {home_ + 1, home_ + 2, levels_.size() - 1})
    if (level < levels_.size() && level > home_ && (candidates_.empty() || level > candidates_.back()))
      candidates_.push_back(level);
  if (home_ > 0) candidates_.push_back(home_ - 1);
  try_next();
}

void TeamSize::try_next() {
  phase_ = Phase::trial;
  level_ = candidates_.back();
  candidates_.pop_back();
  window_ = {};
}

void TeamSize::end_trial() {
  const bool more = level_ < home_ && !window_.late;
  const double least = best_rate_ * (best_ != home_ ? 1 : more ? kNoLoss : kGain);
  if (window_.rate() > least) {
    best_ = level_;
    best_rate_ = window_.rate();
  }
  if (!candidates_.empty()) return try_next();
  settle(best_, best_ == home_ ? std::min(2 * hold_, kLongestHold) : kFirstHold);
}

}  // namespace fovea
