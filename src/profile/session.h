#pragma once
// A running profile. There is one at a time.
#include <memory>
#include <string>

#include "fovea/result.h"
#include "profile/device_tracer.h"
#include "profile/records.h"

namespace fovea::profile {

class Session {
 public:
  struct Options {
    bool ranges = true;  ///< of host threads, and counters
    bool device =
        false;          ///< times of a GPU: by CUPTI, otherwise by events, for which steps run without graphs
    bool cupti = true;  ///< false: events in any case
  };

  /// Begins at once, except device times. Errors: another session runs; device times of a build without
  /// CUDA.
  static Result<std::unique_ptr<Session>> start(const Options& options);
  ~Session();

  DeviceTimes device_times() const;
  /// Why CUPTI is not used; "" if it is.
  const std::string& without_cupti() const { return without_cupti_; }

  Status record_device(bool on);
  /// Steps run without graphs although device times don't require it.
  void run_eagerly(bool on);

  /// Copies what was recorded; device records of work that is done.
  Recording recording();
  void clear();

 private:
  explicit Session(const Options& options) : options_(options) {}

  Options options_;
  std::string without_cupti_;
  std::unique_ptr<DeviceTracer> tracer_;
};

}  // namespace fovea::profile
