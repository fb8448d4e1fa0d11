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
  if (thread < 32)
    store_row(const_cast<void*>(p.kv.k), const_cast<float*>(p.kv.k_scales), p.kv.dtype,
              k_place(p.kv, slot, 0, p.rank + p.rope), p.kv.k_scale, p.rank + p.rope, record, thread);
}
