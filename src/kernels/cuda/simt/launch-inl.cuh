#pragma once
// Launches a policy of the CUDA-core decode kernels.
#include <atomic>

#include "kernels/cuda/simt/decode_kernel.cuh"

namespace fovea::cuda::simt {

/// A launch with programmatic dependent launch: the kernel may start while the previous one finishes; on
/// devices before sm_90 it waits for the previous one.
struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;
  int64_t work_tiles;
  int multiprocessors;
  bool programmatic;
  cudaStream_t stream;

  template <class... Args>
  cudaError_t queue(void (*function)(Args...), int64_t blocks, int threads, int shared_bytes,
                    Args... args) const {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(std::min(blocks, work_tiles)));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    return cudaLaunchKernelEx(&config, function, args...);
  }
};

template <class P>
cudaError_t launch_policy(const Launch& l) {
  // Once for each device: allow more than 48 KiB of shared memory.
  constexpr int kDevices = 64;
  static std::atomic<bool> prepared[kDevices];
  int device = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) return code;
  if (device >= kDevices || !prepared[device].load(std::memory_order_acquire)) {
    int has = 0;
    cudaError_t code = cudaDeviceGetAttribute(&has, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (code == cudaSuccess)
      code = cudaFuncSetAttribute(decode_kernel<P>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  std::min(P::shared_bytes(P::kStages), has));
    if (code != cudaSuccess) return code;
    if (device < kDevices) prepared[device].store(true, std::memory_order_release);
  }
  return l.queue(decode_kernel<P>, int64_t{l.multiprocessors} * l.kernel.blocks_per_sm, P::kThreads,
                 P::shared_bytes(l.kernel.stages), l.params, l.kernel.q == QueryType::f16);
}

/// False where the list has no such kernel.
template <Keys Keys_>
bool launch_list(const Launch& l, cudaError_t& code) {
  return any_policy<Keys_>([&]<class P>() {
    if (P::kKeys != keys_of(l.kernel.q, l.kernel.kv) || !is_same_kernel(l.kernel, kernel_info<P>(l.kernel.q)))
      return false;
    code = launch_policy<P>(l);
    return true;
  });
}

// One for each .cu file of instances.
bool launch16(const Launch& l, cudaError_t& code);
bool launch8(const Launch& l, cudaError_t& code);

}  // namespace fovea::cuda::simt
