#pragma once
// Launches a policy, and finds it in a list.
#include <atomic>
#include <string>

#include "kernels/cuda/portable/kernel.cuh"
#include "kernels/cuda/portable/kernel_info.h"

namespace fovea::cuda::portable {

struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;
  const Access& access;
  int max_items;
  int device, multiprocessors;
  cudaStream_t stream;
  std::string error = {};  ///< empty = queued

  void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) error = std::string(what) + ": " + cudaGetErrorString(code);
  }
};

template <class P>
bool launch_policy(Launch& l) {
  if (!(l.kernel == info_of<P>(l.kernel.kind, l.kernel.q, l.kernel.kv))) return false;
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  if (l.device >= kDevices || !prepared[l.device].load(std::memory_order_acquire)) {
    l.check(cudaFuncSetAttribute(attention_kernel<P>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 P::kSharedBytes),
            "shared memory of a portable attention kernel");
    if (!l.error.empty()) return true;
    if (l.device < kDevices) prepared[l.device].store(true, std::memory_order_release);
  }
  // For extend one CTA for each work tile, because their costs differ much; for decode as many CTAs as are
  // resident.
  const int64_t work_tiles = int64_t{l.max_items} * l.params.kv_heads.divisor;
  const int64_t most =
      l.kernel.kind == KernelKind::decode ? int64_t{l.multiprocessors} * P::kBlocksPerSm : INT32_MAX;
  attention_kernel<P>
      <<<static_cast<unsigned>(std::min(work_tiles, most)), P::kThreads, P::kSharedBytes, l.stream>>>(
          l.params, l.access);
  l.check(cudaGetLastError(), "launch of a portable attention kernel");
  return true;
}

template <class List>
bool launch_list(Launch& l) {
  return List::any([&]<class P>() { return launch_policy<P>(l); });
}

// One for each .cu file of instances.
bool launch_bf16(Launch& l);
bool launch_f16(Launch& l);
bool launch_float(Launch& l);

}  // namespace fovea::cuda::portable
