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

template <bool kPrecise>
FOVEA_DEVICE float gated_value(const EpilogueParams& e, float gate, float up) {
  switch (e.form) {
    case GateForm::sigmoid: return gated_value<GateForm::sigmoid, kPrecise>(e, gate, up);
    case GateForm::limited: return gated_value<GateForm::limited, kPrecise>(e, gate, up);
    case GateForm::erf: return gated_value<GateForm::erf, kPrecise>(e, gate, up);
    default: return gated_value<GateForm::relu, kPrecise>(e, gate, up);
  }
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
///
/// The code runs once for each tile, so that fetching instructions is most of its cost: each usual case is
/// straight code without the others in between, all other cases are one rolled loop.
template <class T, bool kGated, int kGroups>
struct Epilogue {
  static constexpr int kOut = kGated ? kGroups / 2 : kGroups;  // groups of 8 columns of y
  static constexpr int kChunk = kOut < 4 ? kOut : 4;           // of them at a time
  static constexpr int kValues = 2 * kChunk;
  const EpilogueParams& e;
  const int rows;  ///< those from here on are not stored

  /// `warp_row`: the first of the warp's 16 rows. `first`: the first column, of y. `groups`: how many groups
  /// of 8 columns of y exist, up to kOut. d is overwritten.
  FOVEA_DEVICE void run(float (&d)[4 * kGroups], int warp_row, int first, int groups) const {
    if (warp_row >= rows) return;
    const bool whole = e.pairs && first + 8 * groups <= e.columns;
    const bool wide = whole && (e.wide || (kOut < 4 && !e.f32));
    if constexpr (kGated) {
      if (wide && e.form == GateForm::sigmoid)
        usual<Case::sigmoid16>(d, warp_row, first, groups);
      else if (wide && e.form == GateForm::limited)
        usual<Case::limited16>(d, warp_row, first, groups);
      else
        others(d, warp_row, first, groups);
    } else {
      if (wide && e.kind == LinearEpilogue::store)
        usual<Case::store16>(d, warp_row, first, groups);
      else if (whole && e.f32 && e.kind == LinearEpilogue::residual)
        usual<Case::residual32>(d, warp_row, first, groups);
      else if (whole && e.f32 && e.softcap <= 0.0f)
        usual<Case::store32>(d, warp_row, first, groups);
      else
        others(d, warp_row, first, groups);
    }
  }

 private:
  enum class Case { store16, store32, residual32, sigmoid16, limited16 };

  template <Case kCase>
  FOVEA_DEVICE void usual(const float (&d)[4 * kGroups], int warp_row, int first, int groups) const {
    finish<kCase, 0>(d, warp_row + lane_id() / 4, first, groups);
    if (warp_row + 8 < rows) finish<kCase, 1>(d, warp_row + 8 + lane_id() / 4, first, groups);
  }

  template <Case kCase, int kHalf>
  FOVEA_DEVICE void finish(const float (&d)[4 * kGroups], int row, int first, int groups) const {
    const int q = lane_id() & 3;
    const bool exists = row < rows;
    const float scale = e.kind == LinearEpilogue::logits ? e.scale : 1.0f;
    const int64_t at = row * e.y_stride + first;
#pragma unroll
    for (int j = 0; j < kOut; j += kChunk) {
      if (j >= groups) break;  // uniform
      const int left = groups - j;
      float v[kValues];
      values<kHalf>(d, j, v);
      if (e.bias != nullptr) add_bias(e.bias + first + 8 * j + 2 * q, v, left);
      if constexpr (kGated) {
        float up[kValues];
        values<kHalf, 4>(d, j, up);
        if (e.bias != nullptr) add_bias(e.bias + e.columns + first + 8 * j + 2 * q, up, left);
        constexpr GateForm kForm = kCase == Case::limited16 ? GateForm::limited : GateForm::sigmoid;
#pragma unroll
        for (int i = 0; i < kValues; ++i)
          v[i] = gated_value<kForm, false>(e, v[i], up[i]);
      }
      if constexpr (kCase == Case::store32 || kCase == Case::residual32) {
        float* y = static_cast<float*>(e.y) + at + 8 * j + 2 * q;
#pragma unroll
        for (int i = 0; i < kChunk; ++i)
          if (exists && i < left) {
            float2* to = reinterpret_cast<float2*>(y + 8 * i);
            if constexpr (kCase == Case::residual32) {
              const float2 old = *to;
              *to = {__fmaf_rn(e.scale, v[2 * i], old.x), __fmaf_rn(e.scale, v[2 * i + 1], old.y)};
            } else {
              *to = {__fmul_rn(v[2 * i], scale), __fmul_rn(v[2 * i + 1], scale)};
            }
          }
      } else {
        store_16(v, static_cast<uint16_t*>(e.y) + at + 8 * j, exists, left);
      }
    }
  }

  /// The kHalf rows' values of chunk j; of a gated pair's gates (kFrom 0) or ups (4).
  template <int kHalf, int kFrom = 0>
  FOVEA_DEVICE static void values(const float (&d)[4 * kGroups], int j, float (&v)[kValues]) {
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      v[i] = d[(j + i / 2) * (kGated ? 8 : 4) + kFrom + 2 * kHalf + i % 2];
  }

  FOVEA_DEVICE static void add_bias(const float* bias, float (&v)[kValues], int left) {
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      if (i / 2 < left) v[i] = __fadd_rn(v[i], __ldg(bias + i / 2 * 8 + i % 2));
  }

  FOVEA_DEVICE static void store_16(const float (&v)[kValues], uint16_t* y, bool exists, int left) {
    const int q = lane_id() & 3;
    uint32_t packed[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      packed[i] = pack<T>(v[2 * i], v[2 * i + 1]);
    if constexpr (kChunk == 4) {
      transpose_quad(packed);
      if (exists && q < left)
        *reinterpret_cast<uint4*>(y + 8 * q) = uint4{packed[0], packed[1], packed[2], packed[3]};
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i)
        if (exists && i < left) *reinterpret_cast<uint32_t*>(y + 8 * i + 2 * q) = packed[i];
    }
  }

  /// Any case, element by element; the accumulators move down by a group of y in each round.
  FOVEA_DEVICE void others(float (&d)[4 * kGroups], int warp_row, int first, int groups) const {
    constexpr int kStep = kGated ? 8 : 4;
    int column = first + 2 * (lane_id() & 3);
#pragma unroll 1
    for (int j = 0; j < groups; ++j, column += 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = column + i % 2, row = warp_row + lane_id() / 4 + i / 2 * 8;
        if (c >= e.columns || row >= rows) continue;
        float v = d[i];
        if (e.bias != nullptr) v = __fadd_rn(v, __ldg(e.bias + c));
        if constexpr (kGated) {
          float up = d[4 + i];
          if (e.bias != nullptr) up = __fadd_rn(up, __ldg(e.bias + e.columns + c));
          v = gated_value<false>(e, v, up);
        } else if (e.kind == LinearEpilogue::logits) {
          v = logit_value(e, v);
        }
        store_value<T>(e, row, c, v);
      }
#pragma unroll
      for (int i = 0; i < 4 * kGroups - kStep; ++i)
        d[i] = d[i + kStep];
    }
  }
};

}  // namespace fovea::cuda
