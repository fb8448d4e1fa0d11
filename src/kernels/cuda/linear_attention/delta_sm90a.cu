#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear_attention/delta_wgmma.cuh"
#include "kernels/cuda/tiles/map_stride.h"
#include "kernels/cuda/tiles/tensor_map.h"

namespace fovea::cuda {
namespace {

Status encode(const RecurrenceParams& p, const void* data, int64_t token_stride, int64_t head_stride,
              int heads, CUtensorMap& map) {
  const auto tokens = static_cast<uint64_t>(p.tokens > 0 ? p.tokens : 1);
  const auto count = static_cast<uint64_t>(heads);
  return encode_tensor_map(
      {p.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
       data,
       {chunked::kDim, count, tokens},
       {map_stride(2 * head_stride, count), map_stride(2 * token_stride, tokens)},
       {chunked::kRowBytes / 2, 1, chunked::kChunk}},
      map);
}

template <class T>
Status launch_wgmma(const DeltaParams& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(chunked::DeltaShared));
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(chunked::delta_wgmma_kernel<T>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  chunked::delta_wgmma_kernel<T>
      <<<static_cast<unsigned>(p.call.seqs * p.call.heads), chunked::kAllThreads, kBytes, stream>>>(p);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

bool is_map(int64_t token_stride, int64_t head_stride, int heads, int tokens) {
  return (heads == 1 || is_map_stride(2 * head_stride)) && (tokens <= 1 || is_map_stride(2 * token_stride));
}

}  // namespace

bool has_delta_sm90(const RecurrenceParams& p) {
  const int k_heads = p.heads / p.group;
  return is_map(p.q.token_stride, p.q.head_stride, k_heads, p.tokens) &&
         is_map(p.k.token_stride, p.k.head_stride, k_heads, p.tokens) &&
         is_map(p.v.token_stride, p.v.head_stride, p.heads, p.tokens) &&
         is_map(p.out.token_stride, p.out.head_stride, p.heads, p.tokens);
}

Status launch_delta_sm90(const RecurrenceParams& call, cudaStream_t stream) {
  DeltaParams p;
  p.call = call;
  const int k_heads = call.heads / call.group;
  FOVEA_RETURN_IF_ERROR(encode(call, call.q.data, call.q.token_stride, call.q.head_stride, k_heads, p.q));
  FOVEA_RETURN_IF_ERROR(encode(call, call.k.data, call.k.token_stride, call.k.head_stride, k_heads, p.k));
  FOVEA_RETURN_IF_ERROR(encode(call, call.v.data, call.v.token_stride, call.v.head_stride, call.heads, p.v));
  FOVEA_RETURN_IF_ERROR(
      encode(call, call.out.data, call.out.token_stride, call.out.head_stride, call.heads, p.out));
  return call.dtype == DType::bf16 ? launch_wgmma<__nv_bfloat16>(p, stream) : launch_wgmma<__half>(p, stream);
}

}  // namespace fovea::cuda
