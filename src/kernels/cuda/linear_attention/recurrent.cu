// The recurrence row by row, fp32: decode, and any shape. A CTA keeps the state of one head and 128 columns
// of v in registers: it is read once and written once, whatever the number of rows. S^T k and S^T q of a row
// come from one pass over the state before its update, since S_t^T q = exp(g) S^T q + (k.q) e.
#include "kernels/cuda/linear_attention/sequence.cuh"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kColumns = 128;  // of a CTA, four per lane

FOVEA_DEVICE float element(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[at];
    case DType::f16: return __half2float(static_cast<const __half*>(data)[at]);
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  return 0.0f;
}
FOVEA_DEVICE void store_element(void* data, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[at] = x; return;
    case DType::f16: static_cast<__half*>(data)[at] = __float2half_rn(x); return;
    case DType::bf16: static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x); return;
  }
}

FOVEA_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

FOVEA_DEVICE float4 fma4(float a, float4 b, float4 c) {
  return {fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w)};
}
FOVEA_DEVICE float4 add4(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// kRows: rows of the state that a warp holds, every kWarps-th.
template <int kRows>
__global__ void __launch_bounds__(kThreads, kRows > 16 ? 1 : 2)
    recurrent_kernel(const __grid_constant__ RecurrenceParams p) {
  __shared__ float keys[2][kRows * kWarps], queries[2][kRows * kWarps];
  __shared__ float4 known[kWarps][32], read[kWarps][32];
  const int slabs = (p.dv + kColumns - 1) / kColumns;
  const int unit = static_cast<int>(blockIdx.x) / slabs, slab = static_cast<int>(blockIdx.x) % slabs;
  const int head = unit % p.heads, seq = unit / p.heads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id();
  const int column = slab * kColumns + 4 * lane;
  const bool in_columns = column < p.dv;
  const SequenceRows rows = sequence_rows(p.offsets, seq, p.tokens, p.max_len);
  const float* in = state_block(p.states.in, p.states.in_slots, seq, head, p);
  float* out = state_block(p.states.out, p.states.out_slots, seq, head, p);

  float4 s[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = warp + r * kWarps;
    s[r] = {0, 0, 0, 0};
    if (in != nullptr && in_columns && row < p.dk)
      s[r] = __ldcs(reinterpret_cast<const float4*>(in + static_cast<int64_t>(row) * p.dv + column));
  }
  for (int t = 0; t < rows.count; ++t) {
    const int64_t token = rows.first + t;
    const int64_t of_k = token * p.k.token_stride + head / p.group * p.k.head_stride;
    const int64_t of_q = token * p.q.token_stride + head / p.group * p.q.head_stride;
    float* const k = keys[t % 2];
    float* const q = queries[t % 2];
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kWarps; i += kThreads) {
      k[i] = i < p.dk ? element(p.k.data, p.dtype, of_k + i) : 0.0f;
      q[i] = i < p.dk ? element(p.q.data, p.dtype, of_q + i) : 0.0f;
    }
    float4 e = {0, 0, 0, 0};
    if (in_columns) {
      const int64_t of_v = token * p.v.token_stride + head * p.v.head_stride + column;
      e.x = element(p.v.data, p.dtype, of_v);
      e.y = element(p.v.data, p.dtype, of_v + 1);
      e.z = element(p.v.data, p.dtype, of_v + 2);
      e.w = element(p.v.data, p.dtype, of_v + 3);
    }
    const float g = p.g == nullptr ? 0.0f : p.g[token * p.g_stride + head];
    const float beta = p.delta && p.beta != nullptr ? p.beta[token * p.beta_stride + head] : 1.0f;
    __syncthreads();
    float kq = 0, kk = 0, qq = 0;
    for (int i = lane; i < kRows * kWarps; i += 32) {
      kq = fmaf(k[i], q[i], kq);
      kk = fmaf(k[i], k[i], kk);
      qq = fmaf(q[i], q[i], qq);
    }
    float of_key = 1.0f, of_query = p.scale;
    kq = warp_sum(kq);
    if (p.normalize) {
      of_key = rsqrtf(warp_sum(kk) + 1e-6f);
      of_query *= rsqrtf(warp_sum(qq) + 1e-6f);
    }
    float4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (p.delta) a = fma4(k[warp + r * kWarps], s[r], a);
      b = fma4(q[warp + r * kWarps], s[r], b);
    }
    known[warp][lane] = a;
    read[warp][lane] = b;
    __syncthreads();
    const float decay = expf(g);
    if (p.delta) {
      a = known[0][lane];
#pragma unroll
      for (int w = 1; w < kWarps; ++w)
        a = add4(a, known[w][lane]);
      e = fma4(-decay * of_key, a, e);
      e = {beta * e.x, beta * e.y, beta * e.z, beta * e.w};
    }
    if (warp == 0 && in_columns) {
      b = read[0][lane];
#pragma unroll
      for (int w = 1; w < kWarps; ++w)
        b = add4(b, read[w][lane]);
      const float own = kq * of_key;
      b = {decay * b.x, decay * b.y, decay * b.z, decay * b.w};
      b = fma4(own, e, b);
      const int64_t to = token * p.out.token_stride + head * p.out.head_stride + column;
      store_element(p.out.data, p.dtype, to, of_query * b.x);
      store_element(p.out.data, p.dtype, to + 1, of_query * b.y);
      store_element(p.out.data, p.dtype, to + 2, of_query * b.z);
      store_element(p.out.data, p.dtype, to + 3, of_query * b.w);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float key = k[warp + r * kWarps] * of_key;
      s[r] = fma4(key, e, {decay * s[r].x, decay * s[r].y, decay * s[r].z, decay * s[r].w});
    }
  }
  if (out == nullptr || !in_columns) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (warp + r * kWarps < p.dk)
      __stcs(reinterpret_cast<float4*>(out + static_cast<int64_t>(warp + r * kWarps) * p.dv + column), s[r]);
}

}  // namespace

cudaError_t launch_recurrent(const RecurrenceParams& p, cudaStream_t stream) {
  const int slabs = (p.dv + kColumns - 1) / kColumns;
  const auto grid = static_cast<unsigned>(p.seqs * p.heads * slabs);
  if (p.dk <= 16 * kWarps)
    recurrent_kernel<16><<<grid, kThreads, 0, stream>>>(p);
  else
    recurrent_kernel<32><<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace fovea::cuda
