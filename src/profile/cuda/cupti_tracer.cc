// Device times by CUPTI's activity records. The library is opened at run time; the headers are optional too.
#include "profile/device_tracer.h"

#if __has_include(<cupti.h>)
#include <cupti.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "device/dynamic_library.h"

namespace fovea::profile {
namespace {

struct Cupti {
  DynamicLibrary library;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  static Result<Cupti> open() {
    FOVEA_TRY(opened, DynamicLibrary::open("CUPTI", {"libcupti.so.13", "libcupti.so.12", "libcupti.so"},
                                           "install CUDA's CUPTI (cuda-cupti), or put its folder into "
                                           "LD_LIBRARY_PATH"));
    Cupti c{std::move(opened)};
    const DynamicLibrary& l = c.library;
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityRegisterCallbacks", c.register_callbacks));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityRegisterTimestampCallback", c.register_timestamp));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityEnable", c.enable));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityDisable", c.disable));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityFlushAll", c.flush_all));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityGetNextRecord", c.next_record));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityPushExternalCorrelationId", c.push));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiActivityPopExternalCorrelationId", c.pop));
    FOVEA_RETURN_IF_ERROR(l.find("cuptiGetResultString", c.result_string));
    return c;
  }
};

// CUPTI's callbacks have no argument of ours. Set once: CUPTI keeps the callbacks until the process ends.
Cupti* g_cupti = nullptr;
std::atomic<Recorder*> g_recorder{nullptr};

constexpr size_t kBufferBytes = 4 << 20, kAlignment = 8;
constexpr auto kExternal = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void take(const CUpti_Activity& activity, Recorder& recorder) {
  DeviceRecord out;
  const auto copy_of = [&](const auto& a) {
    out.begin = static_cast<int64_t>(a.start);
    out.end = static_cast<int64_t>(a.end);
    out.stream = a.streamId;
    out.correlation = a.correlationId;
  };
  // The newest structures: those of older libraries begin alike.
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& a = reinterpret_cast<const CUpti_ActivityKernel10&>(activity);
      copy_of(a);
      out.name = recorder.name(a.name == nullptr ? "kernel" : a.name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& a = reinterpret_cast<const CUpti_ActivityMemcpy6&>(activity);
      copy_of(a);
      out.kind = DeviceRecord::Kind::copy;
      out.name = recorder.name(a.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to the device"
                               : a.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                                               : "copy");
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      copy_of(reinterpret_cast<const CUpti_ActivityMemset4&>(activity));
      out.kind = DeviceRecord::Kind::fill;
      out.name = recorder.name("fill");
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& a = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(activity);
      if (a.externalKind == kExternal) recorder.correlate(a.correlationId, a.externalId);
      return;
    }
    default: return;
  }
  recorder.add(out);
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (Recorder* recorder = g_recorder.load(); recorder != nullptr && valid > 0) {
    CUpti_Activity* record = nullptr;
    while (g_cupti->next_record(buffer, valid, &record) == CUPTI_SUCCESS)
      take(*record, *recorder);
  }
  std::free(buffer);
}

uint64_t CUPTIAPI timestamp() {
  return static_cast<uint64_t>(now());
}

class CuptiTracer final : public DeviceTracer {
 public:
  ~CuptiTracer() override {
    (void)record(false);
    g_recorder = nullptr;
  }

  DeviceTimes kind() const override { return DeviceTimes::cupti; }

  Status record(bool on) override {
    if (on_ == on) return {};
    if (!on) flush();
    on_ = on;
    // Operations are found by the runtime's calls, for which CUPTI tells correlations.
    for (const CUpti_ActivityKind kind :
         {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_MEMCPY,
          CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL}) {
      const CUptiResult code = on ? g_cupti->enable(kind) : g_cupti->disable(kind);
      if (code == CUPTI_SUCCESS || !on) continue;
      const char* text = "";
      g_cupti->result_string(code, &text);
      return unsupported("CUPTI records nothing here: " + std::string(text) +
                         "; another profiler may use it, or this user may not profile");
    }
    return {};
  }

  void begin_op(Stream&, uint64_t op) override {
    pushed_.push_back(on_ && g_cupti->push(kExternal, op) == CUPTI_SUCCESS);
  }
  void end_op(Stream&) override {
    uint64_t last = 0;
    if (pushed_.back()) g_cupti->pop(kExternal, &last);
    pushed_.pop_back();
  }
  void flush() override { g_cupti->flush_all(0); }

 private:
  std::atomic<bool> on_{false};
  std::vector<bool> pushed_;  // of the operations that are open
};

}  // namespace

Result<std::unique_ptr<DeviceTracer>> make_cupti_tracer(Recorder& recorder) {
  if (g_cupti == nullptr) {
    FOVEA_TRY(opened, Cupti::open());
    auto cupti = std::make_unique<Cupti>(std::move(opened));
    if (cupti->register_timestamp(timestamp) != CUPTI_SUCCESS ||
        cupti->register_callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS)
      return unsupported(cupti->library.name() + " does not start; another profiler may use it");
    g_cupti = cupti.release();
  }
  g_recorder = &recorder;
  auto tracer = std::make_unique<CuptiTracer>();
  // Shows here whether it works, while events can still take its place.
  FOVEA_RETURN_IF_ERROR(tracer->record(true));
  FOVEA_RETURN_IF_ERROR(tracer->record(false));
  return std::unique_ptr<DeviceTracer>(std::move(tracer));
}

}  // namespace fovea::profile

#else

namespace fovea::profile {

Result<std::unique_ptr<DeviceTracer>> make_cupti_tracer(Recorder&) {
  return unsupported("this program was built without CUPTI's headers (cuda-cupti-dev)");
}

}  // namespace fovea::profile

#endif
