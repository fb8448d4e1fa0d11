#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/sample/sample_kernel.cuh"

namespace fovea::cuda::sampling {
namespace {

template <int kCluster>
Status launch(const KernelArgs& args, CudaStream& stream) {
  const auto kernel = sample_kernel<kCluster, true>;
  const int part_size = part_size_of(args.sample.width, kCluster);
  const size_t bytes = shared_bytes<kCluster>(part_size, true);
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
  if (kCluster > 8)
    FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(args.sample.num_rows) * kCluster);
  config.blockDim = dim3(Group<kCluster>::kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream.handle();
  config.attrs = &cluster;
  config.numAttrs = 1;
  FOVEA_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, args, part_size));
  return {};
}

}  // namespace

bool cluster_fits(int cluster, int width, int device_bytes) {
  const int part_size = part_size_of(width, cluster);
  const size_t bytes = cluster == 8 ? shared_bytes<8>(part_size, true) : shared_bytes<16>(part_size, true);
  return bytes <= static_cast<size_t>(device_bytes);
}

Status launch_clusters(int cluster, const KernelArgs& args, CudaStream& stream) {
  return cluster == 8 ? launch<8>(args, stream) : launch<16>(args, stream);
}

}  // namespace fovea::cuda::sampling
