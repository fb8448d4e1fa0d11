#pragma once
// The kernels behind sample.h: by the number of CTAs that work on a row. All give the same bytes.
#include <cuda_runtime_api.h>

#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/sample/sample.h"

namespace fovea::cuda::sampling {

/// Parameters of a launch: all in `sample`, or those of the rows in `draw`'s arrays.
struct KernelArgs {
  SampleArgs sample;
  DrawArgs draw;
  bool separate = false;
  bool general = false;  ///< without the shortcut of a list of the largest logits (tests)
};

/// CTAs of a row: 1 = rows stay in global memory, on any device; else a cluster, on Hopper alone.
inline constexpr int kClusterSizes[] = {1, 8, 16};

/// Whether rows of `width` logits fit into the shared memory of a cluster, `device_bytes` for each CTA.
bool cluster_fits(int cluster, int width, int device_bytes);

Status launch_clusters(int cluster, const KernelArgs& args, CudaStream& stream);
Status launch_single(const KernelArgs& args, CudaStream& stream);

/// As launch_sample() with a given number of CTAs for a row (tests, benchmarks).
Status launch_variant(int cluster, const SampleArgs& args, CudaStream& stream, bool general = false);

}  // namespace fovea::cuda::sampling
