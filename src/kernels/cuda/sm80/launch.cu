#include "kernels/cuda/sm80/launch.h"

#include "fovea/result.h"
#include "kernels/cuda/common/combine_kernel.cuh"
#include "kernels/cuda/common/value_gain.h"
#include "kernels/cuda/sm80/launch-inl.cuh"
#include "kernels/cuda/tiles/planted.cuh"
#include "kernels/cuda/tiles/programmatic_launch.h"

namespace fovea::cuda::sm80 {
namespace {

struct DeviceFacts {
  int multiprocessors = 0, major = 0;
};

/// The runtime caches these: a query takes tens of nanoseconds. With an error in `l`, multiprocessors is 0.
DeviceFacts device_facts(Launch& l) {
  int device = 0;
  DeviceFacts facts;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (l.error.empty())
    l.check(cudaDeviceGetAttribute(&facts.major, cudaDevAttrComputeCapabilityMajor, device),
            "cudaDeviceGetAttribute");
  if (l.error.empty())
    l.check(cudaDeviceGetAttribute(&facts.multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
  return facts;
}

}  // namespace

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record) {
  if (params.kv.k_chunk_stride != 0 || params.kv.v_dim_stride != 0)
    return Error{ErrorCode::unsupported,
                 "pages are x-packed; the sm80 kernels take strided ones; use the portable kernels"};
  AttentionParams with_sizes = params;
  if (with_sizes.partial_rows == 0) with_sizes.partial_rows = kernel.rows;
  with_sizes.partial_columns = kernel.v_head_dim;
  with_sizes.stages = kernel.stages;
  with_sizes.ahead = kernel.ahead;
  with_sizes.kv.v_gain = value_gain(params.kv, params.kv.type);
  with_sizes.kv.v_scale /= with_sizes.kv.v_gain;
  const bool combined = kernel.fused_combine && params.arrivals != nullptr;
  const bool combines_after = params.partial_out != nullptr && !combined && max_items > 0;
  if (!combines_after) with_sizes.queue = nullptr;
  Launch l{kernel, with_sizes, max_items, stream};
  const DeviceFacts device = device_facts(l);
  if (l.error.empty()) {
    l.programmatic = has_programmatic_launch(device.major);
    const bool found = planted_gap(kernel) ? false
                       : kernel.kind == KernelKind::decode
                           ? launch_narrow16(l) || launch_narrow8(l) || launch_decode16(l) ||
                                 launch_decode_general(l) || launch_decode_e4m3(l) || launch_decode_e5m2(l) ||
                                 launch_decode_int8(l)
                           : launch_extend16(l) || launch_extend_general(l) || launch_extend_eight_bit(l) ||
                                 launch_extend_compact(l);
    if (!found) return Error{ErrorCode::internal, "an attention kernel that select() doesn't give"};
  }
  if (l.error.empty() && combines_after) {
    const int64_t work_tiles = static_cast<int64_t>(max_items) * params.kv_heads.divisor;
    const auto combine = kernel.q == QueryType::f16 ? combine_kernel<__half> : combine_kernel<__nv_bfloat16>;
    l.check(queue(combine, std::min<int64_t>(work_tiles, int64_t{8} * device.multiprocessors),
                  kCombineThreads, 0, l),
            "launch of the combine kernel");
  }
  if (l.error.empty()) {
    if (record != nullptr) *record = {max_items > 0, combines_after};
    return {};
  }
  cudaGetLastError();  // clears the sticky error: it is reported here and not by the next launch too
  return Error{ErrorCode::internal, std::move(l.error)};
}

}  // namespace fovea::cuda::sm80
