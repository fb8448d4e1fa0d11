#pragma once
// A histogram of durations in constant memory. Bucket bounds grow by 2^(1/8) = 1.091, so a quantile is at
// most 10 % above the true one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace fovea {

class DurationHistogram {
 public:
  void add(double seconds) {
    ++counts_[bucket_of(seconds)];
    ++total_;
    max_ = std::max(max_, seconds);
  }
  int64_t count() const { return total_; }
  double max() const { return max_; }

  /// The upper bound of the bucket that holds the q-quantile, or the largest duration if that is less; 0 when
  /// empty.
  double quantile(double q) const {
    const auto rank = static_cast<int64_t>(std::ceil(q * static_cast<double>(total_)));
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size() && total_ > 0; ++i) {
      seen += counts_[i];
      if (seen >= rank && counts_[i] > 0)
        return std::min(max_, kLeast * std::exp2(static_cast<double>(i) / kPerDoubling));
    }
    return 0;
  }

 private:
  static constexpr double kLeast = 1e-6;  // seconds: upper bound of the first bucket
  static constexpr double kPerDoubling = 8;
  static constexpr size_t kBuckets = size_t{8} * 32;  // the last one ends at 2^31.9 us, over an hour

  static size_t bucket_of(double seconds) {
    if (!(seconds > kLeast)) return 0;
    const double bucket = std::ceil(std::log2(seconds / kLeast) * kPerDoubling);
    return static_cast<size_t>(std::min(bucket, static_cast<double>(kBuckets - 1)));
  }

  std::array<int64_t, kBuckets> counts_{};
  int64_t total_ = 0;
  double max_ = 0;
};

}  // namespace fovea
