// Many rows for each expert. A CTA of four warps computes a tile of 128 rows x 128 packed outputs (8 panels);
// each warp 64 x 64 by mma.sync. Blocks of 64 inputs of both operands pass through a ring in shared memory.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/experts/epilogue.cuh"
#include "kernels/cuda/experts/find_tile.cuh"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 128, kPanels = 8;
constexpr int kRowBytes = kRows * 128, kStageBytes = kRowBytes + kPanels * kBlockBytes;
constexpr int kStages = 3;
constexpr int kSharedBytes = kStages * kStageBytes;
constexpr int kCopies = kRows * 8 / kThreads;  // of 16 bytes, of each operand and thread

template <class T, ProductForm kForm>
__global__ void __launch_bounds__(kThreads, 2)
    large_kernel(const __grid_constant__ GroupedProduct p, int columns) {
  constexpr bool kGated = is_gated(kForm);
  extern __shared__ __align__(128) std::byte memory[];
  const uint32_t ring = shared_address(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / 32;
  const ExpertTile tile = find_tile(p.groups, kRows, columns, static_cast<int>(blockIdx.x));
  if (tile.expert < 0) return;
  const int blocks = static_cast<int>(packed_blocks(p.inputs));
  const int panels = static_cast<int>(packed_panels(kGated ? 2 * p.outputs : p.outputs, kGated));
  const int first_panel = tile.column * kPanels, chunk = thread % 8;

  // Copy i of a thread: chunk `chunk` of row 16 i + thread / 8, and 16 bytes `thread` of panel i.
  const std::byte* rows[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int row = 16 * i + thread / 8;
    const int position = tile.first + min(row, tile.rows - 1);
    const int64_t source = p.gathers ? p.groups.row[position] : position;
    rows[i] = static_cast<const std::byte*>(p.x) + source * p.x_stride * 2 + chunk * 16;
  }
  const std::byte* weights = static_cast<const std::byte*>(p.weights.data) + tile.expert * p.weights.stride +
                             static_cast<int64_t>(first_panel) * blocks * kBlockBytes + thread * 16;
  const auto issue = [&](int block) {
    if (block < blocks) {
      const uint32_t stage = ring + block % kStages * kStageBytes;
      const bool inside = block * kBlockInputs + chunk * 8 < p.inputs;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int row = 16 * i + thread / 8;
        cp_async_16(stage + row * 128 + ((chunk ^ (row % 8)) * 16),
                    rows[i] + static_cast<int64_t>(block) * 128, inside && row < tile.rows);
      }
#pragma unroll
      for (int i = 0; i < kPanels; ++i)
        cp_async_16(
            stage + kRowBytes + i * kBlockBytes + thread * 16,
            weights + (static_cast<int64_t>(first_panel + i < panels ? i : 0) * blocks + block) * kBlockBytes,
            first_panel + i < panels);
    }
    cp_async_commit();
  };
  for (int i = 0; i < kStages - 1; ++i)
    issue(i);

  const int first_row = warp / 2 * 64, first_output = warp % 2 * 64;
  const bool idle = first_row >= tile.rows;
  float sums[4][8][4] = {};
  for (int block = 0; block < blocks; ++block) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    issue(block + kStages - 1);
    if (idle) continue;
    const uint32_t stage = ring + block % kStages * kStageBytes;
    const uint32_t x = stage + (first_row + lane % 16) * 128;
    const uint32_t w = stage + kRowBytes + (first_output + lane / 16 * 8 + lane % 8) * 128;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t a[4][4];
#pragma unroll
      for (int m = 0; m < 4; ++m)
        ldmatrix_x4(a[m], x + m * 2048 + (((2 * s + lane / 16) ^ (lane % 8)) * 16));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, w + n * 2048 + (((2 * s + lane / 8 % 2) ^ (lane % 8)) * 16));
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          Mma<T>::k16(sums[m][2 * n], a[m], b[0], b[1]);
          Mma<T>::k16(sums[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
  if (idle) return;

  // A lane holds outputs 2 q and 2 q + 1 of each run of 8, in rows g and g + 8 of each 16.
  const int g = lane / 4, q = lane % 4;
  float scale[4][2];
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      scale[m][h] = sum_scale(p, tile.first + min(first_row + 16 * m + 8 * h + g, tile.rows - 1));
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int panel = first_panel + first_output / 16 + n;
    const int output = panel * (kGated ? 8 : 16) + 2 * q;
    if (output >= p.outputs) continue;
    float bias[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bias[0][i] = bias_of(p, kGated, tile.expert, 0, output + i);
      bias[1][i] = kGated ? bias_of(p, kGated, tile.expert, 1, output + i)
                          : bias_of(p, kGated, tile.expert, 0, output + 8 + i);
    }
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + 16 * m + 8 * h + g;
        if (row >= tile.rows) continue;
        const int64_t at = static_cast<int64_t>(tile.first + row) * p.outputs + output;
        float v[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[0][i] = finished(p, sums[m][2 * n][2 * h + i], scale[m][h], bias[0][i]);
          v[1][i] = finished(p, sums[m][2 * n + 1][2 * h + i], scale[m][h], bias[1][i]);
          v[0][i] = adapted<kForm>(p, v[0][i], tile.first + row, 0, output + i);
          v[1][i] =
              adapted<kForm>(p, v[1][i], tile.first + row, kGated ? 1 : 0, output + i + (kGated ? 0 : 8));
        }
        if constexpr (kGated) {
          struct alignas(4) Two {
            T x[2];
          };
          *reinterpret_cast<Two*>(static_cast<T*>(p.out) + at) = {
              rounded<T>(gated_sum<kForm>(p, v[0][0], v[1][0])),
              rounded<T>(gated_sum<kForm>(p, v[0][1], v[1][1]))};
        } else {
          auto* out = static_cast<float*>(p.out) + at;
          *reinterpret_cast<float2*>(out) = {v[0][0], v[0][1]};
          if (output + 8 < p.outputs) *reinterpret_cast<float2*>(out + 8) = {v[1][0], v[1][1]};
        }
      }
  }
}

template <class T, ProductForm kForm>
Status launch(const GroupedProduct& p, const GroupedSize& size, cudaStream_t stream) {
  constexpr bool kGated = is_gated(kForm);
  const auto kernel = large_kernel<T, kForm>;
  const int64_t panels = packed_panels(kGated ? 2 * p.outputs : p.outputs, kGated);
  const int64_t columns = (panels + kPanels - 1) / kPanels;
  const int64_t grid = (std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / kRows) * columns;
  if (grid > INT32_MAX) return invalid("experts: too many tiles for one launch");
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  kernel<<<static_cast<unsigned>(grid), kThreads, kSharedBytes, stream>>>(p, static_cast<int>(columns));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace

Status launch_grouped_large(const GroupedProduct& p, bool gated, const GroupedSize& size,
                            cudaStream_t stream) {
  return with_product(p, gated, size.dtype, [&](auto type, auto form) {
    return launch<decltype(type), decltype(form)::value>(p, size, stream);
  });
}

}  // namespace fovea::cuda
