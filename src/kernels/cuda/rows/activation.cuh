#pragma once
// Gated activations in fp32, the same in every kernel. NaN stays NaN.
#include "kernels/cpu/activation.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// z * sigmoid(scale * z)
FOVEA_DEVICE float scaled_silu(float z, float scale) {
  return __fdiv_rn(z, __fadd_rn(1.0f, expf(-__fmul_rn(scale, z))));
}

FOVEA_DEVICE float activated(float z, Activation f) {
  switch (f) {
    case Activation::silu: return scaled_silu(z, 1.0f);
    case Activation::gelu:
      return __fmul_rn(__fmul_rn(0.5f, z), __fadd_rn(1.0f, erff(__fmul_rn(z, 0.70710678118654752f))));
    case Activation::gelu_tanh: {
      const float inner = __fmul_rn(0.79788456080286536f, fmaf(__fmul_rn(0.044715f, __fmul_rn(z, z)), z, z));
      return __fmul_rn(__fmul_rn(0.5f, z), __fadd_rn(1.0f, tanhf(inner)));
    }
    case Activation::relu: return z < 0.0f ? 0.0f : z;
  }
  return z;
}

/// f(gate) * up, or with a limit above 0 gpt-oss's (u + 1) * g * sigmoid(1.702 g), g = min(gate, limit), u =
/// clamp(up).
FOVEA_DEVICE float gated(float gate, float up, Activation f, float limit) {
  if (limit > 0.0f) {
    const float g = gate > limit ? limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return __fmul_rn(__fadd_rn(u, 1.0f), scaled_silu(g, 1.702f));
  }
  return __fmul_rn(activated(gate, f), up);
}

}  // namespace fovea::cuda
