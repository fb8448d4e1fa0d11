#include "kernels/cuda/sample/sample.h"

#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/sample/sample_kernel.cuh"

namespace fovea::cuda {
namespace sampling {
namespace {

struct DeviceLimits {
  int major = 0;
  int shared_bytes = 0;  ///< the most that a CTA may have
};

DeviceLimits limits_of(int device) {
  DeviceLimits limits;
  cudaDeviceGetAttribute(&limits.major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return limits;
}

// More rows than this fill the device with a CTA each.
constexpr int kMaxClusterRows = 48;

/// CTAs of a row; any choice gives the same bytes. Few rows are spread over many CTAs.
int cluster_for(int rows, int width, bool has_scratch, int device) {
  const DeviceLimits limits = limits_of(device);
  if (limits.major != 9 || (rows > kMaxClusterRows && has_scratch)) return 1;
  for (const int cluster : {rows <= 2 ? 16 : 8, 16})
    if (cluster_fits(cluster, width, limits.shared_bytes)) return cluster;
  return 1;
}

Status check(const KernelArgs& args) {
  const SampleArgs& a = args.sample;
  if (a.vocab < 1 || a.width < a.vocab || a.width > kMaxSampleVocab)
    return invalid("sampling from " + std::to_string(a.vocab) + " of " + std::to_string(a.width) +
                   " logits; 1 to " + std::to_string(kMaxSampleVocab) + " are supported");
  if (a.num_rows < 0 || (a.num_rows > 0 && !a.logits))
    return invalid("sampling from " + std::to_string(a.num_rows) + " rows; pass logits of 0 rows or more");
  return {};
}

Status launch(int cluster, const KernelArgs& args, CudaStream& stream) {
  return cluster == 1 ? launch_single(args, stream) : launch_clusters(cluster, args, stream);
}

Status launch(const KernelArgs& args, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check(args));
  if (args.sample.num_rows == 0) return {};
  const bool has_scratch = args.sample.scratch || args.separate;  // without edits none is used
  return launch(cluster_for(args.sample.num_rows, args.sample.width, has_scratch, stream.device()), args,
                stream);
}

}  // namespace

Status launch_single(const KernelArgs& args, CudaStream& stream) {
  const auto kernel = sample_kernel<1, false>;
  const size_t bytes = shared_bytes<1>(0, false);
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<static_cast<unsigned>(args.sample.num_rows), Group<1>::kThreads, bytes, stream.handle()>>>(
      args, part_size_of(args.sample.width, 1));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status launch_variant(int cluster, const SampleArgs& args, CudaStream& stream, bool general) {
  const KernelArgs kernel_args = {args, {}, false, general};
  FOVEA_RETURN_IF_ERROR(check(kernel_args));
  return args.num_rows == 0 ? Status() : launch(cluster, kernel_args, stream);
}

}  // namespace sampling

int64_t sample_scratch_bytes(int32_t max_rows, int32_t width, const CudaStream& stream) {
  return sampling::cluster_for(max_rows, width, true, stream.device()) == 1 ? int64_t{4} * max_rows * width
                                                                            : 0;
}

Status launch_sample(const SampleArgs& args, CudaStream& stream) {
  return sampling::launch({args, {}}, stream);
}

Status launch_draw(const DrawArgs& args, CudaStream& stream) {
  SampleArgs sample;
  sample.logits = args.logits;
  sample.row_stride = args.row_stride;
  sample.width = sample.vocab = args.vocab;
  sample.num_rows = args.rows;
  sample.tokens = args.tokens;
  return sampling::launch({sample, args, true}, stream);
}

}  // namespace fovea::cuda
