#include "profile/step_table.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "profile/json_text.h"
#include "profile/kernel_name.h"

namespace fovea::profile {
namespace {

constexpr double kNano = 1e-9;

/// The device records of one step, in order of their begin.
struct StepRecords {
  const StepInfo* step = nullptr;
  std::vector<const DeviceRecord*> main, beside;
  int64_t begin = 0, end = 0;  ///< of the main stream's
  int64_t before = 0;          ///< end of the step before; 0 = there is none
};

bool is_kernel(const DeviceRecord& record) {
  return record.kind == DeviceRecord::Kind::kernel || record.kind == DeviceRecord::Kind::op;
}

/// The stream with most of the kernels' time.
uint32_t main_stream(const Recording& recording) {
  std::map<uint32_t, int64_t> time;
  for (const DeviceRecord& record : recording.device)
    if (is_kernel(record)) time[record.stream] += record.end - record.begin;
  const auto most = std::ranges::max_element(time, {}, [](const auto& entry) { return entry.second; });
  return most == time.end() ? 0 : most->first;
}

/// All steps whose records are there, in their order.
std::vector<StepRecords> steps_of(const Recording& recording) {
  std::map<uint64_t, StepRecords> by_number;
  for (const StepInfo& step : recording.steps)
    by_number[step.number].step = &step;
  const uint32_t stream = main_stream(recording);
  for (const DeviceRecord& record : recording.device) {
    const OpRecord* op = recording.op(record.op);
    if (op == nullptr) continue;
    const auto found = by_number.find(op->step);
    if (found == by_number.end()) continue;
    (record.stream == stream ? found->second.main : found->second.beside).push_back(&record);
  }
  std::vector<StepRecords> out;
  int64_t before = 0;
  for (auto& [number, step] : by_number) {
    if (step.main.empty()) {
      before = 0;  // its records are missing
      continue;
    }
    step.begin = step.main.front()->begin;
    for (const DeviceRecord* record : step.main)
      step.end = std::max(step.end, record->end);
    step.before = before;
    before = step.end;
    out.push_back(std::move(step));
  }
  return out;
}

bool only_decodes(const StepInfo& step, int rows) {
  return step.prefill_rows == 0 && step.decode_rows == rows;
}

/// Waiting for a request is not part of a step: longer than the step itself, or without a step before.
int64_t start_of(const StepRecords& s) {
  const bool follows = s.before != 0 && s.before <= s.begin && s.begin - s.before < s.end - s.begin;
  return follows ? s.before : s.begin;
}

const StepRecords* choose(const std::vector<StepRecords>& steps, const StepChoice& choice) {
  std::vector<const StepRecords*> fit;
  int most = 0;
  for (const StepRecords& s : steps)
    if (s.step->prefill_rows > 0) most = std::max(most, s.step->prefill_rows);
  for (const StepRecords& s : steps) {
    const bool fits = choice.decode ? only_decodes(*s.step, choice.rows) && s.step->replay == choice.replay
                                    : most > 0 && s.step->prefill_rows == most;
    if (fits) fit.push_back(&s);
  }
  if (fit.empty()) return nullptr;
  std::ranges::sort(fit, {}, [](const StepRecords* s) { return s->end - start_of(*s); });
  return fit[(fit.size() - 1) / 2];
}

std::vector<const DeviceRecord*> kernels_of(const StepRecords& step) {
  std::vector<const DeviceRecord*> out;
  std::ranges::copy_if(step.main, std::back_inserter(out),
                       [](const DeviceRecord* record) { return is_kernel(*record); });
  return out;
}

/// The kernels of a step of the same rows that ran without graph: their operations are those of `replayed`.
std::optional<std::vector<const DeviceRecord*>> program_of(const std::vector<StepRecords>& steps,
                                                           const StepRecords& replayed) {
  const auto kernels = kernels_of(replayed);
  for (const StepRecords& s : steps) {
    if (s.step->replay || s.step->prefill_rows > 0 || s.step->rows != replayed.step->rows) continue;
    auto candidates = kernels_of(s);
    const bool same = candidates.size() == kernels.size() &&
                      std::ranges::equal(candidates, kernels,
                                         [](const auto* a, const auto* b) { return a->name == b->name; });
    if (same) return candidates;
  }
  return std::nullopt;
}

class Builder {
 public:
  Builder(const Recording& recording, const StepRecords& step, const DeviceRates& rates)
      : recording_(recording), step_(step), rates_(rates) {}

  StepTable build(const std::optional<std::vector<const DeviceRecord*>>& program) {
    table_.step = *step_.step;
    table_.times = recording_.device_times;
    start_ = start_of(step_);
    int64_t reached = start_;
    size_t kernel = 0;
    for (const DeviceRecord* record : step_.main) {
      uint64_t op = record->op;
      if (program && is_kernel(*record)) op = (*program)[kernel++]->op;
      StepEvent event = make(*record, op);
      event.own =
          kNano * static_cast<double>(std::max<int64_t>(0, record->end - std::max(reached, record->begin)));
      if (record->begin > reached)
        (table_.events.empty() ? table_.before : table_.between) +=
            kNano * static_cast<double>(record->begin - reached);
      table_.rows[event.row].seconds += event.own;
      table_.rows[event.row].spans += event.end - event.begin;
      table_.events.push_back(std::move(event));
      reached = std::max(reached, record->end);
    }
    table_.seconds = kNano * static_cast<double>(reached - start_);
    for (const DeviceRecord* record : step_.beside) {
      StepEvent event = make(*record, record->op);
      event.beside = true;
      table_.events.push_back(std::move(event));
    }
    sort_rows();
    return std::move(table_);
  }

 private:
  StepEvent make(const DeviceRecord& record, uint64_t number) {
    const OpRecord* op = recording_.op(number);
    StepEvent event;
    event.begin = kNano * static_cast<double>(record.begin - start_);
    event.end = kNano * static_cast<double>(record.end - start_);
    event.kernel =
        record.kind == DeviceRecord::Kind::op ? "" : short_kernel_name(recording_.names[record.name]);
    const bool known = op != nullptr && op->name != std::string_view(kReplay);
    if (known) event.layer = op->layer;
    event.row = row_of(known ? op->name : "", event.kernel);
    StepRow& row = table_.rows[event.row];
    if (std::ranges::find(row.kernels, event.kernel) == row.kernels.end() && !event.kernel.empty())
      row.kernels.push_back(event.kernel);
    if (!known || number != last_op_) {
      ++row.count;
      if (known) add_work(row, *op);
    }
    last_op_ = number;
    return event;
  }

  void add_work(StepRow& row, const OpRecord& op) {
    OpWork work = op.work;
    const auto group = static_cast<size_t>(op.group);
    if (op.group >= 0 && group < step_.step->attention.size()) work = step_.step->attention[group];
    row.work += work;
    row.floor += rates_.floor(work);
    table_.floor += rates_.floor(work);
  }

  /// Unknown operations have a row for each kernel.
  size_t row_of(const std::string& op, const std::string& kernel) {
    const std::string key = op.empty() ? "kernel " + kernel : op;
    const auto [at, added] = rows_.try_emplace(key, table_.rows.size());
    if (added) table_.rows.emplace_back().op = op;
    return at->second;
  }

  void sort_rows() {
    std::vector<size_t> order(table_.rows.size());
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return table_.rows[i].seconds; });
    std::vector<size_t> place(order.size());
    std::vector<StepRow> rows;
    for (const size_t i : order) {
      place[i] = rows.size();
      rows.push_back(std::move(table_.rows[i]));
    }
    table_.rows = std::move(rows);
    for (StepEvent& event : table_.events)
      event.row = place[event.row];
  }

  const Recording& recording_;
  const StepRecords& step_;
  const DeviceRates& rates_;
  StepTable table_;
  int64_t start_ = 0;
  uint64_t last_op_ = 0;
  std::map<std::string, size_t> rows_;
};

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string percent(double part, double of) {
  return of > 0 ? number("%5.1f %%", 100 * part / of) : "";
}

std::string line(const std::string& name, const std::string& count, double seconds, const std::string& spans,
                 const std::string& each, const std::string& floor, const std::string& of_floor, double whole,
                 const std::string& kernels) {
  char text[512];
  std::snprintf(text, sizeof text, "%-18s %5s %10.1f %10s %9s %10s %8s %8s  ", name.c_str(), count.c_str(),
                seconds * 1e6, spans.c_str(), each.c_str(), floor.c_str(), of_floor.c_str(),
                percent(seconds, whole).c_str());
  return text + kernels + "\n";
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts)
    out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string describe(const StepInfo& step) {
  std::string text = step.prefill_rows > 0
                         ? "prefill step: " + std::to_string(step.prefill_rows) + " prompt rows"
                         : "decode step: " + std::to_string(step.decode_rows) + " rows";
  if (step.prefill_rows > 0 && step.decode_rows > 0)
    text += ", " + std::to_string(step.decode_rows) + " decode rows";
  text += ", " + std::to_string(step.kv_tokens) + " keys";
  return text + (step.replay ? ", a graph of " + std::to_string(step.rows) + " rows" : ", without graph");
}

const char* how(DeviceTimes times) {
  switch (times) {
    case DeviceTimes::cupti: return "CUPTI activity records";
    case DeviceTimes::events: return "events around each operation, without graphs";
    case DeviceTimes::none: break;
  }
  return "none";
}

}  // namespace

std::vector<uint64_t> device_operations(const Recording& recording) {
  std::vector<uint64_t> out;
  for (const DeviceRecord& record : recording.device)
    out.push_back(record.op);
  const std::vector<StepRecords> steps = steps_of(recording);
  for (const StepRecords& step : steps) {
    if (!step.step->replay) continue;
    const auto program = program_of(steps, step);
    if (!program) continue;
    const auto kernels = kernels_of(step);
    for (size_t i = 0; i < kernels.size(); ++i)
      out[static_cast<size_t>(kernels[i] - recording.device.data())] = (*program)[i]->op;
  }
  return out;
}

double DeviceRates::floor(const OpWork& work) const {
  return std::max(read_bytes > 0 ? work.bytes / read_bytes : 0, flops > 0 ? work.flops / flops : 0);
}

Result<StepTable> step_table(const Recording& recording, const StepChoice& choice, const DeviceRates& rates) {
  const std::vector<StepRecords> steps = steps_of(recording);
  const StepRecords* step = choose(steps, choice);
  if (step == nullptr)
    return not_found(std::string("the profile has no ") + (choice.decode ? "decode" : "prefill") + " step" +
                     (choice.decode ? " of " + std::to_string(choice.rows) + " rows" : "") + " (" +
                     std::to_string(steps.size()) + " other steps, " +
                     std::to_string(recording.device.size()) + " device records)");
  std::optional<std::vector<const DeviceRecord*>> program;
  if (step->step->replay) program = program_of(steps, *step);
  StepTable table = Builder(recording, *step, rates).build(program);
  if (step->step->replay && !program)
    table.note = "the graph's kernels are not those of a step of " + std::to_string(step->step->rows) +
                 " rows without graph: they have no operations and no floors";
  return table;
}

std::string table_text(const StepTable& table, double whole) {
  std::string out = describe(table.step) + "; times by " + how(table.times) + "\n";
  char head[256];
  std::snprintf(head, sizeof head, "%-18s %5s %10s %10s %9s %10s %8s %8s  %s\n", "operation", "count", "us",
                "begin-end", "us each", "floor us", "of floor", "of step", "kernels");
  out += head;
  double own = 0;
  for (const StepRow& row : table.rows) {
    own += row.seconds;
    if (row.seconds == 0 && row.floor == 0) continue;
    out += line(row.op.empty() ? "?" : row.op, std::to_string(row.count), row.seconds,
                number("%.1f", row.spans * 1e6), number("%.2f", row.seconds * 1e6 / std::max(row.count, 1)),
                number("%.1f", row.floor * 1e6), row.seconds > 0 ? percent(row.floor, row.seconds) : "",
                table.seconds, join(row.kernels));
  }
  out += line("(before the first)", "", table.before, "", "", "", "", table.seconds,
              "the device waits for the host or for the step before");
  out += line("(between two)", "", table.between, "", "", "", "", table.seconds, "nothing runs");
  out += line("sum", "", own + table.before + table.between, "", "", number("%.1f", table.floor * 1e6),
              percent(table.floor, table.seconds), table.seconds, "of this step while it is recorded");
  if (whole > 0)
    out += line("whole step", "", whole, "", "", number("%.1f", table.floor * 1e6),
                percent(table.floor, whole), table.seconds, "mean of the steps that are not recorded");
  if (!table.note.empty()) out += table.note + "\n";
  return out;
}

std::string table_json(const StepTable& table, double whole) {
  const auto add = [](std::string& out, const char* key, double value) {
    out += std::string(out.back() == '{' ? "" : ",") + "\"" + key + "\":" + number("%.9g", value);
  };
  std::string out = "{";
  add(out, "decode_rows", table.step.decode_rows);
  add(out, "prefill_rows", table.step.prefill_rows);
  add(out, "rows", table.step.rows);
  add(out, "kv_tokens", static_cast<double>(table.step.kv_tokens));
  out += std::string(",\"graph\":") + (table.step.replay ? "true" : "false");
  out += ",\"times_by\":" + json_text(how(table.times));
  add(out, "recorded_step_us", table.seconds * 1e6);
  if (whole > 0) add(out, "step_us", whole * 1e6);
  add(out, "floor_us", table.floor * 1e6);
  add(out, "before_us", table.before * 1e6);
  add(out, "between_us", table.between * 1e6);
  if (!table.note.empty()) out += ",\"note\":" + json_text(table.note);
  out += ",\"operations\":[";
  for (const StepRow& row : table.rows) {
    if (out.back() != '[') out += ',';
    std::string entry = "{\"operation\":" + json_text(row.op) + ",\"kernels\":[";
    for (const std::string& kernel : row.kernels)
      entry += (entry.back() == '[' ? "" : ",") + json_text(kernel);
    entry += "]";
    add(entry, "count", row.count);
    add(entry, "us", row.seconds * 1e6);
    add(entry, "begin_to_end_us", row.spans * 1e6);
    add(entry, "floor_us", row.floor * 1e6);
    if (row.seconds > 0) add(entry, "share_of_floor", row.floor / row.seconds);
    if (table.seconds > 0) add(entry, "share_of_step", row.seconds / table.seconds);
    add(entry, "bytes", row.work.bytes);
    add(entry, "flops", row.work.flops);
    out += entry + "}";
  }
  return out + "]}";
}

}  // namespace fovea::profile
