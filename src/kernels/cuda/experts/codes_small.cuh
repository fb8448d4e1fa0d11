#pragma once
// Few rows for each expert of quantised weights: a CTA computes four panels of an expert for up to 8, 16 or
// 32 of its rows, as codes/stream.cuh does.
#include "device/cuda/cuda_error.h"
#include "kernels/cuda/codes/stream.cuh"
#include "kernels/cuda/experts/few_row_tiles.cuh"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {

template <WeightCode kCode, int kTiles, bool kDirect, bool kScaled>
__global__ void __launch_bounds__(128, kTiles < 4 ? 4 : 2)
    small_codes_kernel(const __grid_constant__ GroupedProduct p, bool gated, int panels) {
  using Stream = CodeStream<kCode, kTiles>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ int places[Stream::kWarps][kDirect ? 32 : 1];
  const int lane = lane_id(), g = lane / 4, q = lane % 4, warp = static_cast<int>(threadIdx.x) / 32;
  const int columns = (panels + Stream::kWarps - 1) / Stream::kWarps;
  const auto blocks = static_cast<int64_t>(packed_blocks(p.inputs));
  // An idle warp reads the last panel for nothing.
  const auto panel_of = [&](const ExpertTile& tile) {
    const int panel = min(tile.column * Stream::kWarps + warp, panels - 1);
    return static_cast<const uint8_t*>(p.weights.data) + tile.expert * p.weights.stride +
           panel * blocks * Stream::Block::kBytes;
  };
  grid_dependency_wait();
  grid_launch_dependents();
  const FewRowTiles<kDirect> tiles(p, places[warp]);
  const ExpertTile tile = tiles.find(Stream::kRows, columns, static_cast<int>(blockIdx.x));
  if (tile.expert < 0) return;  // of the whole CTA
  const int panel = tile.column * Stream::kWarps + warp;
  const bool idle = panel >= panels;
  Stream stream;
  stream.begin(shared_address(memory), panel_of(tile), p.inputs);
#pragma unroll
  for (int i = 0; i < Stream::kRowsOfThread; ++i) {
    const int row = Stream::row_of(i);
    const int position = tile.first + (row < tile.rows ? row : 0);
    const int64_t source = p.gathers ? tiles.row(position) : position;
    stream.set_row(i, static_cast<const std::byte*>(p.x) + source * p.x_stride * 2, row < tile.rows);
  }
  float sums[kTiles][4];
  const int64_t pairs = (blocks + 1) / 2;
  const float* scales = p.weights.scales + ((tile.expert * int64_t{panels} + panel) * pairs) * 2;
  stream.template run<kScaled>(
      sums, [&](int pair, int high) { return idle ? 0.0f : __ldg(scales + 2 * pair + high); });
  if (idle) return;

  const int output = panel * (gated ? 8 : 16) + g, other = gated ? output : output + 8;
  const float bias[2] = {bias_of(p, gated, tile.expert, 0, output),
                         bias_of(p, gated, tile.expert, gated ? 1 : 0, other)};
  const float by[2] = {code_scale_of(p, gated, tile.expert, 0, output),
                       code_scale_of(p, gated, tile.expert, gated ? 1 : 0, other)};
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * t + 2 * q + i;
      if (row >= tile.rows) continue;
      const int position = tile.first + row;
      const float scale = tiles.scale(position);
      const float v0 = finished(p, __fmul_rn(sums[t][i], by[0]), scale, bias[0]),
                  v1 = finished(p, __fmul_rn(sums[t][2 + i], by[1]), scale, bias[1]);
      const int64_t at = static_cast<int64_t>(position) * p.outputs;
      if (gated) {
        if (output < p.outputs)
          static_cast<__nv_bfloat16*>(p.out)[at + output] =
              rounded<__nv_bfloat16>(gated_value<false>(p.gate, v0, v1));
      } else {
        if (output < p.outputs) static_cast<float*>(p.out)[at + output] = v0;
        if (other < p.outputs) static_cast<float*>(p.out)[at + other] = v1;
      }
    }
}

template <WeightCode kCode, int kTiles, bool kDirect, bool kScaled>
Status launch_small_codes(const GroupedProduct& p, bool gated, const GroupedSize& size, cudaStream_t stream) {
  using Stream = CodeStream<kCode, kTiles>;
  const auto kernel = small_codes_kernel<kCode, kTiles, kDirect, kScaled>;
  const int64_t panels = packed_panels(gated ? 2 * p.outputs : p.outputs, gated);
  const int64_t row_tiles = std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / Stream::kRows;
  const int64_t grid = row_tiles * ((panels + Stream::kWarps - 1) / Stream::kWarps);
  if (grid > INT32_MAX) return invalid("experts: too many tiles for one launch");
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Stream::kSharedBytes));
  LaunchShape shape;
  shape.ctas = static_cast<unsigned>(grid), shape.threads = Stream::kThreads;
  shape.shared_bytes = Stream::kSharedBytes;
  FOVEA_CUDA_TRY(launch_dependent(kernel, shape, stream, p, gated, static_cast<int>(panels)));
  return {};
}

template <WeightCode kCode, bool kScaled>
Status launch_small_codes(const GroupedProduct& p, bool gated, const GroupedSize& size, cudaStream_t stream) {
  if (p.groups.direct()) return launch_small_codes<kCode, 1, true, kScaled>(p, gated, size, stream);
  const int64_t average = size.pairs / p.groups.num_experts;
  if (size.most_rows <= 8 || average <= 4)
    return launch_small_codes<kCode, 1, false, kScaled>(p, gated, size, stream);
  if (size.most_rows <= 16 || average <= 10)
    return launch_small_codes<kCode, 2, false, kScaled>(p, gated, size, stream);
  return launch_small_codes<kCode, 4, false, kScaled>(p, gated, size, stream);
}

}  // namespace fovea::cuda
