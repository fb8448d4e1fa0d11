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
template <GateForm kForm, bool kPrecise>
FOVEA_DEVICE float gated_value(const EpilogueParams& e, float gate, float up) {
  constexpr float kLog2E = 1.44269504f;
  float activated;
  if constexpr (kForm == GateForm::sigmoid || kForm == GateForm::limited) {
    if constexpr (kForm == GateForm::limited) {  // comparisons that keep NaN
      gate = gate > e.limit ? e.limit : gate;
      up = up > e.limit ? e.limit : up < -e.limit ? -e.limit : up;
      up = __fadd_rn(up, 1.0f);
    }
    const float t = __fmul_rn(gate, __fmaf_rn(__fmul_rn(e.cubic, gate), gate, e.linear));
    if constexpr (kPrecise)
      activated = __fdiv_rn(gate, __fadd_rn(1.0f, expf(-t)));
    else
      activated = __fmul_rn(gate, rcp_approx(__fadd_rn(1.0f, exp2_approx(__fmul_rn(t, -kLog2E)))));
  } else if constexpr (kForm == GateForm::erf) {
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

/// v[i] = activation(gate[i]) * up[i]. The form is chosen outside of the loop: each is straight code.
template <bool kPrecise, int kCount>
FOVEA_DEVICE void gate_values(const EpilogueParams& e, const float (&gate)[kCount], const float (&up)[kCount],
                              float (&v)[kCount]) {
  const auto all = [&](auto form) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      v[i] = gated_value<decltype(form)::value, kPrecise>(e, gate[i], up[i]);
  };
  switch (e.form) {
    case GateForm::sigmoid: all(std::integral_constant<GateForm, GateForm::sigmoid>()); break;
    case GateForm::limited: all(std::integral_constant<GateForm, GateForm::limited>()); break;
    case GateForm::erf: all(std::integral_constant<GateForm, GateForm::erf>()); break;
    case GateForm::relu: all(std::integral_constant<GateForm, GateForm::relu>()); break;
  }
}

/// The scaled and capped logits.
template <int kCount>
FOVEA_DEVICE void logit_values(const EpilogueParams& e, float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    v[i] = __fmul_rn(v[i], e.scale);
  if (e.softcap > 0.0f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      v[i] = __fmul_rn(e.softcap, tanhf(__fdiv_rn(v[i], e.softcap)));
  }
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
/// d[4 j + 2 h + i] is column first + 8 j + 2 (lane % 4) + i of row + 8 h. The warp is converged. One row at
/// a time, and branches outside of loops: the code runs once, so that fetching it is what it costs.
template <class T, bool kGated, int kGroups>
struct Epilogue {
  static constexpr int kOut = kGated ? kGroups / 2 : kGroups;  // groups of 8 columns of y
  static constexpr int kChunk = kOut < 4 ? kOut : 4;           // of them at a time
  static constexpr int kValues = 2 * kChunk;
  const EpilogueParams& e;

  /// `warp_row`: the first of the warp's 16 rows. `first`: the first column, of y. `groups`: how many groups
  /// of 8 columns of y exist, up to kOut.
  FOVEA_DEVICE void run(const float (&d)[4 * kGroups], int warp_row, int first, int groups) const {
    if (warp_row < e.rows) finish<0>(d, warp_row + lane_id() / 4, first, groups);
    if (warp_row + 8 < e.rows) finish<1>(d, warp_row + 8 + lane_id() / 4, first, groups);
  }

 private:
  template <int kHalf>
  FOVEA_DEVICE void finish(const float (&d)[4 * kGroups], int row, int first, int groups) const {
#pragma unroll
    for (int j = 0; j < kOut; j += kChunk) {
      if (j >= groups) break;  // uniform
      const int column = first + 8 * j + 2 * (lane_id() & 3), left = groups - j;
      float v[kValues];
      if constexpr (kGated) {
        float gate[kValues], up[kValues];
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          gate[i] = d[(j + i / 2) * 8 + 2 * kHalf + i % 2];
          up[i] = d[(j + i / 2) * 8 + 4 + 2 * kHalf + i % 2];
        }
        if (e.bias != nullptr) {
          add_bias(e.bias, gate, column);
          add_bias(e.bias + e.columns, up, column);
        }
        gate_values<false>(e, gate, up, v);
      } else {
#pragma unroll
        for (int i = 0; i < kValues; ++i)
          v[i] = d[(j + i / 2) * 4 + 2 * kHalf + i % 2];
        if (e.bias != nullptr) add_bias(e.bias, v, column);
        if (e.kind == LinearEpilogue::logits) logit_values(e, v);
      }
      if (!e.pairs || first + 8 * (j + min(left, kChunk)) > e.columns) {
        store_elements(v, row, column, left);
      } else if (e.f32) {
        store_f32(v, row, column, left);
      } else {
        store_16(v, row, first + 8 * j, left);
      }
    }
  }

  FOVEA_DEVICE void add_bias(const float* bias, float (&v)[kValues], int column) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int c = column + i / 2 * 8 + i % 2;
      if (c < e.columns) v[i] = __fadd_rn(v[i], __ldg(bias + c));
    }
  }

  FOVEA_DEVICE void store_elements(const float (&v)[kValues], int row, int column, int groups) const {
    if (row >= e.rows) return;
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      if (i / 2 < groups) store_value<T>(e, row, column + i / 2 * 8 + i % 2, v[i]);
  }

  FOVEA_DEVICE void store_f32(const float (&v)[kValues], int row, int column, int groups) const {
    if (row >= e.rows) return;
    float* y = static_cast<float*>(e.y) + row * e.y_stride + column;
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
      if (j < groups) {
        float2* to = reinterpret_cast<float2*>(y + 8 * j);
        float2 out{v[2 * j], v[2 * j + 1]};
        if (e.kind == LinearEpilogue::residual) {
          const float2 old = *to;
          out = {__fmaf_rn(e.scale, out.x, old.x), __fmaf_rn(e.scale, out.y, old.y)};
        }
        *to = out;
      }
  }

  FOVEA_DEVICE void store_16(const float (&v)[kValues], int row, int first, int groups) const {
    const int q = lane_id() & 3;
    uint16_t* y = static_cast<uint16_t*>(e.y) + row * e.y_stride + first;
    uint32_t packed[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      packed[i] = pack<T>(v[2 * i], v[2 * i + 1]);
    if constexpr (kChunk == 4) {
      if (e.wide) {
        transpose_quad(packed);
        if (row < e.rows && q < groups)
          *reinterpret_cast<uint4*>(y + 8 * q) = uint4{packed[0], packed[1], packed[2], packed[3]};
        return;
      }
    }
    if (row >= e.rows) return;
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
      if (j < groups) *reinterpret_cast<uint32_t*>(y + 8 * j + 2 * q) = packed[j];
  }
};

}  // namespace fovea::cuda
