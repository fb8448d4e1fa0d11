#include "profile/session.h"

#include <mutex>

#include "profile/active.h"
#include "profile/nvtx.h"
#include "profile/scopes.h"

namespace fovea::profile {
namespace {

/// It stays when a session has ended: other threads may be inside a range.
Recorder& recorder() {
  static auto* const the = new Recorder();
  return *the;
}

std::mutex g_session;  // guards g_running
bool g_running = false;
std::atomic<DeviceTracer*> g_tracer{nullptr};

void watch(unsigned what, bool on) {
  if (on)
    g_watched.fetch_or(what);
  else
    g_watched.fetch_and(~what);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::start(const Options& options) {
  {
    std::lock_guard lock(g_session);
    if (g_running) return Error{ErrorCode::internal, "two profiles at a time; end the first"};
    g_running = true;
  }
  std::unique_ptr<Session> session(new Session(options));
  recorder().clear();
  if (options.device) {
    auto tracer = options.cupti ? make_cupti_tracer(recorder())
                                : Result<std::unique_ptr<DeviceTracer>>(unsupported("events were asked for"));
    if (!tracer) {
      session->without_cupti_ = tracer.error().message;
      tracer = make_event_tracer(recorder());
    }
    if (!tracer) return std::move(tracer).error();
    session->tracer_ = *std::move(tracer);
    g_tracer = session->tracer_.get();
    if (session->device_times() == DeviceTimes::events) watch(kEager, true);
  }
  watch(kOps | (options.ranges ? kRanges : 0u), true);
  return session;
}

Session::~Session() {
  watch(kRanges | kOps | kEager, false);
  g_tracer = nullptr;
  if (tracer_) (void)tracer_->record(false);
  std::lock_guard lock(g_session);
  g_running = false;
}

DeviceTimes Session::device_times() const {
  return tracer_ ? tracer_->kind() : DeviceTimes::none;
}

Status Session::record_device(bool on) {
  return tracer_ ? tracer_->record(on) : Status();
}

void Session::run_eagerly(bool on) {
  watch(kEager, on || device_times() == DeviceTimes::events);
}

Recording Session::recording() {
  if (tracer_) tracer_->flush();
  Recording out = recorder().recording();
  out.device_times = device_times();
  out.without_cupti = without_cupti_;
  return out;
}

void Session::clear() {
  if (tracer_) tracer_->flush();
  recorder().clear();
}

void Range::begin(const char* name, int64_t value) {
  name_ = name;
  value_ = value;
  begin_ = now();
  nvtx_ = watched(kNvtx);
  if (nvtx_) push_nvtx(name, -1);
}

void Range::end() const {
  if (nvtx_) pop_nvtx();
  if (watched(kRanges)) recorder().add(RangeRecord{name_, 0, begin_, now(), value_});
}

void Op::begin(Stream& stream, const OpRecord& op) {
  stream_ = &stream;
  name_ = op.name;
  layer_ = op.layer;
  nvtx_ = watched(kNvtx);
  if (nvtx_) push_nvtx(op.name, op.layer);
  if (watched(kOps) && !stream.on_cpu()) {
    const uint64_t number = recorder().add(op);
    if (DeviceTracer* tracer = g_tracer.load()) {
      tracer->begin_op(stream, number);
      traced_ = true;
    }
  }
  begin_ = now();
}

void Op::end() const {
  if (traced_)
    if (DeviceTracer* tracer = g_tracer.load()) tracer->end_op(*stream_);
  // On a GPU an operation is only queued: its time is among the device records.
  if (watched(kRanges) && stream_->on_cpu()) recorder().add(RangeRecord{name_, 0, begin_, now(), layer_});
  if (nvtx_) pop_nvtx();
}

void LayerRange::change(int layer) {
  if (open_) pop_nvtx();
  open_ = layer >= 0;
  if (open_) push_nvtx("layer", layer);
}

void name_thread(const char* name) {
  recorder().name_thread(name);
}

void count(const char* name, double value) {
  if (watched(kRanges)) recorder().add(CounterRecord{name, now(), value});
}

void begin_step(const StepInfo& step) {
  if (watched(kOps)) recorder().add(step);
}

void set_attention(std::vector<OpWork> attention) {
  if (watched(kOps)) recorder().set_attention(recorder().step(), std::move(attention));
}

void step_done() {
  if (!watched(kOps)) return;
  if (DeviceTracer* tracer = g_tracer.load()) tracer->step_done();
}

}  // namespace fovea::profile
