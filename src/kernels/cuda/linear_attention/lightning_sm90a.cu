#include "kernels/cuda/linear_attention/lightning_wgmma.cuh"

namespace fovea::cuda {
namespace {

template <class T>
cudaError_t launch_wgmma(const RecurrenceParams& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(chunked::SharedAhead));
  if (const cudaError_t code = cudaFuncSetAttribute(chunked::lightning_wgmma_kernel<T>,
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      code != cudaSuccess)
    return code;
  chunked::lightning_wgmma_kernel<T>
      <<<static_cast<unsigned>(p.seqs * p.heads), chunked::kAllThreads, kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_lightning_sm90(const RecurrenceParams& p, cudaStream_t stream) {
  return p.dtype == DType::bf16 ? launch_wgmma<__nv_bfloat16>(p, stream) : launch_wgmma<__half>(p, stream);
}

}  // namespace fovea::cuda
