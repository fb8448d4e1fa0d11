// Linear layers in fp32, for proofs: each output is one chain of fma over ascending k.
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/linear/launchers.h"

namespace fovea::cuda {
namespace {

constexpr int kRows = 32, kColumns = 64, kInputs = 32, kThreads = 256;

struct FloatParams {
  const float* x;
  const float* weight;
  int64_t x_stride;
  int n, k;
  EpilogueParams epilogue;
};

/// A CTA computes 32 rows x 64 columns of y (gated: 32 columns, from 32 gates and 32 ups); a thread 2 rows x
/// 4 columns of the product.
template <bool kGated>
__global__ __launch_bounds__(kThreads) void float_linear(FloatParams p) {
  __shared__ float x[kRows][kInputs + 1], w[kColumns][kInputs + 1];
  const EpilogueParams& e = p.epilogue;
  const int first_column = static_cast<int>(blockIdx.x) * (kGated ? kColumns / 2 : kColumns);
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int thread = static_cast<int>(threadIdx.x), tx = thread % 16, ty = thread / 16;
  // Row of the weight behind column c of the tile; gates are the first half.
  const auto weight_row = [&](int c) {
    if constexpr (kGated)
      return c < kColumns / 2 ? first_column + c : e.columns + first_column + c - kColumns / 2;
    else
      return first_column + c;
  };
  const auto exists = [&](int c) { return first_column + (kGated ? c % (kColumns / 2) : c) < e.columns; };
  float d[2][4] = {};
  for (int k = 0; k < p.k; k += kInputs) {
    for (int i = thread; i < kRows * kInputs; i += kThreads) {
      const int row = first_row + i / kInputs, at = k + i % kInputs;
      x[i / kInputs][i % kInputs] = row < e.rows && at < p.k ? p.x[row * p.x_stride + at] : 0.0f;
    }
    for (int i = thread; i < kColumns * kInputs; i += kThreads) {
      const int c = i / kInputs, at = k + i % kInputs;
      w[c][i % kInputs] = exists(c) && at < p.k ? p.weight[int64_t{weight_row(c)} * p.k + at] : 0.0f;
    }
    __syncthreads();
    const int inputs = min(kInputs, p.k - k);
    for (int i = 0; i < inputs; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          d[r][c] = __fmaf_rn(x[ty + 16 * r][i], w[tx + 16 * c][i], d[r][c]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + ty + 16 * r;
    if (e.bias != nullptr) {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (exists(tx + 16 * c)) d[r][c] = __fadd_rn(d[r][c], e.bias[weight_row(tx + 16 * c)]);
    }
    if constexpr (kGated) {
#pragma unroll
      for (int c = 0; c < 2; ++c)
        store_value<float>(e, row, first_column + tx + 16 * c, gated_value<true>(e, d[r][c], d[r][c + 2]));
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        store_value<float>(e, row, first_column + tx + 16 * c,
                           e.kind == LinearEpilogue::logits ? logit_value(e, d[r][c]) : d[r][c]);
    }
  }
}

}  // namespace

Status launch_float_linear(const LinearParams& p, cudaStream_t stream) {
  const bool gated = p.epilogue == LinearEpilogue::gated;
  FloatParams a{static_cast<const float*>(p.x),
                static_cast<const float*>(p.weight),
                p.x_stride,
                static_cast<int>(p.n),
                static_cast<int>(p.k),
                make_epilogue(p)};
  const int width = gated ? kColumns / 2 : kColumns;
  constexpr int64_t kRowsOfGrid = int64_t{65535} * kRows;
  for (int64_t first = 0; first < p.rows; first += kRowsOfGrid) {
    FloatParams part = a;
    const int64_t rows = p.rows - first < kRowsOfGrid ? p.rows - first : kRowsOfGrid;
    part.x += first * p.x_stride;
    part.epilogue.y = static_cast<float*>(p.y) + first * p.y_stride;
    part.epilogue.rows = static_cast<int>(rows);
    const dim3 grid(static_cast<unsigned>((a.epilogue.columns + width - 1) / width),
                    static_cast<unsigned>((rows + kRows - 1) / kRows));
    if (gated)
      float_linear<true><<<grid, kThreads, 0, stream>>>(part);
    else
      float_linear<false><<<grid, kThreads, 0, stream>>>(part);
    FOVEA_CUDA_TRY(cudaGetLastError());
  }
  return {};
}

}  // namespace fovea::cuda
