#pragma once
// Launches of the operations that kernels/cache/cache_rows.h describes; all pointers are to device memory.
#include "device/cuda/cuda_stream.h"
#include "kernels/cache/cache_rows.h"

namespace fovea::cuda {

/// Rounds as KvCache::append does, bit for bit; norm and rotation in fp32. Errors, before the launch: sizes,
/// strides or pointers that don't go together.
Status launch_append(const AppendParams& params, CudaStream& stream);

/// cos and sin [count, pairs] of positions[count] x frequencies[pairs] (radians a position, fp64), times
/// `factor`, in fp64 rounded once: rope_rows() of kernels/cpu/ops.h.
Status launch_rope_rows(const double* frequencies, int pairs, double factor, const int32_t* positions,
                        int count, float* cos, float* sin, CudaStream& stream);

Status launch_copy_pages(const CopyPages& params, CudaStream& stream);

Status launch_gather_rows(const GatherRows& params, CudaStream& stream);

}  // namespace fovea::cuda
