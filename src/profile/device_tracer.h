#pragma once
// Takes the times of what runs on a GPU.
#include <cstdint>
#include <memory>

#include "device/stream.h"
#include "fovea/result.h"
#include "profile/recorder.h"

namespace fovea::profile {

/// Operations are queued by one thread at a time, each between begin_op() and end_op().
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  virtual DeviceTimes kind() const = 0;
  /// Recording is off at first.
  virtual Status record(bool on) = 0;
  virtual void begin_op(Stream& stream, uint64_t op) = 0;
  virtual void end_op(Stream& stream) = 0;
  /// A step that was queued is done.
  virtual void step_done() {}
  /// Delivers all records of work that is done.
  virtual void flush() = 0;
};

/// By CUPTI's activity records: every kernel and copy, those of graphs too. Call it before the CUDA context
/// is created where that is possible. Errors: the build or the machine has no CUPTI.
Result<std::unique_ptr<DeviceTracer>> make_cupti_tracer(Recorder& recorder);

/// By events around each operation: for steps that run without graphs. Errors: the build has no CUDA.
Result<std::unique_ptr<DeviceTracer>> make_event_tracer(Recorder& recorder);

}  // namespace fovea::profile
