#pragma once
// The epilogue of a work tile of the decode kernel: combines the results of the warps into the output or into
// a partial result.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

template <class P>
struct DecodeEpilogue {
  const AttentionParams& params;
  float* rows_shared;  ///< shared [kKeyGroups, kCombineRows, kCombinePitch]
  float2* state;       ///< shared [2, kKeyGroups, kRows]
  int parity = 0;

  /// Combines the results of the warps and stores them. `o` as fragments; `row_max` and `row_sum` of rows g
  /// and g + 8.
  __device__ void store(const WorkItem& item, int head, const float (&o)[P::kPartDv / 8][4],
                        const float (&row_max)[2], const float (&row_sum)[2]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = warp / P::kValueParts, part = warp % P::kValueParts;
    const int g = lane / 4, q = lane % 4;
    const int rows = min(P::kRows, item.n_q * static_cast<int>(params.group.divisor) - item.row_first);
    parity ^= 1;
    float2* states = state + parity * P::kKeyGroups * P::kRows;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_sum(row_sum[h]);
      if (q == 0 && part == 0) states[group * P::kRows + h * 8 + g] = make_float2(row_max[h], total);
    }
    __syncthreads();
#pragma unroll
    for (int first = 0; first < P::kRows; first += P::kCombineRows) {
      if (first >= rows) break;
      const int h = first / 8;
      float top = -INFINITY;
      for (int w = 0; w < P::kKeyGroups; ++w)
        top = fmaxf(top, states[w * P::kRows + h * 8 + g].x);
      const float f = exp2_approx(row_max[h] - finite_max(top));
      if (first > 0) __syncthreads();  // the previous rows have been read
      const int row = g - first % 8;
      if (row >= 0 && row < P::kCombineRows)
        put(rows_shared + (group * P::kCombineRows + row) * P::kCombinePitch + part * P::kPartDv, o, h, f);
      __syncthreads();
      reduce(item, head, states, first, min(P::kCombineRows, rows - first));
    }
  }

  /// Writes this lane's columns of a row, multiplied by `f`.
  __device__ void put(float* row, const float (&o)[P::kPartDv / 8][4], int h, float f) const {
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < P::kPartDv / 8; ++j) {
      if constexpr (!P::kEightBit) {
        *reinterpret_cast<float2*>(row + 8 * j + 2 * q) = make_float2(o[j][2 * h] * f, o[j][2 * h + 1] * f);
      } else if (j % 2 == 0) {  // even dims in o[j], odd dims in o[j + 1]
        const float(&odd)[4] = o[j + 1 < P::kPartDv / 8 ? j + 1 : j];
        *reinterpret_cast<float4*>(row + 8 * j + 4 * q) =
            make_float4(o[j][2 * h] * f, odd[2 * h] * f, o[j][2 * h + 1] * f, odd[2 * h + 1] * f);
      }
    }
  }

  /// Sums rows [first, first + count) over the key groups and writes them out.
  __device__ void reduce(const WorkItem& item, int head, const float2* states, int first, int count) {
    constexpr int kColumns = P::kDv / 4;
    for (int i = threadIdx.x; i < count * kColumns; i += P::kThreads) {
      const int row = i / kColumns, column = i % kColumns * 4;
      float top = -INFINITY;
      for (int w = 0; w < P::kKeyGroups; ++w)
        top = fmaxf(top, states[w * P::kRows + first + row].x);
      const float base = finite_max(top);
      float total = 0;
      float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < P::kKeyGroups; ++w) {
        const float2 s = states[w * P::kRows + first + row];
        total = fmaf(s.y, planted_group_weight(exp2_approx(s.x - base), w, P::kKeyGroups), total);
        const float4 x = *reinterpret_cast<const float4*>(
            rows_shared + (w * P::kCombineRows + row) * P::kCombinePitch + column);
        o = make_float4(o.x + x.x, o.y + x.y, o.z + x.z, o.w + x.w);
      }
      if (item.num_splits == 1) {
        finish<typename P::Q>(params, item, head, first + row, column, o, top, total);
      } else {
        const int64_t at = partial_row(params, item.partial_first + item.split, head, first + row);
        __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
        if (column == 0) store_state(params, at, top, total);
      }
    }
  }
};

}  // namespace fovea::cuda::sm80
