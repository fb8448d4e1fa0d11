#pragma once
// Mutation testing: deliberate defects that the conformance suite must detect (tests/mutation). The code
// calls mutated(m) at the place of a defect. It is constant false unless the build defines FOVEA_MUTATIONS;
// then it tells whether `m` is the defect set by set_mutation().
#ifdef FOVEA_MUTATIONS
#include <atomic>
#include <vector>

#include "base/host_device.h"
#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif
#endif

namespace fovea {

enum class Mutation : int {
  none,
  window_wider,            ///< visibility.h: every window is one key wider
  chunk_shifted,           ///< visibility.h: every chunk boundary is one key earlier
  merge_unscaled,          ///< splits are combined without rescaling to a common maximum
  split_twice,             ///< the last split is added twice
  split_lost,              ///< the last split is not added
  fused_combine_unscaled,  ///< fused_combine_*: in a GPU decode kernel that combines splits itself
  fused_combine_twice,
  fused_combine_lost,
  group_lost,       ///< a warp's keys are missing from its block's sum
  borders_by_work,  ///< split boundaries of the keys depend on the distribution of work
  offsets_of_32_bits,
  prefill_offsets,    ///< the same in GPU prefill kernels
  slopes_of_heads,    ///< ALiBi slopes are 2^(-8 (h + 1) / Hq), ignoring the caller's slopes
  softcap_first,      ///< the soft cap is applied before the scale
  heads_interleaved,  ///< query head h reads KV head h % Hkv
  sink_twice,
  prefill_sum,       ///< GPU prefill kernels divide by 1.05 times row_sum
  instance_missing,  ///< in the kernel table; on a GPU, a decode kernel
  prefill_instance_missing,
  last_page_lost,   ///< keys of a partial last page are not read
  last_block_lost,  ///< the GPU planner drops the last of several key blocks
  top_left,         ///< the causal mask is aligned top-left instead of bottom-right
};

#ifndef FOVEA_MUTATIONS

consteval bool mutated(Mutation) {
  return false;
}

#else

inline std::atomic<int> planted_mutation{0};

/// Copies planted_mutation to the device code of one file.
using MutationSetter = void (*)(int);
inline std::vector<MutationSetter>& mutation_setters() {
  static std::vector<MutationSetter> setters;
  return setters;
}

/// Call while no kernel runs.
inline void set_mutation(Mutation m) {
  planted_mutation = static_cast<int>(m);
  for (const MutationSetter set : mutation_setters())
    set(static_cast<int>(m));
}

#ifdef __CUDACC__
// Device code is linked per file, so each file has its own variable.
static __device__ int device_mutation = 0;
[[maybe_unused]] static const bool has_mutation_setter = [] {
  mutation_setters().push_back([](int m) {
    cudaMemcpyToSymbol(device_mutation, &m, sizeof m);
    cudaGetLastError();  // clears the error of code built for another device
  });
  return true;
}();
#endif

[[gnu::always_inline]] FOVEA_HOST_DEVICE inline bool mutated(Mutation m) {
#ifdef __CUDA_ARCH__
  return device_mutation == static_cast<int>(m);
#else
  return planted_mutation.load(std::memory_order_relaxed) == static_cast<int>(m);
#endif
}

#endif

}  // namespace fovea
