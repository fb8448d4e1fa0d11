#include "kernels/cuda/portable/launch.h"

#include "kernels/cuda/portable/launch-inl.cuh"
#include "kernels/cuda/portable/merge.cuh"

namespace fovea::cuda::portable {
namespace {

/// See KvParams::v_gain; 16-bit and fp32 elements need none.
float gain_of(KvType type) {
  if (type == KvType::e4m3) return 0x1p9f;
  if (type == KvType::e5m2) return 0x1p16f;
  return type == KvType::int8 ? 0x1p7f : 1.0f;
}

}  // namespace

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream) {
  if (stored_type(kernel.q, params.kv.type) != kernel.kv)
    return Error{ErrorCode::internal, "keys are of another type than the portable kernel was selected for"};
  if (max_items == 0) return {};
  AttentionParams p = params;
  if (p.partial_rows == 0) p.partial_rows = kernel.rows;
  p.partial_columns = kernel.v_head_dim;
  if (p.kv.v_scales != nullptr && !computes_in_float(kernel.q, kernel.kv)) {
    p.kv.v_gain = gain_of(kernel.kv);
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
  const int64_t units = int64_t{max_items} * p.kv_heads.divisor;
  if (l.error.empty()) {
    const bool found = computes_in_float(kernel.q, kernel.kv) ? launch_float(l)
                       : kernel.q == QueryType::f16           ? launch_f16(l)
                                                              : launch_bf16(l);
    if (!found) return Error{ErrorCode::internal, "an attention kernel that select() doesn't give"};
  }
  if (l.error.empty() && p.partial_out != nullptr) {
    merge_kernel<<<static_cast<unsigned>(std::min<int64_t>(units, int64_t{16} * multiprocessors)),
                   kMergeThreads, 0, stream>>>(p, access);
    l.check(cudaGetLastError(), "launch of the portable merge kernel");
  }
  if (!l.error.empty()) return Error{ErrorCode::internal, std::move(l.error)};
  return {};
}

}  // namespace fovea::cuda::portable
