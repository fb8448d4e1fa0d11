#include "kernels/cuda/linear/epilogue.h"

namespace fovea::cuda {

EpilogueParams make_epilogue(const LinearParams& p) {
  EpilogueParams e;
  const bool gated = p.epilogue == LinearEpilogue::gated;
  e.y = p.y;
  e.y_stride = p.y_stride;
  e.bias = p.bias;
  e.rows = static_cast<int>(p.rows);
  e.columns = static_cast<int>(gated ? p.n / 2 : p.n);
  e.f32 = p.y_dtype == DType::f32;
  const auto address = reinterpret_cast<uintptr_t>(p.y);
  const uintptr_t pair = e.f32 ? 8 : 4;
  e.pairs = address % pair == 0 && p.y_stride % 2 == 0;
  e.wide = !e.f32 && address % 16 == 0 && p.y_stride % 8 == 0;
  e.kind = p.epilogue;
  e.scale = p.scale;
  e.softcap = p.softcap;
  e.limit = gated ? p.limit : 0.0f;
  if (e.limit > 0.0f) {
    e.form = GateForm::limited;
    e.linear = 1.702f;
    return e;
  }
  switch (p.activation) {
    case Activation::silu: break;
    case Activation::gelu: e.form = GateForm::erf; break;
    case Activation::gelu_tanh:  // 1/2 (1 + tanh u) = sigmoid(2 u), u = sqrt(2 / pi) (z + 0.044715 z^3)
      e.linear = 1.5957691216f;
      e.cubic = 0.07135481628f;
      break;
    case Activation::relu: e.form = GateForm::relu; break;
  }
  return e;
}

}  // namespace fovea::cuda
