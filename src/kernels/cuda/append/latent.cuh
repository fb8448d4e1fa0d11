// Appending records of latent attention: a CTA takes one token. Included by append.cu alone, after what it
// uses.

constexpr int kLatentThreads = 256;

/// Rotates pair t of a head's part.
template <class T, class Out>
__device__ void rotate_pair(const LatentAppendParams& p, int64_t token, int t, const T* in, Out* out) {
  const int pairs = p.rope / 2;
  const int i = p.interleaved ? 2 * t : t, j = p.interleaved ? 2 * t + 1 : t + pairs;
  const float c = p.cos[token * pairs + t], s = p.sin[token * pairs + t], a = to_float(in[i]),
              b = to_float(in[j]);
  out[i] = rounded<Out>(__fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)));
  out[j] = rounded<Out>(__fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s)));
}

/// store_ds_mla() of kernels/cache/ds_mla.h by the CTA; `record` is in shared memory. A warp takes a group of
/// elements with one scale, four of them a lane.
__device__ inline void store_ds_mla_record(char* to, const float* record, int rank, int rope) {
  static_assert(kDsMlaGroup == 4 * 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int group = static_cast<int>(threadIdx.x) / 32; group < rank / kDsMlaGroup;
       group += kLatentThreads / 32) {
    const float* const in = record + group * kDsMlaGroup + 4 * lane;
    float most = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (fabsf(in[e]) < INFINITY) most = fmaxf(most, fabsf(in[e]));
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAll, most, step));
    // The least power of two that is at least this.
    const uint32_t bits = __float_as_uint(fmaxf(__fdiv_rn(most, kE4m3Max), 1e-4f));
    const float scale = __uint_as_float((bits + 0x007fffffu) & 0x7f800000u);
    uint32_t codes = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      codes |= static_cast<uint32_t>(float_to_e4m3(divided(in[e], scale))) << (8 * e);
    reinterpret_cast<uint32_t*>(to + group * kDsMlaGroup)[lane] = codes;
    if (lane == 0) reinterpret_cast<float*>(to + ds_mla_scales(rank))[group] = scale;
  }
  for (int i = static_cast<int>(threadIdx.x); i < rope; i += kLatentThreads)
    reinterpret_cast<uint16_t*>(to + ds_mla_rope(rank))[i] = float_to_bf16(record[rank + i]);
}

template <class T>
__global__ void __launch_bounds__(kLatentThreads, 4)
    latent_kernel(const __grid_constant__ LatentAppendParams p) {
  __shared__ alignas(16) float record[kMaxRowElements];
  __shared__ float parts[kLatentThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), pairs = p.rope / 2;
  const int64_t token = blockIdx.x;
  grid_launch_dependents();
  grid_dependency_wait();
  const T* q = static_cast<const T*>(p.q) + token * p.q_row_stride;
  T* q_out = static_cast<T*>(p.q_out) + token * p.q_out_row_stride;
  for (int i = thread; i < p.heads * pairs; i += kLatentThreads) {
    const int head = i / pairs;
    rotate_pair(p, token, i - head * pairs, q + head * p.q_head_stride, q_out + head * p.q_out_head_stride);
  }
  const int64_t slot = p.slots[token];
  if (slot < 0 || slot >= p.num_slots) return;
  const T* in = static_cast<const T*>(p.record) + token * p.record_row_stride;
  // A thread sums every 256th square, then lanes and warps in a tree.
  float sum = 0.0f;
  for (int i = thread; i < p.rank; i += kLatentThreads) {
    record[i] = to_float(in[i]);
    sum = fmaf(record[i], record[i], sum);
  }
  sum = warp_sum(sum);
  if (thread % 32 == 0) parts[thread / 32] = sum;
  if (thread < pairs) rotate_pair(p, token, thread, in + p.rank, record + p.rank);
  __syncthreads();
  sum = warp_sum(thread % 32 < kLatentThreads / 32 ? parts[thread % 32] : 0.0f);
  const float by = norm_factor(p.norm, sum, p.rank);
  for (int i = thread; i < p.rank; i += kLatentThreads)
    record[i] = __fmul_rn(__fmul_rn(record[i], by), p.norm.weight[i]);
  __syncthreads();
  if (p.kv.dtype == KvCacheDType::fp8_ds_mla) {
    const auto [page, offset] = divide(slot, p.kv.page_size);
    store_ds_mla_record(static_cast<char*>(const_cast<void*>(p.kv.k)) + page * p.kv.k_page_stride +
                            offset * p.kv.k_slot_stride,
                        record, p.rank, p.rope);
    return;
  }
  if (thread < 32)
    store_row(const_cast<void*>(p.kv.k), const_cast<float*>(p.kv.k_scales), p.kv.dtype,
              k_place(p.kv, slot, 0, p.rank + p.rope), p.kv.k_scale, p.rank + p.rope, record, thread);
}
