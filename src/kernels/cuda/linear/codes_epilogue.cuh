#pragma once
// Finished sums of W x^T, where outputs are the rows of the product: the arithmetic of epilogue.cuh.
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"

namespace fovea::cuda {

/// A warp's panel of 16 outputs (of a gated pair 8 gates and their ups): d[4 j + 2 h + i] is output g + 8 h
/// of row first_row + 8 j + 2 q + i, kGroups groups of 8 rows.
template <int kGroups>
struct CodesEpilogue {
  const EpilogueParams& e;
  const float* scales;  ///< of outputs, gates first; null = 1
  const bool gated;
  const int panel, first_row, rows;  ///< rows from `rows` on are not stored

  /// d is overwritten. As in epilogue.cuh, usual cases are straight code, all others a rolled loop: fetching
  /// instructions would be most of the cost.
  FOVEA_DEVICE void run(float (&d)[4 * kGroups]) const {
    const bool whole = e.pairs && (panel + 1) * (gated ? 8 : 16) <= e.columns;
    if (gated && whole && !e.f32 && e.form == GateForm::sigmoid)
      gate<GateForm::sigmoid>(d);
    else if (!gated && whole && !e.f32 && e.kind == LinearEpilogue::store)
      store_16(d);
    else if (!gated && e.f32 && e.kind == LinearEpilogue::residual)
      residual(d);
    else
      others(d);
  }

 private:
  /// Scale and bias of an output; `at` counts gates and ups.
  FOVEA_DEVICE float2 line_of(int at, bool exists) const {
    return {exists && scales != nullptr ? __ldg(scales + at) : 1.0f,
            exists && e.bias != nullptr ? __ldg(e.bias + at) : 0.0f};
  }
  FOVEA_DEVICE float value(float sum, float2 line) const {
    sum = __fmul_rn(sum, line.x);
    return e.bias == nullptr ? sum : __fadd_rn(sum, line.y);
  }

  FOVEA_DEVICE void store_16(const float (&d)[4 * kGroups]) const {
    const int g = lane_id() / 4, q = lane_id() % 4, output = panel * 16 + g;
    const float2 line[2] = {line_of(output, true), line_of(output + 8, true)};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int row = first_row + 8 * j;
      if (row >= rows) break;
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_pair(value(d[4 * j + 2 * h], line[h]), value(d[4 * j + 2 * h + 1], line[h]), row + g,
                   panel * 16 + 8 * h + 2 * q);
    }
  }

  FOVEA_DEVICE void residual(const float (&d)[4 * kGroups]) const {
    const int q = lane_id() % 4, output = panel * 16 + lane_id() / 4;
    const bool exists[2] = {output < e.columns, output + 8 < e.columns};
    const float2 line[2] = {line_of(output, exists[0]), line_of(output + 8, exists[1])};
    float* y = static_cast<float*>(e.y) + (first_row + 2 * q) * e.y_stride + output;
#pragma unroll
    for (int j = 0; j < kGroups; ++j, y += 8 * e.y_stride) {
      if (first_row + 8 * j >= rows) break;
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (exists[h] && first_row + 8 * j + 2 * q + i < rows) {
            float* to = y + i * e.y_stride + 8 * h;
            *to = __fmaf_rn(e.scale, value(d[4 * j + 2 * h + i], line[h]), *to);
          }
    }
  }

  template <GateForm kForm>
  FOVEA_DEVICE void gate(const float (&d)[4 * kGroups]) const {
    const int g = lane_id() / 4, q = lane_id() % 4, output = panel * 8 + g;
    const float2 gates = line_of(output, true), ups = line_of(e.columns + output, true);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int row = first_row + 8 * j;
      if (row >= rows) break;
      float v[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        v[i] = gated_value<kForm, false>(e, value(d[4 * j + i], gates), value(d[4 * j + 2 + i], ups));
      store_pair(v[0], v[1], row + g, panel * 8 + 2 * q);
    }
  }

  /// v0, v1: output g of rows 2 q and 2 q + 1 of eight; stored by the lane that has row g and outputs 2 q and
  /// 2 q + 1.
  FOVEA_DEVICE void store_pair(float v0, float v1, int row, int output) const {
    const uint32_t pair = movmatrix_trans(pack<__nv_bfloat16>(v0, v1));
    if (row < rows)
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(e.y) + row * e.y_stride + output) = pair;
  }

  /// Any case, element by element; the accumulators move down by a group of rows in each round.
  FOVEA_DEVICE void others(float (&d)[4 * kGroups]) const {
    const int output = panel * (gated ? 8 : 16) + lane_id() / 4,
              other = gated ? e.columns + output : output + 8;
    const bool exists = output < e.columns, other_exists = gated ? exists : other < e.columns;
    const float2 first = line_of(output, exists), second = line_of(other, other_exists);
    int row = first_row + lane_id() % 4 * 2;
#pragma unroll 1
    for (int j = 0; j < kGroups; ++j, row += 8) {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        float v0 = value(i == 0 ? d[0] : d[1], first);
        float v1 = value(i == 0 ? d[2] : d[3], second);
        if (gated) {
          v0 = gated_value<false>(e, v0, v1);
        } else if (e.kind == LinearEpilogue::logits) {
          v0 = logit_value(e, v0);
          v1 = logit_value(e, v1);
        }
        if (row + i < rows) {
          store_value<__nv_bfloat16>(e, row + i, output, v0);
          if (!gated) store_value<__nv_bfloat16>(e, row + i, other, v1);
        }
      }
#pragma unroll
      for (int i = 0; i < 4 * kGroups - 4; ++i)
        d[i] = d[i + 4];
    }
  }
};

}  // namespace fovea::cuda
