#pragma once
// Activation functions by themselves, of MLPs without a gate, on a GPU.
#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"
#include "kernels/cpu/activation.h"

namespace fovea::cuda {

struct ActivateParams {
  void* x = nullptr;  ///< [T, dim] of `dtype`, in place
  DType dtype = DType::bf16;
  int64_t x_stride = 0;  ///< elements
  int64_t rows = 0, dim = 0;
  Activation f = Activation::gelu;
};
/// x = f(x) in fp32, rounded once. Errors, before the launch: sizes or a pointer that don't go together.
Status launch_activate(const ActivateParams& params, CudaStream& stream);

}  // namespace fovea::cuda
