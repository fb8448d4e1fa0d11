#include "kernels/cuda/portable/launch.h"

#include "fovea/result.h"
#include "kernels/cuda/common/value_gain.h"
#include "kernels/cuda/portable/combine_kernel.cuh"
#include "kernels/cuda/portable/launch-inl.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::portable {

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record) {
  if (stored_type(kernel.q, params.kv.type) != kernel.kv)
    return Error{ErrorCode::internal,
                 "keys have a different type from the one that the portable kernel was selected for"};
  if (max_items == 0) return {};
  AttentionParams p = params;
  if (p.partial_rows == 0) p.partial_rows = kernel.rows;
  p.partial_columns = kernel.v_head_dim;
  if (!computes_in_float(kernel.q, kernel.kv)) {  // fp32 has the range for every scale
    p.kv.v_gain = value_gain(p.kv, kernel.kv);
    p.kv.v_scale /= p.kv.v_gain;
  }
  const Access access = access_of(kernel, p);
  int device = 0, multiprocessors = 0;
  Launch l{kernel, p, access, max_items, 0, 0, stream};
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (l.error.empty())
    l.check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
  l.device = device, l.multiprocessors = multiprocessors;
  const int64_t work_tiles = int64_t{max_items} * p.kv_heads.divisor;
  if (l.error.empty()) {
    const bool found = planted_gap(kernel)                      ? false
                       : computes_in_float(kernel.q, kernel.kv) ? launch_float(l)
                       : kernel.q == QueryType::f16             ? launch_f16(l)
                                                                : launch_bf16(l);
    if (!found) return Error{ErrorCode::internal, "an attention kernel that select() doesn't give"};
  }
  if (l.error.empty() && p.partial_out != nullptr) {
    combine_kernel<<<static_cast<unsigned>(std::min<int64_t>(work_tiles, int64_t{16} * multiprocessors)),
                     kCombineThreads, 0, stream>>>(p, access);
    l.check(cudaGetLastError(), "launch of the portable combine kernel");
  }
  if (l.error.empty()) {
    if (record != nullptr) *record = {true, p.partial_out != nullptr};
    return {};
  }
  cudaGetLastError();  // clears the sticky error: it is reported here and not by the next launch too
  return Error{ErrorCode::internal, std::move(l.error)};
}

}  // namespace fovea::cuda::portable
