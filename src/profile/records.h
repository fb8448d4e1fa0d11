#pragma once
// What a profile records. Times are nanoseconds of the steady clock.
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::profile {

/// The least that an operation must do; the floor of its time follows from it and from the device's rates.
struct OpWork {
  double bytes = 0;  ///< of device memory: each operand once
  double flops = 0;  ///< of matrix products, 2 for a multiply-add
  OpWork& operator+=(const OpWork& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

/// An operation that was queued. `name` is a literal.
struct OpRecord {
  const char* name = "";
  int layer = -1;  ///< -1 = of no layer
  int group = -1;  ///< of attention: which of StepInfo::attention; -1 = `work` holds
  OpWork work = {};
  uint64_t step = 0;  ///< StepInfo::number; 0 = of none
};

/// The name of the operation that replays a graph: its kernels are those of a step that ran without it.
inline constexpr const char* kReplay = "graph";

/// The number of the run, before the first step, of what a graph of `rows` rows captures: kFirstRun + rows.
inline constexpr uint64_t kFirstRun = uint64_t{1} << 62;

struct StepInfo {
  uint64_t number = 0;  ///< from 1 on
  int decode_rows = 0, prefill_rows = 0;
  int rows = 0;                        ///< that were computed, padding included
  bool replay = false;                 ///< a graph of `rows` rows
  int64_t kv_tokens = 0;               ///< keys of all sequences together
  std::vector<OpWork> attention = {};  ///< of one layer, by group
};

/// What ran on a device.
struct DeviceRecord {
  enum class Kind : uint8_t { kernel, copy, fill, op };  ///< op: a whole operation, timed by events
  Kind kind = Kind::kernel;
  uint32_t name = 0;  ///< in Recording::names
  uint32_t stream = 0;
  int64_t begin = 0, end = 0;
  uint64_t op = 0;  ///< Recording::op(); 0 = unknown
  uint32_t correlation = 0;
};

struct RangeRecord {
  const char* name = "";  ///< a literal
  uint32_t thread = 0;    ///< in Recording::threads
  int64_t begin = 0, end = 0;
  int64_t value = -1;  ///< shown beside the name; -1 = none
};

struct CounterRecord {
  const char* name = "";  ///< a literal
  int64_t time = 0;
  double value = 0;
};

/// How device times were taken.
enum class DeviceTimes : uint8_t { none, cupti, events };

/// All that is left of a profile: the newest of each kind.
struct Recording {
  int64_t start = 0;
  DeviceTimes device_times = DeviceTimes::none;
  std::string without_cupti;  ///< why, with DeviceTimes::events
  std::vector<std::string> names, threads;
  std::vector<RangeRecord> ranges;
  std::vector<CounterRecord> counters;
  std::vector<DeviceRecord> device;  ///< by begin
  std::vector<OpRecord> ops;
  uint64_t first_op = 1;  ///< the number of ops[0]
  std::vector<StepInfo> steps;
  uint64_t dropped = 0;  ///< records that newer ones replaced

  /// null = not recorded.
  const OpRecord* op(uint64_t number) const {
    return number < first_op || number - first_op >= ops.size() ? nullptr : &ops[number - first_op];
  }
};

}  // namespace fovea::profile
