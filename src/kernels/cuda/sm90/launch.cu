#include "kernels/cuda/sm90/launch.h"

#include "fovea/result.h"
#include "kernels/cuda/common/combine_kernel.cuh"
#include "kernels/cuda/common/value_gain.h"
#include "kernels/cuda/sm90/launch-inl.cuh"
#include "kernels/cuda/sm90/widen_pass.h"
#include "kernels/cuda/sm90/x_packed.h"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm90 {
namespace {

struct Device {
  int major = 0, minor = 0, multiprocessors = 0;
};

/// The runtime caches these attributes: a query takes tens of nanoseconds.
cudaError_t read(Device& d) {
  int device = 0;
  cudaError_t code = cudaGetDevice(&device);
  const auto query = [&](int& value, cudaDeviceAttr attribute) {
    if (code == cudaSuccess) code = cudaDeviceGetAttribute(&value, attribute, device);
  };
  query(d.major, cudaDevAttrComputeCapabilityMajor);
  query(d.minor, cudaDevAttrComputeCapabilityMinor);
  query(d.multiprocessors, cudaDevAttrMultiProcessorCount);
  return code;
}

/// Programmatic dependent launch: the combine kernel may start while the attention kernel finishes, as it
/// waits for the grid dependency itself.
cudaError_t queue_combine(const Launch& l) {
  const auto combine = l.kernel.q == QueryType::f16 ? combine_kernel<__half> : combine_kernel<__nv_bfloat16>;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min<int64_t>(l.work_tiles(), int64_t{8} * l.multiprocessors)));
  config.blockDim = dim3(kCombineThreads);
  config.stream = l.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, combine, l.params);
}

/// Queues the kernel on the widened keys of each window. `p.kv` is the cache.
void launch_widened(Launch& all, const AttentionParams& p, const WidenSpace& space) {
  KernelInfo kernel = all.kernel;
  if (kernel.kv != KvType::int8) kernel.kv = KvType::same;  // the policy is that of 16-bit caches
  all.check(queue_widen_plan(p, all.kernel, space, all.stream), "launch of the plan of a widening");
  for (int window = 0; window < space.layout.windows && all.error.empty(); ++window) {
    AttentionParams wide = p;
    all.check(queue_widen(wide, all.kernel, space, window, all.multiprocessors, all.stream),
              "launch of a widening");
    Launch l{kernel, wide, all.max_items, all.multiprocessors, all.stream, all.error};
    if (l.error.empty() && !launch_prefill(l)) l.error = "no prefill kernel of the queries' type";
    all.error = std::move(l.error), all.record = l.record;
  }
}

}  // namespace

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record, const WidenSpace* space) {
  if (max_items == 0) return {};
  AttentionParams p = params;
  if (p.partial_rows == 0) p.partial_rows = kernel.rows;
  p.partial_columns = kernel.v_head_dim;
  p.kv.v_gain = value_gain(p.kv, p.kv.type);
  p.kv.v_scale /= p.kv.v_gain;
  const bool combined = kernel.fused_combine && p.arrivals != nullptr;
  const bool combines_after = p.partial_out != nullptr && !combined;
  // The work counter is reset by the combine kernel or, in prefill, by the prefill kernel itself.
  if (!combines_after && kernel.kind == KernelKind::decode) p.queue = nullptr;
  Device device;
  Launch l{kernel, p, max_items, 0, stream};
  l.check(read(device), "attributes of the device");
  l.multiprocessors = device.multiprocessors;
  if (l.error.empty() && (device.major != 9 || device.minor != 0))
    return Error{ErrorCode::unsupported, "the sm90 kernels run on compute capability 9.0; the device has " +
                                             std::to_string(device.major) + "." +
                                             std::to_string(device.minor)};
  const bool widened = is_widened(kernel, is_x_packed(params.kv));
  if (l.error.empty() && widened && space != nullptr && !planted_gap(kernel))
    launch_widened(l, p, *space);
  else if (l.error.empty() && (widened || planted_gap(kernel) || (!launch_prefill(l) && !launch_decode(l))))
    return Error{ErrorCode::internal, "an attention kernel that select() doesn't give"};
  if (l.error.empty() && combines_after) l.check(queue_combine(l), "launch of the combine kernel");
  if (l.error.empty()) {
    l.record.attention = true;
    l.record.combine = combines_after;
    if (record != nullptr) *record = l.record;
    return {};
  }
  cudaGetLastError();  // clears the sticky error; reported here
  return Error{ErrorCode::internal, std::move(l.error)};
}

}  // namespace fovea::cuda::sm90
