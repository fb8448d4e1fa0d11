#pragma once
// State that launch() passes to the launchers of this family's kernels.
#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/sm90/select.h"

namespace fovea::cuda::sm90 {

struct Launch {
  const KernelInfo& kernel;
  const AttentionParams& params;  ///< partial_rows, partial_columns and v_gain are set
  int max_items;                  ///< at least 1
  int multiprocessors;
  cudaStream_t stream;
  std::string error = {};  ///< empty: no error
  LaunchRecord record = {};

  void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) error = std::string(what) + ": " + cudaGetErrorString(code);
  }
  int64_t work_tiles() const { return int64_t{max_items} * params.kv_heads.divisor; }
};

/// Queue the kernel. False: it is not a prefill (decode) kernel that is compiled.
bool launch_prefill(Launch& l);
bool launch_decode(Launch& l);

}  // namespace fovea::cuda::sm90
