#pragma once
// Recordings as a GPU would give them.
#include <string_view>

#include "profile/recorder.h"

namespace fovea::profile {

/// Two layers of three operations, and the copies of each step on another stream.
class FakeGpu {
 public:
  static constexpr uint32_t kMain = 7, kCopies = 9;

  /// Without a graph: each kernel has its operation.
  void eager(uint64_t number, int rows, int64_t begin) {
    start(number, rows, false);
    run(begin, [&](const char* name, int layer, int group) {
      return recorder_.add(OpRecord{name, layer, group, {1000, 0}});
    });
  }

  /// By a graph; kernels are `shift` other ones.
  void replay(uint64_t number, int rows, int64_t begin, std::string_view last_kernel = "down_kernel") {
    start(number, rows, true);
    last_kernel_ = last_kernel;
    const uint64_t graph = recorder_.add(OpRecord{kReplay});
    run(begin, [&](const char*, int, int) { return graph; });
    last_kernel_ = "down_kernel";
  }

  void prefill(uint64_t number, int rows, int64_t begin) {
    StepInfo step{number, 0, rows, rows, false, rows, {}};
    recorder_.add(step);
    kernel("qkv_kernel", recorder_.add(OpRecord{"qkv", 0, -1, {500, 4000}}), begin, begin + 2000);
  }

  Recorder& recorder() { return recorder_; }

 private:
  void start(uint64_t number, int rows, bool replay) {
    StepInfo step;
    step.number = number;
    step.decode_rows = step.rows = rows;
    step.replay = replay;
    step.kv_tokens = 100;
    step.attention = {{3000, 0}};
    recorder_.add(step);
  }

  void kernel(std::string_view name, uint64_t op, int64_t begin, int64_t end, uint32_t stream = kMain) {
    DeviceRecord record;
    record.name = recorder_.name(name);
    record.op = op;
    record.begin = begin;
    record.end = end;
    record.stream = stream;
    if (stream == kCopies) record.kind = DeviceRecord::Kind::copy;
    recorder_.add(record);
  }

  /// qkv 1000 ns, attention 500 ns of which 100 before qkv has ended, a gap of 50, down 300: twice.
  template <class F>
  void run(int64_t begin, const F& op) {
    int64_t t = begin;
    for (int layer = 0; layer < 2; ++layer) {
      kernel("qkv_kernel", op("qkv", layer, -1), t, t + 1000);
      kernel("attention_kernel", op("attention", layer, 0), t + 900, t + 1400);
      kernel(layer == 1 ? last_kernel_ : "down_kernel", op("down", layer, -1), t + 1450, t + 1750);
      t += 1750;
    }
    kernel("copy to the host", recorder_.add(OpRecord{"copy_results"}), t, t + 40, kCopies);
  }

  Recorder recorder_;
  std::string_view last_kernel_ = "down_kernel";
};

}  // namespace fovea::profile
