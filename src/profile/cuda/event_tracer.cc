// Device times by events around each operation.
#include <deque>
#include <optional>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "profile/device_tracer.h"

namespace fovea::profile {
namespace {

/// Host times count from an event that is waited for before the first operation; after it, the device's own
/// clock counts.
class EventTracer final : public DeviceTracer {
 public:
  explicit EventTracer(Recorder& recorder) : recorder_(recorder) {}

  DeviceTimes kind() const override { return DeviceTimes::events; }

  Status record(bool on) override {
    on_ = on;
    return {};
  }

  void begin_op(Stream& stream, uint64_t op) override {
    if (depth_++ > 0 || !on_ || open_.size() >= kMostOpen) return;  // an inner one is part of its outer one
    if (!base_ && !set_base(stream.cuda())) return;
    auto begin = event(stream.cuda()), end = event(stream.cuda());
    if (!begin || !end || !begin->record(stream.cuda())) return;
    current_.emplace(Open{op, std::move(*begin), std::move(*end)});
  }

  void end_op(Stream& stream) override {
    if (--depth_ > 0 || !current_) return;
    if (!current_->end.record(stream.cuda())) return current_.reset();
    open_.push_back(std::move(*current_));
    current_.reset();
  }

  void step_done() override { flush(); }

  void flush() override {
    while (!open_.empty()) {
      Open& op = open_.front();
      const auto done = op.end.done();
      if (!done || !*done) return;
      const auto begin = op.begin.milliseconds_since(*base_), taken = op.end.milliseconds_since(op.begin);
      if (begin && taken) add(op.op, *begin, *taken);
      // A near base: milliseconds in a float of a far one would be rounded.
      if (begin && *begin > kFarMilliseconds) {
        base_time_ += static_cast<int64_t>(double{*begin} * 1e6);
        std::swap(*base_, op.begin);
      }
      free_.push_back(std::move(op.begin));
      free_.push_back(std::move(op.end));
      open_.pop_front();
    }
  }

 private:
  static constexpr size_t kMostOpen = 1 << 16;
  static constexpr float kFarMilliseconds = 8;

  struct Open {
    uint64_t op;
    CudaEvent begin, end;
  };

  bool set_base(CudaStream& stream) {
    auto base = event(stream);
    if (!base || !base->record(stream) || !base->synchronize()) return false;
    base_ = std::move(base);
    base_time_ = now();
    return true;
  }

  std::optional<CudaEvent> event(const CudaStream& stream) {
    if (!free_.empty()) {
      CudaEvent out = std::move(free_.back());
      free_.pop_back();
      return out;
    }
    auto made = CudaEvent::create(stream.device(), CudaEvent::Timing::on);
    return made ? std::optional(*std::move(made)) : std::nullopt;
  }

  void add(uint64_t op, double begin_ms, double taken_ms) {
    DeviceRecord record;
    record.kind = DeviceRecord::Kind::op;
    record.op = op;
    record.begin = base_time_ + static_cast<int64_t>(begin_ms * 1e6);
    record.end = record.begin + static_cast<int64_t>(taken_ms * 1e6);
    recorder_.add(record);
  }

  Recorder& recorder_;
  bool on_ = false;
  int depth_ = 0;  // of operations that are open
  std::optional<Open> current_;
  std::deque<Open> open_;
  std::vector<CudaEvent> free_;
  std::optional<CudaEvent> base_;
  int64_t base_time_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceTracer>> make_event_tracer(Recorder& recorder) {
  return std::unique_ptr<DeviceTracer>(std::make_unique<EventTracer>(recorder));
}

}  // namespace fovea::profile
