#pragma once
// What the program marks for a profile: ranges of host threads, counters, steps and operations.
#include "device/stream.h"
#include "profile/active.h"
#include "profile/records.h"

namespace fovea::profile {

/// A range of the calling thread, while it exists. `name` is a literal.
class Range {
 public:
  explicit Range(const char* name, int64_t value = -1) {
    if (watched(kRanges | kNvtx)) begin(name, value);
  }
  ~Range() {
    if (name_ != nullptr) end();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  void begin(const char* name, int64_t value);
  void end() const;

  const char* name_ = nullptr;
  int64_t begin_ = 0, value_ = -1;
  bool nvtx_ = false;
};

/// An operation that is queued while it exists; on a CPU stream, one that runs.
class Op {
 public:
  /// `work`: a function that returns OpWork, called if somebody watches. `name` is a literal.
  template <class F>
  Op(Stream& stream, const char* name, int layer, const F& work, int group = -1) {
    if (watched(kRanges | kOps | kNvtx)) begin(stream, {name, layer, group, work(), 0});
  }
  Op(Stream& stream, const char* name) : Op(stream, name, -1, [] { return OpWork(); }) {}
  ~Op() {
    if (stream_ != nullptr) end();
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

 private:
  void begin(Stream& stream, const OpRecord& op);
  void end() const;

  Stream* stream_ = nullptr;
  const char* name_ = nullptr;
  int layer_ = -1;
  int64_t begin_ = 0;
  bool nvtx_ = false, traced_ = false;
};

/// An NVTX range of a model's layer, which ends where the next one begins.
class LayerRange {
 public:
  LayerRange() = default;
  ~LayerRange() { set(-1); }
  LayerRange(const LayerRange&) = delete;
  LayerRange& operator=(const LayerRange&) = delete;
  /// -1 = none.
  void set(int layer) {
    if (open_ || watched(kNvtx)) change(layer);
  }

 private:
  void change(int layer);
  bool open_ = false;
};

/// Names the calling thread in profiles.
void name_thread(const char* name);
/// A value that changes over time.
void count(const char* name, double value);
/// The operations from now on belong to this step.
void begin_step(const StepInfo& step);
/// As Recorder::set_attention(), of the newest step.
void set_attention(std::vector<OpWork> attention);
/// The device has done the oldest step that was not done.
void step_done();

}  // namespace fovea::profile
