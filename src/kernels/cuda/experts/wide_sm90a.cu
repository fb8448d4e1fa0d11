// Many rows for each expert, on Hopper. A persistent CTA computes tiles of 128 rows x 256 packed outputs (16
// panels): two consumer warpgroups with 64 rows each by wgmma, and a producer warpgroup that gathers rows of
// x by cp.async and loads panels by bulk copies into a ring of stages of 64 inputs. Packed blocks are wgmma
// operands as they are.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/experts/epilogue.cuh"
#include "kernels/cuda/experts/wide_producer.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda {
namespace {

using Shape = WideShape<16, kBlockBytes, 4>;
using Ring = WideRing<Shape>;
constexpr int kPanels = Shape::kPanels, kColumns = 16 * kPanels, kRows = Shape::kRows;

/// Writes 64 rows of a tile; `warp` of the warpgroup.
template <class T, ProductForm kForm>
FOVEA_DEVICE void store_sums(const GroupedProduct& p, const ExpertTile& tile, int first_row, int warp,
                             const float (&d)[kColumns / 2]) {
  constexpr bool kGated = is_gated(kForm);
  const int lane = lane_id(), g = lane / 4, q = lane % 4;
  const int first_panel = tile.column * kPanels;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 16 * warp + 8 * h + g;
    const bool exists = row < tile.rows;
    const int position = tile.first + min(row, tile.rows - 1);
    const float scale = sum_scale(p, position);
    const int64_t at = static_cast<int64_t>(position) * p.outputs;
    if constexpr (kGated) {
#pragma unroll
      for (int j = 0; j < kPanels; j += 4) {
        if ((first_panel + j) * 8 >= p.outputs) break;
        uint32_t packed[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int output = (first_panel + j + n) * 8 + 2 * q;
          float v[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float gate =
                finished(p, d[8 * (j + n) + 2 * h + i], scale, bias_of(p, true, tile.expert, 0, output + i));
            const float up = finished(p, d[8 * (j + n) + 4 + 2 * h + i], scale,
                                      bias_of(p, true, tile.expert, 1, output + i));
            v[i] = gated_sum<kForm>(p, adapted<kForm>(p, gate, position, 0, output + i),
                                    adapted<kForm>(p, up, position, 1, output + i));
          }
          packed[n] = pack<T>(v[0], v[1]);
        }
        transpose_quad(packed);  // lane q of a row: the 8 outputs of panel j + q
        const int output = (first_panel + j + q) * 8;
        if (exists && output < p.outputs)
          *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + at + output) = {packed[0], packed[1], packed[2],
                                                                             packed[3]};
      }
    } else {
      auto* out = static_cast<float*>(p.out) + at;
#pragma unroll
      for (int n = 0; n < 2 * kPanels; ++n) {
        const int output = first_panel * 16 + 8 * n + 2 * q;
        if (first_panel * 16 + 8 * n >= p.outputs) break;
        float2 v = {finished(p, d[4 * n + 2 * h], scale, bias_of(p, false, tile.expert, 0, output)),
                    finished(p, d[4 * n + 2 * h + 1], scale, bias_of(p, false, tile.expert, 0, output + 1))};
        v = {adapted<kForm>(p, v.x, position, 0, output), adapted<kForm>(p, v.y, position, 0, output + 1)};
        if (exists) *reinterpret_cast<float2*>(out + output) = v;
      }
    }
  }
}

template <class T, ProductForm kForm>
FOVEA_DEVICE void consume(const GroupedProduct& p, const Ring& ring, int group) {
  const int blocks = static_cast<int>(packed_blocks(p.inputs));
  RingPosition<Shape::kStages> at;
  const auto release = [&](uint32_t slot) {
    if (lane_id() == 0) mbarrier_arrive(ring.empty + 8 * slot);
  };
  for (int n = 0;; ++n) {
    mbarrier_wait(ring.full + 8 * at.slot, at.phase);
    const int4 words = ring.tiles[n % Shape::kTileSlots];
    const ExpertTile tile{words.x, words.y, words.z, words.w};
    if (tile.expert < 0) break;
    if (64 * group >= tile.rows) {  // no rows of this warpgroup
      for (int block = 0; block < blocks; ++block) {
        mbarrier_wait(ring.full + 8 * at.slot, at.phase);
        release(at.slot);
        at.next();
      }
      continue;
    }
    float d[kColumns / 2];
    uint32_t held = 0;
    for (int block = 0; block < blocks; ++block) {
      mbarrier_wait(ring.full + 8 * at.slot, at.phase);
      const uint32_t stage = ring.stage(at.slot);
      const uint64_t a = wgmma_descriptor(stage + group * 8192, 0, 1024, TileSwizzle::span_128);
      const uint64_t b = wgmma_descriptor(stage + Shape::kRowBytes, 0, 1024, TileSwizzle::span_128);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s)
        Wgmma<T, kColumns>::template ss<false, false>(d, wgmma_advance(a, 32 * s), wgmma_advance(b, 32 * s),
                                                      block > 0 || s > 0);
      wgmma_commit();
      if (block > 0) {
        wgmma_wait<1>();
        release(held);
      }
      held = at.slot;
      at.next();
    }
    wgmma_wait<0>();
    wgmma_pin(d);
    release(held);
    store_sums<T, kForm>(p, tile, 64 * group, static_cast<int>(threadIdx.x) / 32 % 4, d);
    __syncwarp();
  }
}

template <class T, ProductForm kForm>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    wide_kernel(const __grid_constant__ GroupedProduct p, int columns) {
  extern __shared__ uint8_t memory[];
  __shared__ WideMemory<Shape> shared;
  const Ring ring = Ring::make(shared, memory);
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == Shape::kConsumers) {
    registers_decrease<72>();
    constexpr bool kGated = is_gated(kForm);
    const auto panels = static_cast<int>(packed_panels(kGated ? 2 * p.outputs : p.outputs, kGated));
    wide_produce<Shape>(p, panels, columns, ring);
  } else {
    registers_increase<208>();
    consume<T, kForm>(p, ring, group);
  }
}

}  // namespace

Status launch_grouped_wide(const GroupedProduct& p, bool gated, const GroupedSize& size,
                           cudaStream_t stream) {
  return with_product(p, gated, size.dtype, [&](auto type, auto form) -> Status {
    const auto kernel = wide_kernel<decltype(type), decltype(form)::value>;
    const int64_t panels = packed_panels(gated ? 2 * p.outputs : p.outputs, gated);
    const int64_t columns = (panels + kPanels - 1) / kPanels;
    const int64_t tiles =
        (std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / kRows) * columns;
    if (tiles > INT32_MAX) return invalid("experts: too many tiles for one launch");
    const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, size.multiprocessors));
    FOVEA_CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
    kernel<<<grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(p, static_cast<int>(columns));
    FOVEA_CUDA_TRY(cudaGetLastError());
    return {};
  });
}

}  // namespace fovea::cuda
