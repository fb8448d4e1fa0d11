#pragma once
// SIGINT, SIGTERM and SIGHUP while there is something to bring to an end.
#include <csignal>
#include <functional>
#include <thread>

namespace fovea::cli {

/// While alive, a thread waits for these signals; the first one calls `at_end` with the signal's name there
/// and then ends the program as the signal does. Made before other threads, which inherit that the signals
/// are not theirs. One that is ignored stays ignored.
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
