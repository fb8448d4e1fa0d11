// fp32, for proofs. A CTA computes 16 rows x 32 outputs; a thread four rows of one output (gated: of its gate
// and its up).
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/experts/epilogue.cuh"
#include "kernels/cuda/experts/find_tile.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 128, kRows = 16, kOutputs = 32, kInputs = 32;

template <bool kGated>
__global__ void __launch_bounds__(kThreads)
    float_kernel(const __grid_constant__ GroupedProduct p, int columns) {
  constexpr int kParts = kGated ? 2 : 1;
  __shared__ float x[kRows][kInputs + 1], w[kParts][kOutputs][kInputs + 1];
  const ExpertTile tile = find_tile(p.groups, kRows, columns, static_cast<int>(blockIdx.x));
  if (tile.expert < 0) return;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / 32;
  const auto* weights = reinterpret_cast<const float*>(static_cast<const std::byte*>(p.weights.data) +
                                                       tile.expert * p.weights.stride);
  const int first_output = tile.column * kOutputs, output = first_output + lane;
  float sums[kParts][4] = {};
  for (int first = 0; first < p.inputs; first += kInputs) {
    const int input = first + lane;
    for (int row = warp; row < kRows; row += kThreads / 32) {
      const int position = tile.first + min(row, tile.rows - 1);
      const int64_t source = p.gathers ? p.groups.row[position] : position;
      x[row][lane] = input < p.inputs ? static_cast<const float*>(p.x)[source * p.x_stride + input] : 0.0f;
    }
    for (int part = 0; part < kParts; ++part)
      for (int o = warp; o < kOutputs; o += kThreads / 32) {
        const bool inside = first_output + o < p.outputs && input < p.inputs;
        const int64_t row = static_cast<int64_t>(part) * p.outputs + first_output + o;
        w[part][o][lane] = inside ? weights[row * p.inputs + input] : 0.0f;
      }
    __syncthreads();
    const int count = min(kInputs, p.inputs - first);
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          sums[part][r] = fmaf(x[4 * warp + r][i], w[part][lane][i], sums[part][r]);
    __syncthreads();
  }
  if (output >= p.outputs) return;
  for (int r = 0; r < 4; ++r) {
    const int row = 4 * warp + r;
    if (row >= tile.rows) return;
    const int position = tile.first + row;
    const float scale = sum_scale(p, position);
    constexpr ProductForm kForm = kGated ? ProductForm::other : ProductForm::adapted;
    float v = adapted<kForm>(p, finished(p, sums[0][r], scale, bias_of(p, kGated, tile.expert, 0, output)),
                             position, 0, output);
    if constexpr (kGated) {
      const float up = finished(p, sums[1][r], scale, bias_of(p, true, tile.expert, 1, output));
      v = gated_value<true>(p.gate, v, adapted<kForm>(p, up, position, 1, output));
    }
    static_cast<float*>(p.out)[static_cast<int64_t>(position) * p.outputs + output] = v;
  }
}

}  // namespace

Status launch_grouped_float(const GroupedProduct& p, bool gated, const GroupedSize& size,
                            cudaStream_t stream) {
  const int columns = (p.outputs + kOutputs - 1) / kOutputs;
  const int64_t grid = (std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / kRows) * columns;
  if (grid > INT32_MAX) return invalid("experts: too many tiles for one launch");
  (gated ? float_kernel<true> : float_kernel<false>)<<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(
      p, columns);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
