#pragma once
// Handles SIGINT, SIGTERM and SIGHUP while there is work to finish cleanly.
#include <csignal>
#include <functional>
#include <thread>

namespace fovea::cli {

/// While alive, a thread waits for these signals; on the first it calls `at_end` with the signal's name and
/// then ends the program as the signal would. Must be created before other threads, so that they inherit the
/// blocked signal mask. Signals that are ignored stay ignored.
class EndSignals {
 public:
  explicit EndSignals(std::function<void(const char* name)> at_end);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;

 private:
  void wait() const;

  std::function<void(const char*)> at_end_;
  sigset_t waited_{}, before_{};
  int signals_ = -1, stop_ = -1;
  std::thread thread_;
};

}  // namespace fovea::cli
