#pragma once
// The end of a consumer's 64 rows: normalise, convert and write them from registers; or leave a part for the
// merge kernel.
#include "kernels/cuda/sm80/finish.cuh"
#include "kernels/cuda/sm90/prefill_softmax.cuh"

namespace fovea::cuda::sm90 {

/// 4 x 4 words of a quad, turned: word k of lane q becomes word q of lane k.
FOVEA_DEVICE void transpose_quad(uint32_t (&u)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? u[i] : u[i + 1], 1);
    (odd ? u[i] : u[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(~0u, upper ? u[i] : u[i + 2], 2);
    (upper ? u[i] : u[i + 2]) = other;
  }
}

/// `row`: of the tile, this thread's of h = 0. `rows`: with the sums of all lanes, and
/// -inf as the base of one that has seen no key.
template <class P>
FOVEA_DEVICE void write_rows(const AttentionParams& p, const WorkItem& item, int head, int row,
                             const float (&o)[P::kDv / 2], const PrefillRows& rows) {
  using Q = typename P::Q;
  const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int packed = item.row_first + row + 8 * h, token = p.group.quotient(packed);
    const int group = static_cast<int>(p.group.divisor);
    const int query_head = head * group + packed - token * group;
    const bool exists = token < item.n_q;
    const float sum = rows.sum[h], base = rows.base[h];
    if (item.num_splits > 1) {
      if (!exists) continue;
      const int64_t at = sm80::partial_row(p, item.partial_first + item.split, head, row + 8 * h);
      if (q == 0) sm80::store_state(p, at, base, sum);
      float* to = p.partial_out + at * P::kDv + 2 * q;
#pragma unroll
      for (int j = 0; j < P::kDv / 8; ++j)
        __stcg(reinterpret_cast<float2*>(to + 8 * j), make_float2(o[4 * j + 2 * h], o[4 * j + 2 * h + 1]));
      continue;
    }
    const sm80::RowEnd end =
        sm80::finish_row(base, sum, p.sinks == nullptr || !exists ? nullptr : p.sinks + query_head,
                         p.lse_includes_sink);
    const float f = end.inverse * p.kv.v_scale;
    if (q == 0 && exists && p.lse != nullptr)
      p.lse[static_cast<int64_t>(item.q_first + token) * p.kv_heads.divisor * group + query_head] = end.lse;
    Q* to = static_cast<Q*>(p.out) + (item.q_first + token) * p.out_row_stride +
            static_cast<int64_t>(query_head) * p.v_head_dim;
#pragma unroll
    for (int j = 0; j < P::kDv / 32; ++j) {
      uint32_t u[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        u[k] = pack<Q>(o[16 * j + 4 * k + 2 * h] * f, o[16 * j + 4 * k + 2 * h + 1] * f);
      transpose_quad(u);
      const int column = 32 * j + 8 * q;
      if (exists && column < p.v_head_dim)
        *reinterpret_cast<uint4*>(to + column) = make_uint4(u[0], u[1], u[2], u[3]);
      asm volatile("" ::: "memory");  // one after the other: registers are few
    }
  }
}

}  // namespace fovea::cuda::sm90
