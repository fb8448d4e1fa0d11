#pragma once
// What the kernels of linear layers do with finished sums: the parameters.
#include <cstdint>

#include "kernels/cuda/linear/linear.h"

namespace fovea::cuda {

enum class GateForm : uint8_t {
  sigmoid,  ///< z * sigmoid(z (linear + cubic z^2)): silu, gelu_tanh
  limited,  ///< the same with a limit: gpt-oss's
  erf,      ///< gelu
  relu,
};

struct EpilogueParams {
  void* y = nullptr;
  int64_t y_stride = 0;
  const float* bias = nullptr;
  int rows = 0;
  int columns = 0;    ///< of y
  bool f32 = false;   ///< y is float
  bool pairs = true;  ///< two adjacent elements can be stored at once
  bool wide = true;   ///< 16 bytes can: 16-bit y only
  LinearEpilogue kind = LinearEpilogue::store;
  float scale = 1.0f, softcap = 0.0f;
  GateForm form = GateForm::sigmoid;
  float linear = 1.0f, cubic = 0.0f, limit = 0.0f;
};

/// From checked parameters.
EpilogueParams make_epilogue(const LinearParams& params);

}  // namespace fovea::cuda
