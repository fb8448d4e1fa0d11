#pragma once
// A histogram with lock-free, thread-safe add().
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/metrics_text.h"

namespace fovea::server {

class MetricsHistogram {
 public:
  /// `bounds`: upper bounds of the buckets, ascending and inclusive.
  explicit MetricsHistogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  /// A NaN is not counted.
  void add(double value) {
    if (std::isnan(value)) return;
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    sum_.fetch_add(value, std::memory_order_relaxed);
    counts_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  }

  void write(std::string_view name, std::string_view help, MetricsText& out) const {
    std::vector<int64_t> counts;
    for (const auto& count : counts_)
      counts.push_back(count.load(std::memory_order_relaxed));
    out.metric(name, "histogram", help);
    out.histogram(bounds_, counts, sum_.load(std::memory_order_relaxed));
  }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace fovea::server
