// Few rows for each expert. The product is computed as W x^T: a warp streams one panel of 16 outputs, which
// is contiguous in memory, through a ring of blocks of 64 inputs with its rows of x beside them. Warps are
// CTAs of their own and persistent; the ring runs on into the next panel.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/experts/few_row_tiles.cuh"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda {
namespace {

template <int kTiles>
struct SmallShape {
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kRowBytes = kRows * 128;  // 64 inputs of each row
  static constexpr int kStageBytes = kBlockBytes + kRowBytes;
  static constexpr int kStages = kTiles == 1 ? 7 : kTiles == 2 ? 6 : 4;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

/// Copies the blocks of one tile after the other.
template <int kTiles, bool kDirect>
struct SmallLoader {
  using Shape = SmallShape<kTiles>;
  const GroupedProduct& p;
  const FewRowTiles<kDirect>& tiles;
  int columns, index, block = 0, blocks;
  bool more = true;
  const std::byte* panel = nullptr;
  const std::byte* rows[2 * kTiles];
  bool valid[2 * kTiles];

  FOVEA_DEVICE SmallLoader(const GroupedProduct& product, const FewRowTiles<kDirect>& all, int panels,
                           int first)
      : p(product),
        tiles(all),
        columns(panels),
        index(first),
        blocks(static_cast<int>(packed_blocks(product.inputs))) {
    open();
  }

  FOVEA_DEVICE void open() {
    const ExpertTile tile = tiles.find(Shape::kRows, columns, index);
    more = tile.expert >= 0;
    if (!more) return;
    panel = static_cast<const std::byte*>(p.weights.data) + tile.expert * p.weights.stride +
            static_cast<int64_t>(tile.column) * blocks * kBlockBytes + lane_id() * 16;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int row = 4 * i + lane_id() / 8;
      valid[i] = row < tile.rows;
      const int position = tile.first + (valid[i] ? row : 0);
      const int64_t source = p.gathers ? tiles.row(position) : position;
      rows[i] = static_cast<const std::byte*>(p.x) + source * p.x_stride * 2 + lane_id() % 8 * 16;
    }
  }

  FOVEA_DEVICE void issue(uint32_t stage) {
    if (more) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        cp_async_16(stage + lane_id() * 16 + i * 512,
                    panel + static_cast<int64_t>(block) * kBlockBytes + i * 512);
      const int chunk = lane_id() % 8;
      const bool inside = block * kBlockInputs + chunk * 8 < p.inputs;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const int row = 4 * i + lane_id() / 8;
        cp_async_16(stage + kBlockBytes + row * 128 + ((chunk ^ (row % 8)) * 16), rows[i] + block * 128,
                    valid[i] && inside);
      }
      if (++block == blocks) {
        block = 0;
        index += gridDim.x;
        open();
      }
    }
    cp_async_commit();
  }
};

template <class T, int kTiles, ProductForm kForm, bool kDirect>
__global__ void __launch_bounds__(32) small_kernel(const __grid_constant__ GroupedProduct p, int panels) {
  using Shape = SmallShape<kTiles>;
  constexpr bool kGated = is_gated(kForm);
  extern __shared__ __align__(128) std::byte memory[];
  const uint32_t ring = shared_address(memory);
  const int lane = lane_id(), g = lane / 4, q = lane % 4;
  __shared__ int places[kDirect ? 32 : 1];
  const FewRowTiles<kDirect> tiles(p, places);
  SmallLoader<kTiles, kDirect> loader(p, tiles, panels, static_cast<int>(blockIdx.x));
  for (int i = 0; i < Shape::kStages - 1; ++i)
    loader.issue(ring + i * Shape::kStageBytes);
  int slot = 0;
  const int blocks = static_cast<int>(packed_blocks(p.inputs));
  for (int index = static_cast<int>(blockIdx.x);; index += gridDim.x) {
    const ExpertTile tile = tiles.find(Shape::kRows, panels, index);
    if (tile.expert < 0) return;
    float sums[kTiles][4] = {};
    for (int block = 0; block < blocks; ++block) {
      cp_async_wait<Shape::kStages - 2>();
      __syncwarp();  // the copies of all lanes are here, and all lanes are done with the slot that is filled
                     // next
      const int next = slot == 0 ? Shape::kStages - 1 : slot - 1;
      loader.issue(ring + next * Shape::kStageBytes);
      const uint32_t stage = ring + slot * Shape::kStageBytes;
      uint32_t a[4][4];
      const int row = lane % 16;
#pragma unroll
      for (int s = 0; s < 4; ++s)
        ldmatrix_x4(a[s], stage + row * 128 + (((2 * s + lane / 16) ^ (row % 8)) * 16));
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t b[4];
          ldmatrix_x4(b, stage + kBlockBytes + (8 * t + lane % 8) * 128 +
                             (((4 * half + lane / 8) ^ (lane % 8)) * 16));
          Mma<T>::k16(sums[t], a[2 * half], b[0], b[1]);
          Mma<T>::k16(sums[t], a[2 * half + 1], b[2], b[3]);
        }
      slot = slot == Shape::kStages - 1 ? 0 : slot + 1;
    }
    const int output = tile.column * (kGated ? 8 : 16) + g;
    const float bias[2] = {bias_of(p, kGated, tile.expert, 0, output),
                           bias_of(p, kGated, tile.expert, kGated ? 1 : 0, kGated ? output : output + 8)};
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * t + 2 * q + i;
        if (row >= tile.rows) continue;
        const int position = tile.first + row;
        const float scale = tiles.scale(position);
        const float v0 = adapted<kForm>(p, finished(p, sums[t][i], scale, bias[0]), position, 0, output),
                    v1 = adapted<kForm>(p, finished(p, sums[t][2 + i], scale, bias[1]), position,
                                        kGated ? 1 : 0, kGated ? output : output + 8);
        const int64_t at = static_cast<int64_t>(position) * p.outputs + output;
        if constexpr (kGated) {
          if (output < p.outputs) static_cast<T*>(p.out)[at] = rounded<T>(gated_sum<kForm>(p, v0, v1));
        } else {
          if (output < p.outputs) static_cast<float*>(p.out)[at] = v0;
          if (output + 8 < p.outputs) static_cast<float*>(p.out)[at + 8] = v1;
        }
      }
  }
}

template <class T, int kTiles, ProductForm kForm, bool kDirect>
Status launch(const GroupedProduct& p, const GroupedSize& size, cudaStream_t stream) {
  using Shape = SmallShape<kTiles>;
  constexpr bool kGated = is_gated(kForm);
  const auto kernel = small_kernel<T, kTiles, kForm, kDirect>;
  const auto panels = packed_panels(kGated ? 2 * p.outputs : p.outputs, kGated);
  // The most tiles that there can be, and as many warps as are resident at once.
  const int64_t row_tiles = std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / Shape::kRows;
  constexpr int kPerMultiprocessor = 224 * 1024 / (Shape::kSharedBytes + 1024);
  const int64_t grid =
      std::min<int64_t>(row_tiles * panels, int64_t{size.multiprocessors} * kPerMultiprocessor);
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
  kernel<<<static_cast<unsigned>(grid), 32, Shape::kSharedBytes, stream>>>(p, static_cast<int>(panels));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

template <class T, ProductForm kForm>
Status launch_tiles(const GroupedProduct& p, const GroupedSize& size, cudaStream_t stream) {
  if constexpr (kForm != ProductForm::adapted)
    if (p.groups.direct()) return launch<T, 1, kForm, true>(p, size, stream);
  // Tiles hold most experts' rows; an expert with more rows reads its weights again, from L2.
  const int64_t average = size.pairs / p.groups.num_experts;
  if (size.most_rows <= 8 || average <= 4) return launch<T, 1, kForm, false>(p, size, stream);
  if (size.most_rows <= 16 || average <= 10) return launch<T, 2, kForm, false>(p, size, stream);
  return launch<T, 4, kForm, false>(p, size, stream);
}

}  // namespace

Status launch_grouped_small(const GroupedProduct& p, bool gated, const GroupedSize& size,
                            cudaStream_t stream) {
  return with_product(p, gated, size.dtype, [&](auto type, auto form) {
    return launch_tiles<decltype(type), decltype(form)::value>(p, size, stream);
  });
}

}  // namespace fovea::cuda
