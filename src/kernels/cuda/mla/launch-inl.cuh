#pragma once
// Launchers of the instances; those for Hopper alone are in sources of their own.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <type_traits>

#include "kernels/cuda/common/kernel_info.h"
#include "kernels/cuda/mla/policy.h"

namespace fovea::cuda::mla {

struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;  ///< partial_rows and partial_columns are set
  int max_items;                  ///< at least 1
  int major, multiprocessors;
  cudaStream_t stream;
  std::string error = {};  ///< empty: no error

  void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) error = std::string(what) + ": " + cudaGetErrorString(code);
  }
  bool ok() const { return error.empty(); }
};

/// Whether a kernel may begin before the one in front of it has ended.
inline bool is_programmatic(const Launch& l) {
  return l.major == 9;
}

/// Allows a kernel `bytes` of shared memory, once for each device.
template <class Kernel>
void prepare(Kernel kernel, int bytes, std::atomic<bool> (&prepared)[64], Launch& l) {
  int device = 0;
  l.check(cudaGetDevice(&device), "cudaGetDevice");
  if (!l.ok() || (device < 64 && prepared[device].load(std::memory_order_acquire))) return;
  l.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "shared memory of an MLA kernel");
  if (l.ok() && device < 64) prepared[device].store(true, std::memory_order_release);
}

template <class Params>
void queue(void (*kernel)(Params), const Params& params, int64_t blocks, int threads, int bytes, Launch& l,
           const char* what, unsigned cluster = 1) {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (is_programmatic(l)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = l.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  l.check(cudaLaunchKernelEx(&config, kernel, params), what);
}

template <class Query>
constexpr QueryType query_type() {
  return std::is_same_v<Query, __half> ? QueryType::f16 : QueryType::bf16;
}

// Each queues the kernel, or returns false if it is not one of its instances.
bool launch_sm80_bf16(Launch& l);
bool launch_sm80_f16(Launch& l);
bool launch_sm80_ds_mla(Launch& l);
bool launch_sm90_bf16(Launch& l);
bool launch_sm90_f16(Launch& l);
bool launch_sm90_sparse(Launch& l);

}  // namespace fovea::cuda::mla
