#include "profile/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "profile/json_text.h"
#include "profile/kernel_name.h"
#include "profile/step_table.h"

namespace fovea::profile {
namespace {

constexpr int kHost = 1, kDevice = 2;

class Writer {
 public:
  Writer(std::FILE* file, int64_t start) : file_(file), start_(start) {}

  void begin(const Recording& recording, const TraceNotes& notes) {
    put("{\"displayTimeUnit\":\"ms\",\"otherData\":{");
    const char* times = recording.device_times == DeviceTimes::cupti ? "CUPTI activity records"
                        : recording.device_times == DeviceTimes::events
                            ? "events around each operation; steps ran without graphs"
                            : "none";
    put("\"device_times\":" + json_text(times));
    if (!recording.without_cupti.empty()) put(",\"without_cupti\":" + json_text(recording.without_cupti));
    put(",\"dropped_records\":\"" + std::to_string(recording.dropped) + "\"");
    for (const auto& [name, value] : notes)
      put("," + json_text(name) + ":" + json_text(value));
    put("},\"traceEvents\":[\n");
  }

  void name(const char* what, int process, uint32_t track, const std::string& text) {
    event("{\"ph\":\"M\",\"name\":\"" + std::string(what) + "\",\"pid\":" + std::to_string(process) +
          ",\"tid\":" + std::to_string(track) + ",\"args\":{\"name\":" + json_text(text) + "}}");
  }

  void range(const std::string& name, int process, uint32_t track, int64_t begin, int64_t end,
             const std::string& arguments) {
    event("{\"ph\":\"X\",\"name\":" + json_text(name) + ",\"pid\":" + std::to_string(process) + ",\"tid\":" +
          std::to_string(track) + ",\"ts\":" + micros(begin - start_) + ",\"dur\":" + micros(end - begin) +
          (arguments.empty() ? "" : ",\"args\":{" + arguments + "}") + "}");
  }

  void counter(const std::string& name, int64_t time, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    event("{\"ph\":\"C\",\"name\":" + json_text(name) +
          ",\"pid\":1,\"tid\":0,\"ts\":" + micros(time - start_) + ",\"args\":{\"value\":" + text + "}}");
  }

  bool end() {
    put("\n]}\n");
    return good_ && std::fflush(file_) == 0;
  }

  static std::string micros(int64_t nanoseconds) {
    char text[32];
    const bool negative = nanoseconds < 0;
    const int64_t size = negative ? -nanoseconds : nanoseconds;
    std::snprintf(text, sizeof text, "%s%lld.%03lld", negative ? "-" : "",
                  static_cast<long long>(size / 1000), static_cast<long long>(size % 1000));
    return text;
  }

 private:
  void event(const std::string& text) {
    if (!first_) put(",\n");
    first_ = false;
    put(text);
  }
  void put(const std::string& text) {
    good_ = good_ && std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  }

  std::FILE* file_;
  int64_t start_;
  bool first_ = true, good_ = true;
};

void write_ranges(Writer& writer, const Recording& recording) {
  // Those around others first, so that viewers nest them.
  std::vector<const RangeRecord*> order;
  for (const RangeRecord& range : recording.ranges)
    order.push_back(&range);
  std::ranges::stable_sort(order, [](const RangeRecord* a, const RangeRecord* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  for (const RangeRecord* range : order)
    writer.range(range->name, kHost, range->thread, range->begin, range->end,
                 range->value >= 0 ? "\"value\":" + std::to_string(range->value) : "");
}

/// Returns the streams that were used.
std::map<uint32_t, int64_t> write_device(Writer& writer, const Recording& recording) {
  std::map<uint32_t, int64_t> reached;  // by stream
  std::map<uint32_t, std::string> short_names;
  const std::vector<uint64_t> operations = device_operations(recording);
  for (size_t i = 0; i < operations.size(); ++i) {
    const DeviceRecord& record = recording.device[i];
    const OpRecord* op = recording.op(operations[i]);
    const OpRecord* queued = recording.op(record.op);  // the replay, of a graph's kernels
    std::string name, arguments;
    if (record.kind == DeviceRecord::Kind::op) {
      name = op != nullptr ? op->name : "operation";
    } else {
      std::string& text = short_names[record.name];
      if (text.empty()) text = short_kernel_name(recording.names[record.name]);
      name = text;
      if (op != nullptr) arguments = "\"operation\":" + json_text(op->name);
    }
    if (op != nullptr) {
      if (op->layer >= 0)
        arguments += (arguments.empty() ? "" : ",") + std::string("\"layer\":") + std::to_string(op->layer);
      if (const uint64_t step = queued != nullptr ? queued->step : op->step; step < kFirstRun)
        arguments += (arguments.empty() ? "" : ",") + std::string("\"step\":") + std::to_string(step);
    }
    int64_t& last = reached.try_emplace(record.stream, INT64_MIN).first->second;
    const int64_t begin = std::max(record.begin, last), end = std::max(record.end, begin);
    if (begin > record.begin)
      arguments += (arguments.empty() ? "" : ",") + std::string("\"early_us\":") +
                   Writer::micros(begin - record.begin);
    writer.range(name, kDevice, record.stream, begin, end, arguments);
    last = end;
  }
  return reached;
}

}  // namespace

Status write_chrome_trace(const std::string& path, const Recording& recording, const TraceNotes& notes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (!file) return io_error(path + " can't be written; is its folder there?");
  Writer writer(file.get(), recording.start);
  writer.begin(recording, notes);
  writer.name("process_name", kHost, 0, "host");
  for (size_t i = 0; i < recording.threads.size(); ++i)
    writer.name("thread_name", kHost, static_cast<uint32_t>(i), recording.threads[i]);
  write_ranges(writer, recording);
  for (const CounterRecord& counter : recording.counters)
    writer.counter(counter.name, counter.time, counter.value);
  const auto streams = write_device(writer, recording);
  if (!streams.empty()) writer.name("process_name", kDevice, 0, "device");
  for (const auto& stream : streams)
    writer.name("thread_name", kDevice, stream.first, "stream " + std::to_string(stream.first));
  if (!writer.end()) return io_error(path + " can't be written to its end; is the disk full?");
  return {};
}

}  // namespace fovea::profile
