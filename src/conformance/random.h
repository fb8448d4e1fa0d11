#pragma once
// Random numbers that are the same on every platform (unlike those of std's distributions).
#include <cstdint>
#include <vector>

namespace fovea::conformance {

/// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  /// In [0, n), n >= 1.
  int below(int n) { return static_cast<int>(bits() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float normal();  ///< about N(0, 1), within 3.5
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[bits() % from.size()];
  }

 private:
  uint64_t state_;
};

}  // namespace fovea::conformance
