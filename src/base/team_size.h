#pragma once
// Adapts the number of participating pool threads by trial when other processes compete for the CPUs.
//
// A thread preempted in the middle of a task delays all others for a time slice (about 3 ms), far longer than
// a step of a small model; with long tasks the same threads still pay off. This depends on the tasks and on
// the other processes, so the rate of work is measured with different numbers of threads.
#include <cstddef>
#include <vector>

namespace fovea {

class TeamSize {
 public:
  /// `threads` >= 1.
  explicit TeamSize(int threads);

  /// Current number of threads per task: all, as long as none is late.
  int threads() const { return levels_[level_]; }

  /// No trial is running and tasks need not be timed.
  bool quiet() const { return phase_ == Phase::quiet; }
  /// While quiet: reports that at `now`, in seconds, the caller had waited for a thread much longer than a
  /// task takes, so that thread had lost its CPU.
  void late(double now);
  /// While not quiet: a shared task has ended. `work`: its estimated ns on one core; `seconds`: its duration;
  /// `late`: as above.
  void add(double work, double seconds, bool late);

 private:
  enum class Phase { quiet, settled, trial };
  struct Window {
    double work = 0, seconds = 0;
    bool late = false;
    double rate() const { return work / seconds; }
  };

  void settle(size_t level, double hold);
  void begin_trials();
  void try_next();
  void end_trial();

  std::vector<int> levels_;  // thread counts, descending to 1
  size_t level_ = 0;
  Phase phase_ = Phase::quiet;
  Window window_;          // since the level was set
  double last_late_ = -1;  // while quiet
  double hold_ = 0;        // how long to keep the level before trying its neighbours again
  std::vector<size_t> candidates_;
  size_t home_ = 0, best_ = 0;  // of the current trials
  double home_rate_ = 0, best_rate_ = 0;
};

}  // namespace fovea
