#pragma once
// The CUDA C++ text of the GPU kernel for one program, dtype and head sizes.
#include <cstddef>
#include <string>

#include "flex/program.h"
#include "fovea/attention_spec.h"
#include "fovea/result.h"

namespace fovea::flex {

/// The largest head size of the GPU kernel, and how many buffers it takes.
inline constexpr int kGpuMaxHeadDim = 256, kGpuMaxBuffers = 16;
inline constexpr int kGpuRows = 64, kGpuKeys = 64;  ///< of a block

/// What a kernel is compiled for, besides its program.
struct GpuVariant {
  DType dtype = DType::bf16;
  int head_dim = 0, v_head_dim = 0;
  bool aligned = true;         ///< rows of K, Q, V begin at multiples of 16 bytes and have a multiple of them
  bool positive_scale = true;  ///< masked scores of -inf may be scaled later
};

/// Errors: head sizes and numbers of buffers that the kernel does not have.
Status check_gpu(const Program& program, const GpuVariant& variant);
/// The text to compile. It has no includes; the kernel is `flex_kernel` with the arguments of gpu/gpu_args.h.
std::string gpu_source(const Program& program, const GpuVariant& variant);
/// Threads and bytes of shared memory of the kernel.
struct GpuLaunch {
  int threads = 0;
  size_t shared_bytes = 0;
};
GpuLaunch gpu_launch(const GpuVariant& variant);

}  // namespace fovea::flex
