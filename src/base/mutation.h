#pragma once
// Defects that are planted on purpose, for the test that conformance finds each of them (tests/mutation). The
// code asks mutated(m) where a defect would be. That is a constant, false, unless a build defines
// FOVEA_MUTATIONS: then it is whether `m` is the defect that set_mutation() chose last.
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
  window_wider,    ///< visibility.h: every window holds one key more
  chunk_shifted,   ///< visibility.h: every border of chunks lies one key earlier
  merge_unscaled,  ///< splits are added without the weights that bring them to one maximum
  split_twice,     ///< the last split is added twice
  split_lost,      ///< the last split is not added
  fold_unscaled,   ///< these three: where a GPU's decode kernel merges splits itself
  fold_twice,
  fold_lost,
  group_lost,       ///< a warp's keys are left out of its block's sum
  borders_by_work,  ///< where keys are summed in parts depends on how the work was shared
  offsets_of_32_bits,
  prefill_offsets,    ///< the same of a GPU's prefill kernels
  slopes_of_heads,    ///< ALiBi slopes are 2^(-8 (h + 1) / Hq), whatever the caller gives
  softcap_first,      ///< the soft cap is applied before the scale
  heads_interleaved,  ///< query head h reads KV head h % Hkv
  sink_twice,
  prefill_sum,       ///< a GPU's prefill kernels divide by 1.05 times a row's sum
  instance_missing,  ///< in the table of kernels; of a GPU's a decode kernel
  prefill_instance_missing,
  last_page_lost,   ///< keys of a last page that is not full are not read
  last_block_lost,  ///< the GPU planner leaves out the last of several blocks of keys
  top_left,         ///< the causal mask begins at key 0, not at the end of the keys
};

#ifndef FOVEA_MUTATIONS

consteval bool mutated(Mutation) {
  return false;
}

#else

inline std::atomic<int> planted_mutation{0};

/// What brings planted_mutation to a file's device code.
using MutationSetter = void (*)(int);
inline std::vector<MutationSetter>& mutation_setters() {
  static std::vector<MutationSetter> setters;
  return setters;
}

/// To be called while nothing runs.
inline void set_mutation(Mutation m) {
  planted_mutation = static_cast<int>(m);
  for (const MutationSetter set : mutation_setters())
    set(static_cast<int>(m));
}

#ifdef __CUDACC__
// Device code is linked file by file, so each file has a variable of its own.
static __device__ int device_mutation = 0;
[[maybe_unused]] static const bool has_mutation_setter = [] {
  mutation_setters().push_back([](int m) {
    cudaMemcpyToSymbol(device_mutation, &m, sizeof m);
    cudaGetLastError();  // of code that is for another device
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
