#pragma once
// How many of a pool's threads take part, found by trial while other processes want the same CPUs.
//
// A thread that loses its CPU in the middle of a task holds up all others for a time slice (about 3 ms), far
// longer than a step of a small model takes; with long tasks the same threads are still worth having. Which
// it is depends on the tasks and on the neighbours, so it is measured: the rate of work with one number of
// threads beside another.
#include <cstddef>
#include <vector>

namespace fovea {

class TeamSize {
 public:
  /// `threads` >= 1.
  explicit TeamSize(int threads);

  /// Threads that a task is shared among now: all, as long as none is late.
  int threads() const { return levels_[level_]; }

  /// Nothing is tried and no task needs its time taken.
  bool quiet() const { return phase_ == Phase::quiet; }
  /// While quiet: at `now`, in seconds, the caller had waited for a thread much longer than a task takes, so
  /// that thread had no CPU.
  void late(double now);
  /// While not quiet: a shared task has ended. `work`: its estimated ns on one core; `seconds`: what it took;
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
  Window window_;          // since the level was taken
  double last_late_ = -1;  // while quiet
  double hold_ = 0;        // how long to stay before the neighbours are tried again
  std::vector<size_t> candidates_;
  size_t home_ = 0, best_ = 0;  // of the trials that run
  double home_rate_ = 0, best_rate_ = 0;
};

}  // namespace fovea
