#pragma once
// What the kernels of linear attention take: the calls of fovea/linear_attention.h with defaults resolved.
#include <cuda_runtime_api.h>

#include "fovea/linear_attention.h"

namespace fovea::cuda {

struct RecurrenceParams {
  HeadRows q, k, v;
  WrittenHeadRows out;
  const int32_t* offsets = nullptr;
  int seqs = 0, tokens = 0, max_len = 0;
  int heads = 0, group = 0;  ///< group: heads of v per head of k
  int dk = 0, dv = 0;
  const float* g = nullptr;  ///< log of the decay of row t and head h at t * g_stride + h; null = 0
  const float* beta = nullptr;
  int64_t g_stride = 0, beta_stride = 0;
  float scale = 1.0f;
  bool delta = false, normalize = false;
  LinearStates states;
  DType dtype = DType::bf16;
};

struct HstuParams {
  HstuAttention call;  ///< alpha is set
  int max_rows = 0;    ///< most queries of a sequence
};

/// One CTA for each (sequence, head, 128 columns of v), row by row.
cudaError_t launch_recurrent(const RecurrenceParams& p, cudaStream_t stream);
/// Whether launch_chunked() takes the shape: 16-bit types, Dk = Dv = 128, aligned.
bool has_chunked(const RecurrenceParams& p);
/// One CTA for each (sequence, head), chunks of 64 rows on tensor cores.
Status launch_chunked(const RecurrenceParams& p, cudaStream_t stream);
/// The same without `delta` by wgmma, on compute capability 9.0 only.
cudaError_t launch_lightning_sm90(const RecurrenceParams& p, cudaStream_t stream);
/// The same with `delta`, if tensor maps can express the strides.
bool has_delta_sm90(const RecurrenceParams& p);
Status launch_delta_sm90(const RecurrenceParams& p, cudaStream_t stream);
/// 16-bit types, Dk = Dv = 64 or 128, aligned.
bool has_hstu(const HstuAttention& c);
cudaError_t launch_hstu_tiles(const HstuParams& p, cudaStream_t stream);

/// 16-byte loads of rows.
inline bool aligned_rows(const void* data, int64_t token_stride, int64_t head_stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && token_stride % 8 == 0 && head_stride % 8 == 0;
}

}  // namespace fovea::cuda
