#include "profile/recorder.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace fovea::profile {

int64_t now() {
  using std::chrono::nanoseconds;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Recorder::Recorder(const Limits& limits)
    : start_(now()),
      ranges_(limits.ranges),
      counters_(limits.counters),
      device_(limits.device),
      ops_(limits.ops),
      steps_(limits.steps),
      correlations_(limits.device),
      names_{"..."} {}

/// Under the lock.
template <class T, class V>
void Recorder::keep(T& list, V&& value) {
  if (!list.add(std::forward<V>(value)) && !full_) report_full();
}

void Recorder::report_full() {
  full_ = true;
  FOVEA_LOG(warning) << "the profile is full: from now on new records replace the oldest ones";
}

void Recorder::add(RangeRecord range) {
  std::lock_guard lock(mutex_);
  range.thread = thread_number();
  keep(ranges_, range);
}

void Recorder::add(const CounterRecord& counter) {
  std::lock_guard lock(mutex_);
  keep(counters_, counter);
}

void Recorder::add(const DeviceRecord& record) {
  std::lock_guard lock(mutex_);
  keep(device_, record);
}

uint64_t Recorder::add(const OpRecord& op) {
  std::lock_guard lock(mutex_);
  OpRecord numbered = op;
  if (numbered.step == 0 && !steps_.empty()) numbered.step = steps_.newest().number;
  keep(ops_, numbered);
  return first_op_ + ops_.added() - 1;
}

void Recorder::add(const StepInfo& step) {
  std::lock_guard lock(mutex_);
  keep(steps_, step);
}

void Recorder::set_attention(uint64_t number, std::vector<OpWork> attention) {
  std::lock_guard lock(mutex_);
  if (!steps_.empty() && steps_.newest().number == number) steps_.newest().attention = std::move(attention);
}

void Recorder::correlate(uint32_t correlation, uint64_t op) {
  std::lock_guard lock(mutex_);
  correlations_.add({correlation, op});
}

uint32_t Recorder::name(std::string_view text) {
  std::lock_guard lock(mutex_);
  std::string key(text);
  const auto found = name_numbers_.find(key);
  if (found != name_numbers_.end()) return found->second;
  if (names_.size() >= kMostNames) return 0;
  names_.push_back(key);
  const auto number = static_cast<uint32_t>(names_.size() - 1);
  name_numbers_.emplace(std::move(key), number);
  return number;
}

/// The calling thread's number, under the lock.
uint32_t Recorder::thread_number() {
  const auto [at, added] =
      thread_numbers_.try_emplace(std::this_thread::get_id(), static_cast<uint32_t>(threads_.size()));
  if (added) threads_.push_back("thread " + std::to_string(at->second));
  return at->second;
}

void Recorder::name_thread(std::string_view text) {
  std::lock_guard lock(mutex_);
  threads_[thread_number()] = text;
}

uint64_t Recorder::step() const {
  std::lock_guard lock(mutex_);
  return steps_.empty() ? 0 : steps_.newest().number;
}

Recording Recorder::recording() const {
  std::lock_guard lock(mutex_);
  Recording out;
  out.start = start_;
  out.names = names_;
  out.threads = threads_;
  out.ranges = ranges_.in_order();
  out.counters = counters_.in_order();
  out.device = device_.in_order();
  out.ops = ops_.in_order();
  out.first_op = first_op_ + ops_.dropped();
  out.steps = steps_.in_order();
  out.dropped =
      ranges_.dropped() + counters_.dropped() + device_.dropped() + ops_.dropped() + steps_.dropped();
  std::unordered_map<uint32_t, uint64_t> op_of;
  for (const Correlation& pair : correlations_.in_order())
    op_of[pair.correlation] = pair.op;
  for (DeviceRecord& record : out.device)
    if (const auto found = op_of.find(record.correlation); record.op == 0 && found != op_of.end())
      record.op = found->second;
  std::ranges::stable_sort(out.device, {}, &DeviceRecord::begin);
  return out;
}

void Recorder::clear() {
  std::lock_guard lock(mutex_);
  start_ = now();
  full_ = false;
  first_op_ += ops_.added();
  ranges_.clear();
  counters_.clear();
  device_.clear();
  ops_.clear();
  steps_.clear();
  correlations_.clear();
}

}  // namespace fovea::profile
