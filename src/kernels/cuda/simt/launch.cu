#include "kernels/cuda/simt/launch.h"

#include <string>

#include "fovea/result.h"
#include "kernels/cuda/common/combine_kernel.cuh"
#include "kernels/cuda/simt/launch-inl.cuh"
#include "kernels/cuda/tiles/planted.cuh"
#include "kernels/cuda/tiles/programmatic_launch.h"

namespace fovea::cuda::simt {
namespace {

cudaError_t launch_all(const KernelInfo& kernel, const AttentionParams& params, int max_items,
                       cudaStream_t stream, bool& found) {
  int device = 0, major = 0, multiprocessors = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (code == cudaSuccess)
    code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (code != cudaSuccess) return code;
  const int64_t work_tiles = static_cast<int64_t>(max_items) * params.kv_heads.divisor;
  const Launch l{kernel, params, work_tiles, multiprocessors, has_programmatic_launch(major), stream};
  found = !planted_gap(kernel) && (kernel.kv == KvType::same ? launch16(l, code) : launch8(l, code));
  if (!found || code != cudaSuccess || params.partial_out == nullptr) return code;
  const auto combine = kernel.q == QueryType::f16 ? combine_kernel<__half> : combine_kernel<__nv_bfloat16>;
  return l.queue(combine, int64_t{8} * multiprocessors, kCombineThreads, 0, params);
}

}  // namespace

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record) {
  AttentionParams with_sizes = params;
  if (with_sizes.partial_rows == 0) with_sizes.partial_rows = kernel.rows;
  with_sizes.partial_columns = kernel.v_head_dim;
  with_sizes.stages = kernel.stages;
  bool found = true;
  const cudaError_t code =
      max_items == 0 ? cudaSuccess : launch_all(kernel, with_sizes, max_items, stream, found);
  if (!found) return Error{ErrorCode::internal, "a CUDA-core decode kernel that select() doesn't give"};
  if (code == cudaSuccess) {
    if (record != nullptr) *record = {max_items > 0, max_items > 0 && params.partial_out != nullptr};
    return {};
  }
  cudaGetLastError();  // clears the sticky error: it is reported here and not by the next launch too
  return Error{ErrorCode::internal,
               std::string("launch of a CUDA-core decode kernel: ") + cudaGetErrorString(code)};
}

}  // namespace fovea::cuda::simt
