#pragma once
// Launching one policy, and finding it in a list.
#include <atomic>
#include <string>

#include "kernels/cuda/sm80/decode_kernel.cuh"
#include "kernels/cuda/sm80/extend_kernel.cuh"
#include "kernels/cuda/sm80/kernel_info.h"

namespace fovea::cuda::sm80 {

struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;
  int max_items;
  cudaStream_t stream;
  Status status = {};
};

inline Status cuda_status(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  return Error{ErrorCode::internal, std::string(what) + ": " + cudaGetErrorString(code)};
}

/// Once for each policy and device: lets a kernel have more shared memory than 48 KiB. Also gives the multiprocessors.
template <class P>
Status prepare(void (*kernel)(AttentionParams), int& multiprocessors) {
  static std::atomic<int> counts[64];  // 0 = not yet
  int device = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) return cuda_status(code, "cudaGetDevice");
  multiprocessors = device < 64 ? counts[device].load(std::memory_order_acquire) : 0;
  if (multiprocessors != 0) return {};
  if (const cudaError_t code =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::kSharedBytes);
      code != cudaSuccess)
    return cuda_status(code, "shared memory of an attention kernel");
  if (const cudaError_t code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
      code != cudaSuccess)
    return cuda_status(code, "cudaDeviceGetAttribute");
  if (device < 64) counts[device].store(multiprocessors, std::memory_order_release);
  return {};
}

template <class P>
bool launch_decode(Launch& l) {
  if (!(l.kernel == decode_info<P>())) return false;
  int multiprocessors = 0;
  l.status = prepare<P>(decode_kernel<P>, multiprocessors);
  if (!l.status.ok() || l.max_items == 0) return true;
  const int64_t units = static_cast<int64_t>(l.max_items) * l.params.kv_heads.divisor;
  const int blocks = static_cast<int>(std::min<int64_t>(units, multiprocessors * P::kBlocksPerSm));
  decode_kernel<P><<<blocks, P::kThreads, P::kSharedBytes, l.stream>>>(l.params);
  l.status = cuda_status(cudaGetLastError(), "launch of a decode kernel");
  return true;
}

template <class P, KernelKind Kind>
bool launch_extend(Launch& l) {
  if (!(l.kernel == extend_info<P>(Kind))) return false;
  int multiprocessors = 0;
  l.status = prepare<P>(extend_kernel<P>, multiprocessors);
  if (!l.status.ok() || l.max_items == 0) return true;
  const int64_t units = static_cast<int64_t>(l.max_items) * l.params.kv_heads.divisor;
  if (units > INT32_MAX) {
    l.status = invalid("a step of " + std::to_string(units) + " attention tiles; at most 2147483647 fit a launch");
    return true;
  }
  extend_kernel<P><<<static_cast<unsigned>(units), P::kThreads, P::kSharedBytes, l.stream>>>(l.params);
  l.status = cuda_status(cudaGetLastError(), "launch of an extend kernel");
  return true;
}

template <class List>
bool launch_decode_list(Launch& l) {
  return List::any([&]<class P>() { return launch_decode<P>(l); });
}
template <class List, KernelKind Kind>
bool launch_extend_list(Launch& l) {
  return List::any([&]<class P>() { return launch_extend<P, Kind>(l); });
}

// One for each file of instances.
bool launch_decode16(Launch& l);
bool launch_decode_general(Launch& l);
bool launch_decode_e4m3(Launch& l);
bool launch_decode_e5m2(Launch& l);
bool launch_decode_int8(Launch& l);
bool launch_extend16(Launch& l);
bool launch_extend_general(Launch& l);
bool launch_extend_eight_bit(Launch& l);

}  // namespace fovea::cuda::sm80
