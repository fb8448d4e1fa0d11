#pragma once
// Where the time of a step went: device records of one step, by operation, beside the floor of each.
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "profile/records.h"

namespace fovea::profile {

/// What the device reaches, as measured.
struct DeviceRates {
  double read_bytes = 0;  ///< of memory, a second
  double flops = 0;       ///< of a large matrix product, a second
  double floor(const OpWork& work) const;
};

/// Something that ran on the device in a step. Times in seconds from the step's begin.
struct StepEvent {
  size_t row = 0;  ///< in StepTable::rows
  int layer = -1;
  double begin = 0, end = 0;
  /// Kernels may start while the one in front runs: a kernel's own time begins where all before it on the
  /// main stream have ended. 0 on another stream.
  double own = 0;
  bool beside = false;  ///< on another stream than the main one
  std::string kernel;
};

struct StepRow {
  std::string op;  ///< of the same kernels; "" = unknown
  std::vector<std::string> kernels;
  int count = 0;       ///< of the operation
  double seconds = 0;  ///< own time
  double spans = 0;    ///< from begin to end of each, overlaps included
  double floor = 0;    ///< seconds
  OpWork work;
};

struct StepTable {
  StepInfo step;
  DeviceTimes times = DeviceTimes::none;
  double seconds = 0;  ///< from the end of the step before to its own; without one, from its first event
  double before = 0;   ///< nothing ran before its first event
  double between = 0;  ///< nothing ran between two of its events
  double floor = 0;    ///< sum over rows
  std::vector<StepRow> rows;  ///< by time
  std::vector<StepEvent> events;
  std::string note;  ///< what could not be attributed; "" = nothing
};

/// Which step a table is of.
struct StepChoice {
  bool decode = true;  ///< only decode rows, as many as `rows`; otherwise the largest prefill
  int rows = 0;
  bool replay = true;  ///< of a decode step: by a graph; false = without
};

/// The operation of each of Recording::device: those of a graph's kernels are the operations of a step of as
/// many rows, with the same kernels, that ran without; without such a step, the replay itself.
std::vector<uint64_t> device_operations(const Recording& recording);

/// The step of median time among those that fit. Kernels of a graph get the operations of a step of as many
/// rows that ran without graph. Error: no step fits.
Result<StepTable> step_table(const Recording& recording, const StepChoice& choice, const DeviceRates& rates);

/// The table as text. `whole`: seconds of such a step without a profile; 0 = unknown.
std::string table_text(const StepTable& table, double whole);
/// As a JSON object.
std::string table_json(const StepTable& table, double whole);

}  // namespace fovea::profile
