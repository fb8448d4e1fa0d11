#include "conformance/random.h"

#include <numbers>

namespace fovea::conformance {

uint64_t Random::bits() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Random::normal() {
  // Four uniform 16-bit numbers: their sum has variance 4 * 2^32 / 12, is close enough to normal and much
  // faster.
  const uint64_t z = bits();
  const auto sum = static_cast<int>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return static_cast<float>(sum - 2 * 0xffff) * (std::numbers::sqrt3_v<float> / 65536.0f);
}

}  // namespace fovea::conformance
