#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear_attention/chunked_kernel.cuh"

namespace fovea::cuda {

bool has_chunked(const RecurrenceParams& p) {
  return p.dtype != DType::f32 && p.dk == chunked::kDim && p.dv == chunked::kDim &&
         aligned_rows(p.q.data, p.q.token_stride, p.q.head_stride) &&
         aligned_rows(p.k.data, p.k.token_stride, p.k.head_stride) &&
         aligned_rows(p.v.data, p.v.token_stride, p.v.head_stride) &&
         aligned_rows(p.out.data, p.out.token_stride, p.out.head_stride);
}

namespace {

template <class T>
cudaError_t launch_of(const RecurrenceParams& p, cudaStream_t stream) {
  return p.delta ? chunked::launch_chunked_of<T, true>(p, stream)
                 : chunked::launch_chunked_of<T, false>(p, stream);
}

}  // namespace

Status launch_chunked(const RecurrenceParams& p, cudaStream_t stream) {
  int device = 0, major = 0;
  FOVEA_CUDA_TRY(cudaGetDevice(&device));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major == 9 && p.delta && has_delta_sm90(p)) return launch_delta_sm90(p, stream);
  if (major == 9 && !p.delta)
    FOVEA_CUDA_TRY(launch_lightning_sm90(p, stream));
  else if (p.dtype == DType::bf16)
    FOVEA_CUDA_TRY(launch_of<__nv_bfloat16>(p, stream));
  else
    FOVEA_CUDA_TRY(launch_of<__half>(p, stream));
  return {};
}

}  // namespace fovea::cuda
