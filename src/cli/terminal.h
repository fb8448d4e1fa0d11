#pragma once
// Terminal output and input: the selection, rates, a progress bar for long work, and Ctrl-C.
#include <chrono>
#include <cstdint>
#include <string>

#include "fovea/engine.h"

namespace fovea::cli {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// 1234567 -> "1.23 M"; for bytes, rates and counts.
std::string human(double value);

/// "prefill: ..." and "decode: ..." lines, the page size and the KV capacity.
std::string describe_start(const EngineInfo& info);

/// A bar on standard error, redrawn at most ten times a second and only on a terminal.
class Progress {
 public:
  /// `total` 0 = unknown: a count instead of the bar. `before`: already done, excluded from the rate.
  Progress(std::string what, int64_t total, int64_t before = 0);
  ~Progress();
  void update(int64_t done, const std::string& note = {});
  void clear();  ///< call before printing other lines

 private:
  std::string what_;
  int64_t total_, before_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, last_;
};

/// While alive, Ctrl-C sets a flag instead of ending the program.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  bool take();  ///< whether Ctrl-C was pressed since the last call
};

}  // namespace fovea::cli
