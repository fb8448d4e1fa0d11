#pragma once
// CUDA's error codes as Errors that name the failed call and its place.
#include <cuda_runtime_api.h>
#include <string>

#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea {

/// "EXPRESSION failed at FILE:LINE: NAME (CODE): TEXT". The code is out_of_memory for
/// cudaErrorMemoryAllocation, unsupported where the machine can't run this build (no driver or one too old,
/// with both versions; no device; no code for the device), else internal.
Error cuda_error(cudaError_t code, std::string_view expression, std::string_view file, int line);

/// "13.0" of 13000.
std::string cuda_version_text(int version);

}  // namespace fovea

/// Returns from the enclosing function with the error of a CUDA runtime call, if it failed.
#define FOVEA_CUDA_TRY(expr)                                                        \
  do {                                                                              \
    if (const cudaError_t fovea_cuda_code = (expr); fovea_cuda_code != cudaSuccess) \
      return ::fovea::cuda_error(fovea_cuda_code, #expr, __FILE__, __LINE__);       \
  } while (false)
