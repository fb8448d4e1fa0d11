#pragma once
// The activation functions of a transformer's MLP.
#include <cstdint>

namespace fovea {

enum class Activation : uint8_t {
  silu,       ///< z / (1 + e^-z)
  gelu,       ///< z / 2 (1 + erf(z / sqrt(2)))
  gelu_tanh,  ///< z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))
  relu,       ///< max(0, z)
};
inline constexpr int kActivations = 4;

}  // namespace fovea
