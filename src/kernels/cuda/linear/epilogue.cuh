#pragma once
// The arithmetic after the sums, the same in all kernels. Every operation has explicit rounding, so that the
// compiler fuses none of them in one kernel and not in another.
#include <type_traits>

#include "kernels/cuda/linear/epilogue.h"
#include "kernels/cuda/tiles/common.cuh"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda {

FOVEA_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// erfc(x) for x >= 0, relative error 1.2e-7: the rational Chebyshev fit of Numerical Recipes, section 6.2.
FOVEA_DEVICE float erfc_approx(float x) {
  constexpr float kLog2E = 1.44269504f;
  const float t = rcp_approx(__fmaf_rn(0.5f, x, 1.0f));
  float s = 0.17087277f;
  s = __fmaf_rn(s, t, -0.82215223f);
  s = __fmaf_rn(s, t, 1.48851587f);
  s = __fmaf_rn(s, t, -1.13520398f);
  s = __fmaf_rn(s, t, 0.27886807f);
  s = __fmaf_rn(s, t, -0.18628806f);
  s = __fmaf_rn(s, t, 0.09678418f);
  s = __fmaf_rn(s, t, 0.37409196f);
  s = __fmaf_rn(s, t, 1.00002368f);
  s = __fmaf_rn(s, t, -1.26551223f);
  return __fmul_rn(t, exp2_approx(__fmul_rn(__fmaf_rn(-x, x, s), kLog2E)));
}

/// activation(gate) * up. 16-bit results: exponentials and reciprocals of relative error 2^-21 or better.
template <bool kPrecise>
FOVEA_DEVICE float gated_value(const EpilogueParams& e, float gate, float up) {
  constexpr float kLog2E = 1.44269504f;
  if (e.limit > 0.0f) {  // comparisons that keep NaN
    gate = gate > e.limit ? e.limit : gate;
    up = up > e.limit ? e.limit : up < -e.limit ? -e.limit : up;
    up = __fadd_rn(up, 1.0f);
  }
  float activated;
  if (e.form == GateForm::sigmoid) {
    const float t =
        __fmul_rn(gate, e.cubic == 0.0f ? e.linear : __fmaf_rn(__fmul_rn(e.cubic, gate), gate, e.linear));
    if constexpr (kPrecise)
      activated = __fdiv_rn(gate, __fadd_rn(1.0f, expf(-t)));
    else
      activated = __fmul_rn(gate, rcp_approx(__fadd_rn(1.0f, exp2_approx(__fmul_rn(t, -kLog2E)))));
  } else if (e.form == GateForm::erf) {
    const float x = __fmul_rn(fabsf(gate), 0.70710678f);
    float tail = 0.0f;
    if constexpr (kPrecise)
      tail = erfcf(x);
    else
      tail = erfc_approx(x);
    tail = __fmul_rn(tail, 0.5f);
    activated = __fmul_rn(gate, gate < 0.0f ? tail : __fadd_rn(1.0f, -tail));
  } else {
    activated = gate < 0.0f ? 0.0f : gate;
  }
  return __fmul_rn(activated, up);
}

/// The scaled and capped logit.
FOVEA_DEVICE float logit_value(const EpilogueParams& e, float v) {
  v = __fmul_rn(v, e.scale);
  return e.softcap > 0.0f ? __fmul_rn(e.softcap, tanhf(__fdiv_rn(v, e.softcap))) : v;
}

/// One element of y, for edges and the fp32 kernel.
template <class T>
FOVEA_DEVICE void store_value(const EpilogueParams& e, int row, int column, float v) {
  if (row >= e.rows || column >= e.columns) return;
  const int64_t at = row * e.y_stride + column;
  if (e.f32) {
    float* y = static_cast<float*>(e.y) + at;
    *y = e.kind == LinearEpilogue::residual ? __fmaf_rn(e.scale, v, *y) : v;
  } else if constexpr (!std::is_same_v<T, float>) {
    static_cast<uint16_t*>(e.y)[at] = static_cast<uint16_t>(pack<T>(v, 0.0f));
  }
}

/// Lane q of a quad gives value j of its own to lane j and gets its value q of lane j: v[j] becomes lane j's
/// v[q].
FOVEA_DEVICE void transpose_quad(uint32_t (&v)[4]) {
  const bool odd = (lane_id() & 1) != 0, high = (lane_id() & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {  // 2 x 2 blocks of neighbouring lanes
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[i + 1], 1);
    v[i] = odd ? got : v[i];
    v[i + 1] = odd ? v[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + 2], 2);
    v[i] = high ? got : v[i];
    v[i + 2] = high ? v[i + 2] : got;
  }
}

/// Accumulators of 8 kGroups columns and of the rows `row` and `row + 8`, as mma.sync and wgmma leave them:
/// d[4 j + 2 h + i] is column first + 8 j + 2 (lane % 4) + i of row + 8 h. The warp is converged.
template <class T, bool kGated, int kGroups>
struct Epilogue {
  static constexpr int kOut = kGated ? kGroups / 2 : kGroups;  // groups of 8 columns of y
  const EpilogueParams& e;

  /// `first`: the first column, of y. `groups`: how many groups of 8 columns of y exist, up to kOut.
  FOVEA_DEVICE void run(float (&d)[4 * kGroups], int row, int first, int groups) const {
    const int column = first + 2 * (lane_id() & 3);
    if (e.bias != nullptr) add_bias(d, column, groups);
    if constexpr (kGated) {
#pragma unroll
      for (int j = 0; j < kOut; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          d[4 * j + i] = gated_value<false>(e, d[8 * j + i], d[8 * j + 4 + i]);
    } else if (e.kind == LinearEpilogue::logits) {
#pragma unroll
      for (int i = 0; i < 4 * kOut; ++i)
        d[i] = logit_value(e, d[i]);
    }
    if (e.f32)
      store_f32(d, row, column, groups);
    else
      store_16(d, row, first, groups);
  }

 private:
  FOVEA_DEVICE float bias_at(int column) const { return column < e.columns ? __ldg(e.bias + column) : 0.0f; }
  FOVEA_DEVICE void add_bias(float (&d)[4 * kGroups], int column, int groups) const {
#pragma unroll
    for (int j = 0; j < kOut; ++j)
      if (j < groups) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int c = column + 8 * j + i;
          const float b = bias_at(c);
          constexpr int kStep = kGated ? 8 : 4;
          d[kStep * j + i] = __fadd_rn(d[kStep * j + i], b);
          d[kStep * j + 2 + i] = __fadd_rn(d[kStep * j + 2 + i], b);
          if constexpr (kGated) {
            const float u = c < e.columns ? __ldg(e.bias + e.columns + c) : 0.0f;
            d[8 * j + 4 + i] = __fadd_rn(d[8 * j + 4 + i], u);
            d[8 * j + 6 + i] = __fadd_rn(d[8 * j + 6 + i], u);
          }
        }
      }
  }

  FOVEA_DEVICE void store_f32(const float (&d)[4 * kGroups], int row, int column, int groups) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (row + 8 * h < e.rows) {
        float* y = static_cast<float*>(e.y) + (row + 8 * h) * e.y_stride;
#pragma unroll
        for (int j = 0; j < kOut; ++j)
          if (j < groups) {
            const int c = column + 8 * j;
            if (e.pairs && c + 1 < e.columns) {
              float2 v{d[4 * j + 2 * h], d[4 * j + 2 * h + 1]};
              float2* to = reinterpret_cast<float2*>(y + c);
              if (e.kind == LinearEpilogue::residual) {
                const float2 old = *to;
                v = {__fmaf_rn(e.scale, v.x, old.x), __fmaf_rn(e.scale, v.y, old.y)};
              }
              *to = v;
            } else {
#pragma unroll
              for (int i = 0; i < 2; ++i)
                store_value<T>(e, row + 8 * h, c + i, d[4 * j + 2 * h + i]);
            }
          }
      }
  }

  FOVEA_DEVICE void store_16(const float (&d)[4 * kGroups], int row, int first, int groups) const {
    const int q = lane_id() & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + 8 * h;
      uint16_t* y = static_cast<uint16_t*>(e.y) + r * e.y_stride;
#pragma unroll
      for (int j = 0; j < kOut; j += 4) {
        if (j + 4 <= kOut && e.wide && j < groups) {  // uniform in a warp
          uint32_t v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            v[i] = j + i < kOut ? pack<T>(d[4 * (j + i) + 2 * h], d[4 * (j + i) + 2 * h + 1]) : 0;
          transpose_quad(v);
          const int c = first + 8 * (j + q);
          if (r >= e.rows || j + q >= groups) continue;
          if (c + 8 <= e.columns) {
            *reinterpret_cast<uint4*>(y + c) = uint4{v[0], v[1], v[2], v[3]};
          } else {
#pragma unroll
            for (int i = 0; i < 8; ++i)
              if (c + i < e.columns) y[c + i] = static_cast<uint16_t>(v[i / 2] >> (16 * (i % 2)));
          }
        } else {
#pragma unroll
          for (int i = j; i < j + 4 && i < kOut; ++i)
            if (i < groups && r < e.rows) {
              const int c = first + 8 * i + 2 * q;
              const uint32_t v = pack<T>(d[4 * i + 2 * h], d[4 * i + 2 * h + 1]);
              if (e.pairs && c + 1 < e.columns) {
                *reinterpret_cast<uint32_t*>(y + c) = v;
              } else {
                if (c < e.columns) y[c] = static_cast<uint16_t>(v);
                if (c + 1 < e.columns) y[c + 1] = static_cast<uint16_t>(v >> 16);
              }
            }
        }
      }
    }
  }
};

}  // namespace fovea::cuda
