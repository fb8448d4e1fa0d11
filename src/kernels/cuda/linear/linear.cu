#include "kernels/cuda/linear/linear.h"

#include <climits>
#include <string>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/launchers.h"
#include "kernels/cuda/linear/linear_choice.h"

namespace fovea::cuda {
namespace {

std::string shape(const LinearParams& p) {
  return "linear layer of " + std::to_string(p.rows) + " rows, " + std::to_string(p.k) + " inputs, " +
         std::to_string(p.n) + " outputs";
}

bool aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

Status check(const LinearParams& p) {
  constexpr int64_t kMost = INT_MAX / 4;
  const bool gated = p.epilogue == LinearEpilogue::gated;
  if (p.rows < 0 || p.n < 1 || p.k < 1 || p.rows > kMost || p.n > kMost || p.k > kMost)
    return invalid(shape(p) + ": 0 or more rows and 1 or more inputs and outputs are allowed, each up to " +
                   std::to_string(kMost));
  if (gated && p.n % 2 != 0)
    return invalid(shape(p) + " is gated: an even number of outputs is allowed, gates and ups");
  if (p.y_dtype != p.dtype && p.y_dtype != DType::f32)
    return invalid(shape(p) + ": outputs of " + std::string(to_string(p.y_dtype)) + "; " +
                   std::string(to_string(p.dtype)) + " or float32 are allowed");
  if (p.epilogue == LinearEpilogue::residual && p.y_dtype != DType::f32)
    return invalid(shape(p) + " adds to outputs of " + std::string(to_string(p.y_dtype)) +
                   "; float32 is allowed");
  if (p.rows > 1 && (p.x_stride < p.k || p.y_stride < (gated ? p.n / 2 : p.n)))
    return invalid(shape(p) + ": row strides of " + std::to_string(p.x_stride) + " and " +
                   std::to_string(p.y_stride) + " elements; at least the width of a row is allowed");
  if (p.dtype != DType::f32 && (!aligned(p.x, 16) || (p.rows > 1 && p.x_stride % 8 != 0)))
    return invalid(shape(p) + ": rows of x at a stride of " + std::to_string(p.x_stride) +
                   " elements; 16-byte aligned rows, a stride of a multiple of 8, are allowed");
  if (p.code != WeightCode::none &&
      (p.code != WeightCode::e4m3 || p.dtype != DType::bf16 || (p.block_scales && p.scales == nullptr)))
    return unsupported(shape(p) +
                       " with quantised weights; e4m3 with scales and bfloat16 activations are "
                       "supported");
  if (p.dtype != DType::f32 && !aligned(p.weight, 128))
    return invalid(shape(p) + ": packed weights that are not 128-byte aligned; align them");
  return {};
}

}  // namespace

Status launch_linear(const LinearParams& params, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check(params));
  if (params.rows == 0) return {};
  if (params.dtype == DType::f32) return launch_float_linear(params, stream.handle());
  int major = 0, multiprocessors = 0;  // cached by the runtime
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device()));
  if (params.code != WeightCode::none) {
    // Where a multiprocessor has many panels, enough warps widen and multiply in turn. `stream` is not chosen
    // by itself: its ring of codes has another depth since it last ran on a device.
    const bool gated = params.epilogue == LinearEpilogue::gated;
    const bool narrow = packed_panels(params.n, gated) <= int64_t{kWidenedUnits} * multiprocessors;
    if (params.kernel == LinearKernel::mma || major != 9)
      return launch_codes_mma(params, multiprocessors, stream.handle());
    if (params.kernel == LinearKernel::stream && narrow && params.rows <= kWidenedRows)
      return launch_codes_widened(params, multiprocessors, stream.handle());
    return launch_codes_wgmma(params, multiprocessors, stream.handle());
  }
  if (params.kernel == LinearKernel::mma || (params.kernel == LinearKernel::automatic && major != 9))
    return launch_mma_linear(params, multiprocessors, stream.handle());
  if (major != 9)
    return unsupported("the wgmma kernels run on compute capability 9.0; the device has " +
                       std::to_string(major) + ".x; let the kernel be chosen");
  const WgmmaPlan plan =
      chosen_wgmma_plan(params.rows, params.n, params.k, params.epilogue == LinearEpilogue::gated,
                        multiprocessors, params.kernel);
  return launch_wgmma_linear(params, plan, stream.handle());
}

Status launch_head_linear(const HeadLinearParams& params, CudaStream& stream) {
  const LinearParams& p = params.first;
  FOVEA_RETURN_IF_ERROR(check(p));
  if (p.dtype == DType::f32 || p.code != WeightCode::none || p.bias != nullptr ||
      p.epilogue != LinearEpilogue::store)
    return unsupported(
        shape(p) + " for each head: 16-bit weights without a bias, whose outputs are stored, are supported");
  if (params.heads < 1 || params.heads > 65535 || params.x_head % 8 != 0 || params.weight_head % 128 != 0)
    return invalid(shape(p) + " for " + std::to_string(params.heads) + " heads at distances of " +
                   std::to_string(params.x_head) + " inputs and " + std::to_string(params.weight_head) +
                   " bytes of weights; 1 to 65535 heads, multiples of 8 and of 128 are allowed");
  if (p.rows == 0) return {};
  int multiprocessors = 0;  // cached by the runtime
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device()));
  return launch_mma_heads(params, multiprocessors, stream.handle());
}

}  // namespace fovea::cuda
