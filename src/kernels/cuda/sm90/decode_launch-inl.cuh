#pragma once
// Launches the kernel of one decode policy.
#include <algorithm>
#include <atomic>

#include "kernels/cuda/sm90/decode_info.h"
#include "kernels/cuda/sm90/decode_kernel.cuh"
#include "kernels/cuda/sm90/launch-inl.cuh"

namespace fovea::cuda::sm90 {

/// Allows the kernel more than 48 KiB of shared memory, once for each policy and device.
template <class P>
void prepare_decode(Launch& l) {
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (!l.error.empty() || (device < kDevices && prepared[device].load(std::memory_order_acquire))) return;
  l.check(
      cudaFuncSetAttribute(decode_kernel<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kSharedBytes),
      "shared memory of a decode kernel");
  if (l.error.empty() && device < kDevices) prepared[device].store(true, std::memory_order_release);
}

/// CTA groups, of one CTA for each KV head, that the device holds at once; at most one for each item.
inline int decode_cta_groups(const Launch& l) {
  const int heads = static_cast<int>(l.params.kv_heads.divisor);
  const int64_t limit = std::min<int64_t>(l.max_items, INT32_MAX / l.max_items);  // of CtaGroupDivision
  return static_cast<int>(std::clamp<int64_t>(l.multiprocessors / heads, 1, std::max<int64_t>(limit, 1)));
}

template <class P>
bool launch_decode_policy(Launch& l) {
  if (!is_decode<P>(l.kernel)) return false;
  if (l.params.partial_out != nullptr && l.params.arrivals == nullptr) {
    l.error = "the sm90 decode kernels combine partial results themselves and need AttentionParams::arrivals";
    return true;
  }
  prepare_decode<P>(l);
  if (!l.error.empty()) return true;
  const DecodeGrid grid{decode_cta_groups(l), l.params.planned, l.params.planned && l.params.past_kv_ready,
                        l.max_items};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.cta_groups) * l.params.kv_heads.divisor);
  config.blockDim = dim3(P::kThreads);
  config.dynamicSmemBytes = P::kSharedBytes;
  config.stream = l.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  l.check(cudaLaunchKernelEx(&config, decode_kernel<P>, l.params, grid), "launch of a decode kernel");
  return true;
}

}  // namespace fovea::cuda::sm90
