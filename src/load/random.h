#pragma once
// Random draws that are identical on every machine for a seed (the standard library's distributions are not).
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

namespace fovea::load {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  /// [0, 1), 53 bits.
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  /// [low, high], both included.
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
  }
  /// Mean 0, variance 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Mean `shape`, variance `shape`, for any shape > 0 (Marsaglia and Tsang 2000; below 1 through shape + 1).
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(1 - uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<size_t>(integer(0, static_cast<int64_t>(i) - 1))]);
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace fovea::load
