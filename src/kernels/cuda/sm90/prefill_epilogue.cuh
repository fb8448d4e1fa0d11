#pragma once
// Epilogue of a consumer's 64 rows: normalises, converts and stores them from registers, or stores fp32
// partial results for the combine kernel.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/sm90/prefill_softmax.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm90 {

/// Transposes the 4 x 4 words of a quad: word k of lane q becomes word q of lane k.
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

/// finish_row with approximate instructions: relative errors of 2^-22 do not matter to a 16-bit row or an
/// LSE.
FOVEA_DEVICE RowEnd finish_row_approx(float row_max, float row_sum, const float* sink,
                                      bool lse_includes_sink) {
  const float own = row_sum > 0.0f ? (row_max + log2_approx(row_sum)) * kLn2 : -INFINITY;
  RowEnd end{0.0f, own};
  float total = row_sum, scaled = 1.0f;
  if (sink != nullptr) {
    const float sink2 = *sink * kLog2e, top = fmaxf(row_max, sink2), base = finite_max(top);
    scaled = exp2_approx(row_max - base);
    total = fmaf(row_sum, scaled, exp2_approx(sink2 - base) * (mutated(Mutation::sink_twice) ? 2.0f : 1.0f));
    if (lse_includes_sink) end.lse = top == -INFINITY ? top : (top + log2_approx(total)) * kLn2;
    if (sink2 == INFINITY) {  // the sink takes all of the weight; inf - inf would be NaN
      scaled = 0.0f, total = 1.0f;
      if (lse_includes_sink) end.lse = INFINITY;
    }
  }
  if (row_sum > 0.0f) end.inverse = __fdividef(scaled, total);
  if (row_sum != row_sum) end.inverse = end.lse = row_sum;  // propagates a NaN of visible keys
  return end;
}

/// Whether the heads of a policy's cache may have scales.
template <class P>
inline constexpr bool kHasHeadScales = requires { requires !P::kTokenScales; };

/// The scale of a head of an fp8 cache, beside those of the whole cache; `scales`: those of K or V, or null.
FOVEA_DEVICE float head_scale(const KvParams& kv, const float* scales, int head) {
  return scales == nullptr ? 1.0f : __ldg(scales + head * kv.scale_head_stride);
}

/// What a row's store needs: the factor of O, and where the row begins, in units of 16 bytes; kNotStored: the
/// row does not exist.
struct alignas(8) RowTarget {
  static constexpr uint32_t kNotStored = ~0u;
  float factor;
  uint32_t at;
};

/// Finishes row `packed_row`, except for O: writes its LSE or its partial softmax state, and returns where
/// and with which factor O is stored. `row_max` and `row_sum` are those of the whole row. Two lanes of each
/// quad write, each for one of the quad's two rows; the other two compute the same.
template <class P>
FOVEA_DEVICE RowTarget end_row(const AttentionParams& p, const WorkItem& item, int head, int packed_row,
                               float row_max, float row_sum) {
  const int token = p.group.quotient(packed_row), group = static_cast<int>(p.group.divisor);
  const bool writes = threadIdx.x % 4 < 2;  // two lanes of a quad, each for one row
  RowTarget target{1.0f, RowTarget::kNotStored};
  if (token >= item.n_q) return target;
  row_sum = planted_sum(row_sum);
  if (item.num_splits > 1) {
    const int64_t at = partial_row(p, item.partial_first + item.split, head, packed_row - item.row_first);
    if (writes) store_state(p, at, row_max, row_sum);
    target.at = static_cast<uint32_t>(at * (P::kDv / 4));
    if constexpr (kHasHeadScales<P>) target.factor = head_scale(p.kv, p.kv.v_scales, head);
    return target;
  }
  const int query_head = head * group + packed_row - token * group;
  const int row = item.q_first + token;
  const RowEnd end =
      finish_row_approx(row_max, sum_of(item, row_sum), p.sinks == nullptr ? nullptr : p.sinks + query_head,
                        p.lse_includes_sink);
  if (writes && p.lse != nullptr) p.lse[int64_t{row} * p.kv_heads.divisor * group + query_head] = end.lse;
  target.factor = end.inverse * p.kv.v_scale;
  if constexpr (kHasHeadScales<P>) target.factor *= head_scale(p.kv, p.kv.v_scales, head);
  target.at = static_cast<uint32_t>(p.out_rows.offset(row, query_head) / 8);
  return target;
}

FOVEA_DEVICE void store_target(uint32_t address, const RowTarget& target) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(__float_as_uint(target.factor)),
               "r"(target.at)
               : "memory");
}
FOVEA_DEVICE RowTarget load_target(uint32_t address) {
  uint32_t factor, at;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(factor), "=r"(at) : "r"(address) : "memory");
  return {__uint_as_float(factor), at};
}

/// Stores O of rows g and g + 8 of this warp; their targets are at `targets` and 8 targets further.
/// `partial`: unnormalised fp32 into partial_out.
template <class P>
FOVEA_DEVICE void write_output(const AttentionParams& p, bool partial, uint32_t targets,
                               const float (&o)[P::kDv / 2]) {
  using Q = typename P::Q;
  const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const RowTarget row = load_target(targets + h * 8 * static_cast<uint32_t>(sizeof(RowTarget)));
    const bool exists = row.at != RowTarget::kNotStored;
    if (partial) {
      float* to = p.partial_out + int64_t{row.at} * 4 + 2 * q;
#pragma unroll
      for (int j = 0; j < P::kDv / 8; ++j)
        if (exists) {
          const float factor = kHasHeadScales<P> ? row.factor : 1.0f;
          __stcg(reinterpret_cast<float2*>(to + 8 * j),
                 make_float2(o[4 * j + 2 * h] * factor, o[4 * j + 2 * h + 1] * factor));
        }
    } else {
      Q* to = static_cast<Q*>(p.out) + int64_t{row.at} * 8 + 8 * q;
      const int columns = exists ? p.v_head_dim - 8 * q : 0;
#pragma unroll
      for (int j = 0; j < P::kDv / 32; ++j) {
        uint32_t u[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float* from = o + 16 * j + 4 * k + 2 * h;
          u[k] = pack<Q>(from[0] * row.factor, from[1] * row.factor);
        }
        transpose_quad(u);
        if (32 * j < columns) *reinterpret_cast<uint4*>(to + 32 * j) = make_uint4(u[0], u[1], u[2], u[3]);
        if (P::kWide) asm volatile("" ::: "memory");  // stores in order, to limit register use
      }
    }
  }
}

}  // namespace fovea::cuda::sm90
