#include "kernels/cuda/linear_attention/chunked_kernel.cuh"

namespace fovea::cuda {

bool has_chunked(const RecurrenceParams& p) {
  return p.dtype != DType::f32 && p.dk == chunked::kDim && p.dv == chunked::kDim &&
         aligned_rows(p.q.data, p.q.token_stride, p.q.head_stride) &&
         aligned_rows(p.k.data, p.k.token_stride, p.k.head_stride) &&
         aligned_rows(p.v.data, p.v.token_stride, p.v.head_stride) &&
         aligned_rows(p.out.data, p.out.token_stride, p.out.head_stride);
}

cudaError_t launch_chunked(const RecurrenceParams& p, cudaStream_t stream) {
  int device = 0, major = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) return code;
  if (const cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
      code != cudaSuccess)
    return code;
  // The delta rule's triangular systems are the longest chain there, which wgmma does not shorten.
  if (major == 9 && !p.delta) return launch_lightning_sm90(p, stream);
  if (p.dtype == DType::bf16)
    return p.delta ? chunked::launch_chunked_of<__nv_bfloat16, true>(p, stream)
                   : chunked::launch_chunked_of<__nv_bfloat16, false>(p, stream);
  return p.delta ? chunked::launch_chunked_of<__half, true>(p, stream)
                 : chunked::launch_chunked_of<__half, false>(p, stream);
}

}  // namespace fovea::cuda
