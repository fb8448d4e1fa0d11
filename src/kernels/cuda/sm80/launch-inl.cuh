#pragma once
// Launches a policy, and finds it in a list.
#include <atomic>
#include <string>

#include "kernels/cuda/sm80/decode_kernel.cuh"
#include "kernels/cuda/sm80/decode_narrow_kernel.cuh"
#include "kernels/cuda/sm80/extend_kernel.cuh"
#include "kernels/cuda/sm80/kernel_info.h"

namespace fovea::cuda::sm80 {

struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;
  int max_items;
  cudaStream_t stream;
  bool programmatic = false;  ///< the device has programmatic dependent launch
  std::string error = {};     ///< empty = queued

  void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) error = std::string(what) + ": " + cudaGetErrorString(code);
  }
};

/// Once for each policy and device: allows a kernel more than 48 KiB of shared memory, as much as it is sized
/// for or the device has. Returns the number of multiprocessors; 0 with an error.
template <class P>
int prepare(void (*kernel)(AttentionParams), Launch& l, int most_bytes, int static_bytes = 0) {
  constexpr int kDevices = 64;
  static std::atomic<int> counts[kDevices];  // 0 = not yet
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (!l.error.empty()) return 0;
  int count = device < kDevices ? counts[device].load(std::memory_order_acquire) : 0, has = 0;
  if (count != 0) return count;
  l.check(cudaDeviceGetAttribute(&has, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
  if (l.error.empty())
    l.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 std::min(most_bytes, has - static_bytes)),
            "shared memory of an attention kernel");
  if (l.error.empty())
    l.check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  if (!l.error.empty()) return 0;
  if (device < kDevices) counts[device].store(count, std::memory_order_release);
  return count;
}

/// Launches a kernel with programmatic dependent launch, so that it may start while the previous one
/// finishes; on devices before sm_90 it waits for the previous one.
inline cudaError_t queue(void (*kernel)(AttentionParams), int64_t blocks, int threads, int shared_bytes,
                         Launch& l) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = l.stream;
  config.attrs = &attribute;
  config.numAttrs = l.programmatic ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, l.params);
}

template <class P>
bool launch_decode(Launch& l) {
  if (!is_same_kernel(l.kernel, decode_info<P>())) return false;
  const int multiprocessors = prepare<P>(decode_kernel<P>, l, P::shared_bytes(P::kStages), P::kStaticBytes);
  if (multiprocessors == 0 || l.max_items == 0) return true;
  const int64_t work_tiles = static_cast<int64_t>(l.max_items) * l.params.kv_heads.divisor;
  const int64_t blocks = std::min<int64_t>(work_tiles, multiprocessors * l.kernel.blocks_per_sm);
  l.check(queue(decode_kernel<P>, blocks, P::kThreads, P::shared_bytes(l.kernel.stages), l),
          "launch of a decode kernel");
  return true;
}

template <class P>
bool launch_narrow(Launch& l) {
  if (!is_same_kernel(l.kernel, narrow_info<P>())) return false;
  const int multiprocessors = prepare<P>(decode_narrow_kernel<P>, l, P::kSharedBytes);
  if (multiprocessors == 0 || l.max_items == 0) return true;
  const int64_t work_tiles = static_cast<int64_t>(l.max_items) * l.params.kv_heads.divisor;
  const int64_t blocks = std::min<int64_t>(work_tiles, multiprocessors * P::kBlocksPerSm);
  l.check(queue(decode_narrow_kernel<P>, blocks, P::kThreads, P::kSharedBytes, l),
          "launch of a decode kernel");
  return true;
}

template <class P, KernelKind Kind>
bool launch_extend(Launch& l) {
  if (!is_same_kernel(l.kernel, extend_info<P>(Kind))) return false;
  if (prepare<P>(extend_kernel<P>, l, P::shared_bytes(P::kSlots)) == 0 || l.max_items == 0) return true;
  const int64_t work_tiles = static_cast<int64_t>(l.max_items) * l.params.kv_heads.divisor;
  if (work_tiles > INT32_MAX) {
    l.error = "a step of " + std::to_string(work_tiles) + " attention tiles; at most 2147483647 fit a launch";
    return true;
  }
  l.check(queue(extend_kernel<P>, work_tiles, P::kThreads, P::shared_bytes(l.kernel.stages), l),
          "launch of an extend kernel");
  return true;
}

template <class List>
bool launch_decode_list(Launch& l) {
  return List::any([&]<class P>() { return launch_decode<P>(l); });
}
template <class List>
bool launch_narrow_list(Launch& l) {
  return List::any([&]<class P>() { return launch_narrow<P>(l); });
}
template <class List, KernelKind Kind>
bool launch_extend_list(Launch& l) {
  return List::any([&]<class P>() { return launch_extend<P, Kind>(l); });
}

// One for each .cu file of instances.
bool launch_narrow16(Launch& l);
bool launch_narrow8(Launch& l);
bool launch_decode16(Launch& l);
bool launch_decode_general(Launch& l);
bool launch_decode_e4m3(Launch& l);
bool launch_decode_e5m2(Launch& l);
bool launch_decode_int8(Launch& l);
bool launch_extend16(Launch& l);
bool launch_extend_general(Launch& l);
bool launch_extend_eight_bit(Launch& l);
bool launch_extend_compact(Launch& l);

}  // namespace fovea::cuda::sm80
