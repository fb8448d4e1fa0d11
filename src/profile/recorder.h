#pragma once
// Collects records from all threads in bounded memory: of each kind, the newest are kept.
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "profile/newest.h"
#include "profile/records.h"

namespace fovea::profile {

/// Nanoseconds of the steady clock.
int64_t now();

/// Thread-safe.
class Recorder {
 public:
  /// The most records of each kind; about 160 bytes of memory for each of the largest number.
  struct Limits {
    size_t ranges = 1 << 20, counters = 1 << 18, device = 1 << 20, ops = 1 << 19, steps = 1 << 16;
  };
  static constexpr size_t kMostNames = 1 << 16;  ///< of kernels; others are "..."

  Recorder() : Recorder(Limits()) {}
  explicit Recorder(const Limits& limits);

  /// A range of the calling thread.
  void add(RangeRecord range);
  void add(const CounterRecord& counter);
  void add(const DeviceRecord& record);
  /// The number of the operation, from 1 on.
  uint64_t add(const OpRecord& op);
  void add(const StepInfo& step);
  /// Changes the newest step, if it is `number`.
  void set_attention(uint64_t number, std::vector<OpWork> attention);
  /// Device records with this correlation are of operation `op`.
  void correlate(uint32_t correlation, uint64_t op);

  uint32_t name(std::string_view text);
  /// Names the calling thread.
  void name_thread(std::string_view text);
  /// The number of the newest step; 0 = none yet.
  uint64_t step() const;

  /// A copy of what is kept, device records with their operations.
  Recording recording() const;
  /// Forgets everything but names.
  void clear();

 private:
  struct Correlation {
    uint32_t correlation;
    uint64_t op;
  };
  template <class T, class V>
  void keep(T& list, V&& value);
  void report_full();
  uint32_t thread_number();

  mutable std::mutex mutex_;
  int64_t start_;
  bool full_ = false;
  Newest<RangeRecord> ranges_;
  Newest<CounterRecord> counters_;
  Newest<DeviceRecord> device_;
  Newest<OpRecord> ops_;
  Newest<StepInfo> steps_;
  Newest<Correlation> correlations_;
  uint64_t first_op_ = 1;
  std::vector<std::string> names_, threads_;
  std::unordered_map<std::string, uint32_t> name_numbers_;
  std::unordered_map<std::thread::id, uint32_t> thread_numbers_;
};

}  // namespace fovea::profile
