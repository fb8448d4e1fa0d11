// Many rows for each expert of quantised weights, on Hopper: the wide kernel with the operands swapped, as
// the weights come from registers. A persistent CTA computes tiles of 128 rows x 256 packed outputs; each of
// two consumer warpgroups has half of the outputs, in two products of 64. A warp widens its panel's block in
// registers while the other product runs. With scales for each 128 inputs a warpgroup has one product, whose
// chain of 128 inputs is added to a second set of sums.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "kernels/cuda/codes/widen.cuh"
#include "kernels/cuda/experts/epilogue.cuh"
#include "kernels/cuda/experts/wide_producer.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda {
namespace {

template <WeightCode kCode, bool kScaled>
struct WideCodes {
  static constexpr int kProducts = kScaled ? 1 : 2;  // of a warpgroup
  using Shape = WideShape<8 * kProducts, code_block_bytes(kCode), 6>;
  using Ring = WideRing<Shape>;
  static constexpr int kRows = Shape::kRows;
  using Product = Wgmma<__nv_bfloat16, kRows>;
  static constexpr int kSums = kRows / 2;

  const GroupedProduct& p;
  const bool gated;
  const int panels;

  /// The panel of a tile that this warp has in product m.
  static FOVEA_DEVICE int panel_of(int m) {
    return (static_cast<int>(threadIdx.x) / 128 * kProducts + m) * 4 + static_cast<int>(threadIdx.x) / 32 % 4;
  }

  FOVEA_DEVICE void store(const ExpertTile& tile, int panel, const float (&d)[kSums]) const {
    if (panel >= panels) return;
    const int g = lane_id() / 4, q = lane_id() % 4;
    const int output = panel * (gated ? 8 : 16) + g, other = gated ? output : output + 8;
    const float bias[2] = {bias_of(p, gated, tile.expert, 0, output),
                           bias_of(p, gated, tile.expert, gated ? 1 : 0, other)};
    const float by[2] = {code_scale_of(p, gated, tile.expert, 0, output),
                         code_scale_of(p, gated, tile.expert, gated ? 1 : 0, other)};
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      if (8 * j >= tile.rows) break;
      float v[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int position = tile.first + min(8 * j + 2 * q + i, tile.rows - 1);
        const float scale = sum_scale(p, position);
        v[0][i] = finished(p, __fmul_rn(d[4 * j + i], by[0]), scale, bias[0]);
        v[1][i] = finished(p, __fmul_rn(d[4 * j + 2 + i], by[1]), scale, bias[1]);
      }
      if (gated) {
        const uint32_t packed = pack<__nv_bfloat16>(gated_value<false>(p.gate, v[0][0], v[1][0]),
                                                    gated_value<false>(p.gate, v[0][1], v[1][1]));
        // Now row g, outputs 2 q and 2 q + 1 of the panel.
        const uint32_t out = movmatrix_trans(packed);
        const int row = 8 * j + g, first = panel * 8 + 2 * q;
        if (row < tile.rows && first < p.outputs)
          *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) +
                                       static_cast<int64_t>(tile.first + row) * p.outputs + first) = out;
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = 8 * j + 2 * q + i;
          if (row >= tile.rows) continue;
          float* out = static_cast<float*>(p.out) + static_cast<int64_t>(tile.first + row) * p.outputs;
          if (output < p.outputs) out[output] = v[0][i];
          if (other < p.outputs) out[other] = v[1][i];
        }
      }
    }
  }

  FOVEA_DEVICE void consume(const Ring& ring) const {
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
      const int first_panel = tile.column * Shape::kPanels;
      if constexpr (kScaled)
        scaled(ring, at, tile, first_panel, blocks, release);
      else
        plain(ring, at, tile, first_panel, blocks, release);
      __syncwarp();
    }
  }

 private:
  /// The products of a block of weights `a` with the stage's rows.
  static FOVEA_DEVICE void multiply(float (&d)[kSums], const uint32_t (&a)[4][4], uint32_t stage,
                                    bool first) {
    const uint64_t b = wgmma_descriptor(stage, 0, 1024, TileSwizzle::span_128);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      Product::template rs<false>(d, a[s], wgmma_advance(b, 32 * s), !first || s > 0);
    wgmma_commit();
  }

  template <class Release>
  FOVEA_DEVICE void plain(const Ring& ring, RingPosition<Shape::kStages>& at, const ExpertTile& tile,
                          int first_panel, int blocks, Release&& release) const {
    float d[2][kSums];
    uint32_t a[2][4][4];
    uint32_t held = 0;
    for (int block = 0; block < blocks; ++block) {
      mbarrier_wait(ring.full + 8 * at.slot, at.phase);
      const uint32_t stage = ring.stage(at.slot);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        CodeBlock<kCode> codes;
        codes.load_shared(stage + Shape::kRowBytes + panel_of(m) * Shape::kPanelBytes);
        wgmma_wait<1>();  // product m of the block before
        if (m == 1 && block > 0) release(held);
        codes.widen(a[m]);
        multiply(d[m], a[m], stage, block == 0);
      }
      held = at.slot;
      at.next();
    }
    wgmma_wait<0>();
    wgmma_pin(d[0]);
    wgmma_pin(d[1]);
    release(held);
    store(tile, first_panel + panel_of(0), d[0]);
    store(tile, first_panel + panel_of(1), d[1]);
  }

  template <class Release>
  FOVEA_DEVICE void scaled(const Ring& ring, RingPosition<Shape::kStages>& at, const ExpertTile& tile,
                           int first_panel, int blocks, Release&& release) const {
    float d[kSums], sums[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      sums[i] = 0.0f;
    const int pairs = (blocks + 1) / 2, panel = min(first_panel + panel_of(0), panels - 1);
    const float* scales = p.weights.scales + (tile.expert * int64_t{panels} + panel) * pairs * 2;
    for (int block = 0; block < blocks; ++block) {
      mbarrier_wait(ring.full + 8 * at.slot, at.phase);
      const uint32_t stage = ring.stage(at.slot);
      CodeBlock<kCode> codes;
      codes.load_shared(stage + Shape::kRowBytes + panel_of(0) * Shape::kPanelBytes);
      uint32_t a[4][4];
      codes.widen(a);
      multiply(d, a, stage, block % 2 == 0);
      wgmma_wait<0>();
      wgmma_pin(d);
      release(at.slot);
      at.next();
      if (block % 2 == 1 || block + 1 == blocks) {
        const float low = __ldg(scales + block / 2 * 2), high = __ldg(scales + block / 2 * 2 + 1);
#pragma unroll
        for (int i = 0; i < kSums; ++i)
          sums[i] = __fmaf_rn(d[i], i % 4 < 2 ? low : high, sums[i]);
      }
    }
    store(tile, first_panel + panel_of(0), sums);
  }
};

template <WeightCode kCode, bool kScaled>
__global__ void __launch_bounds__(384, 1)
    wide_codes_kernel(const __grid_constant__ GroupedProduct p, bool gated, int panels, int columns) {
  using Kernel = WideCodes<kCode, kScaled>;
  using Shape = typename Kernel::Shape;
  extern __shared__ uint8_t memory[];
  __shared__ WideMemory<Shape> shared;
  const auto ring = WideRing<Shape>::make(shared, memory);
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == Shape::kConsumers) {
    registers_decrease<72>();
    wide_produce<Shape>(p, panels, columns, ring);
  } else {
    registers_increase<208>();
    Kernel{p, gated, panels}.consume(ring);
  }
}

template <WeightCode kCode, bool kScaled>
Status launch(const GroupedProduct& p, bool gated, const GroupedSize& size, cudaStream_t stream) {
  using Shape = typename WideCodes<kCode, kScaled>::Shape;
  const auto kernel = wide_codes_kernel<kCode, kScaled>;
  const int64_t panels = packed_panels(gated ? 2 * p.outputs : p.outputs, gated);
  const int64_t columns = (panels + Shape::kPanels - 1) / Shape::kPanels;
  const int64_t tiles =
      (std::min<int64_t>(p.groups.num_experts, size.pairs) + size.pairs / Shape::kRows) * columns;
  if (tiles > INT32_MAX) return invalid("experts: too many tiles for one launch");
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, size.multiprocessors));
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
  kernel<<<grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(p, gated, static_cast<int>(panels),
                                                                 static_cast<int>(columns));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace

Status launch_grouped_wide_codes(const GroupedProduct& p, bool gated, const GroupedSize& size,
                                 cudaStream_t stream) {
  if (p.weights.code == WeightCode::mxfp4) return launch<WeightCode::mxfp4, false>(p, gated, size, stream);
  return p.weights.block_scales ? launch<WeightCode::e4m3, true>(p, gated, size, stream)
                                : launch<WeightCode::e4m3, false>(p, gated, size, stream);
}

}  // namespace fovea::cuda
