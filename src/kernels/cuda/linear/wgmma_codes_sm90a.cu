// Linear layers of quantised weights by wgmma (sm_90a): W x^T. Weights are the A operand, widened in
// registers; rows of x are the B operand, in shared memory. Tiles, ring and producer are those of 16-bit
// weights; each of two consumer warpgroups has 4 panels of a tile for each of its kProducts, a warp one of
// them. The producer's warpgroup has one thread that works: registers are given to warpgroups.
#include <algorithm>
#include <atomic>

#include "device/cuda/cuda_error.h"
#include "kernels/cuda/codes/widen.cuh"
#include "kernels/cuda/linear/codes_epilogue.cuh"
#include "kernels/cuda/linear/launchers.h"
#include "kernels/cuda/linear/wgmma_kernels.h"
#include "kernels/cuda/linear/wgmma_tiles.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda {
namespace {

constexpr int kGroups = 2;

/// kRows: of the instruction. kScaled: scales of 128 inputs.
template <int kRows, int kProducts, bool kScaled>
struct CodesConsumer {
  using Product = Wgmma<__nv_bfloat16, kRows>;
  using Block = CodeBlock<WeightCode::e4m3>;
  static constexpr int kSums = kRows / 2, kBlocks = codes_blocks(kRows);

  const WgmmaParams& p;
  const uint32_t ring, full, empty;
  const int warp;
  WgmmaRing at;

  /// The panel of a tile that this warp has in product m.
  FOVEA_DEVICE int panel_of(int m) const { return (warp / 4 * kProducts + m) * 4 + warp % 4; }

  FOVEA_DEVICE void release(uint32_t slot) const {
    if (lane_id() == 0) mbarrier_arrive(empty + 8 * slot);
  }

  FOVEA_DEVICE void run(const WgmmaTile& tile) {
    if (warp / 4 * kProducts * 4 >= tile.units) {  // no panels of this warpgroup
      for (int block = 0; block < p.k_blocks; block += kBlocks) {
        mbarrier_wait(full + 8 * at.slot, at.phase);
        release(at.slot);
        at.next();
      }
      return;
    }
    float sums[kProducts][kSums];
    float chain[kScaled ? kSums : 1];
    uint32_t a[2][4][4] = {};
    bool owed = false;  // the stage before has not been released
    uint32_t held = 0;
    const int first_panel = min(tile.unit + panel_of(0), p.units - 1);
    const float* scales = p.scales + int64_t{first_panel} * ((p.k_blocks + 1) / 2) * 2;
    if constexpr (kScaled)
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        sums[0][i] = 0.0f;
    for (int block = 0; block < p.k_blocks; block += kBlocks) {
      mbarrier_wait(full + 8 * at.slot, at.phase);
      const uint32_t stage = ring + at.slot * p.stage_bytes;
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        if (block + j >= p.k_blocks) break;
        float2 by{};
        if constexpr (kScaled) by = __ldg(reinterpret_cast<const float2*>(scales) + (block + j) / 2);
#pragma unroll
        for (int m = 0; m < kProducts; ++m) {
          constexpr int kBuffers = 2;
          uint32_t(&operand)[4][4] = a[(j * kProducts + m) % kBuffers];
          const bool exists = panel_of(m) < tile.units;
          Block codes;
          if (exists) codes.load_shared(stage + p.x_bytes + (j * tile.units + panel_of(m)) * Block::kBytes);
          wgmma_wait<1>();  // what reads these registers
          if (j * kProducts + m == 1 && owed) {
            release(held);
            owed = false;
          }
          if (exists) codes.widen(operand);
          const uint64_t x = wgmma_descriptor(stage + j * p.x_rows * 128, 0, 1024, TileSwizzle::span_128);
          wgmma_fence();
          if constexpr (kScaled)
            multiply(chain, operand, x, j % 2 == 0);
          else
            multiply(sums[m], operand, x, block + j == 0);
        }
        if constexpr (kScaled)
          if (j % 2 == 1 || block + j + 1 == p.k_blocks) {
            wgmma_wait<0>();
            wgmma_pin(chain);
#pragma unroll
            for (int i = 0; i < kSums; ++i)
              sums[0][i] = __fmaf_rn(chain[i], i % 4 < 2 ? by.x : by.y, sums[0][i]);
          }
      }
      if (owed) {  // a last stage of one product
        wgmma_wait<0>();
        release(held);
      }
      held = at.slot;
      owed = true;
      at.next();
    }
    wgmma_wait<0>();
    release(held);
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      if constexpr (!kScaled) wgmma_pin(sums[m]);
      if (panel_of(m) >= tile.units) continue;
      CodesEpilogue<kRows / 8>{p.epilogue, kScaled ? nullptr : p.scales,
                               p.gated,    tile.unit + panel_of(m),
                               tile.row,   min(p.epilogue.rows, tile.row + p.x_rows)}
          .run(sums[m]);
    }
    __syncwarp();
  }

 private:
  static FOVEA_DEVICE void multiply(float (&d)[kSums], const uint32_t (&a)[4][4], uint64_t x, bool first) {
#pragma unroll
    for (int s = 0; s < 4; ++s)
      Product::template rs<false>(d, a[s], wgmma_advance(x, 32 * s), !first || s > 0);
    wgmma_commit();
  }
};

template <int kRows, int kProducts, bool kScaled>
__global__ void __launch_bounds__(128 * kGroups + 128, 1) wgmma_codes(const __grid_constant__ WgmmaParams p) {
  extern __shared__ uint8_t raw[];
  __shared__ WgmmaBarriers barriers;
  const uint32_t ring = (shared_address(raw) + 1023) & ~1023u;
  const uint32_t full = shared_address(barriers.full), empty = shared_address(barriers.empty);
  const bool producer = threadIdx.x >= 128 * kGroups;
  if (!p.late_dependents) grid_launch_dependents();
  if (producer) {
    if (threadIdx.x == 128 * kGroups) {
      for (int i = 0; i < p.stages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, 4 * kGroups);
      }
      mbarrier_init_fence();
    }
    __syncwarp();
    named_barrier_arrive(1, 128 * kGroups + 128);  // the first loads need not wait
  } else {
    named_barrier_sync(1, 128 * kGroups + 128);
  }
  const WgmmaTiles tiles{p, 0, 1};
  if (producer) {
    registers_decrease<40>();
    if (threadIdx.x == 128 * kGroups) wgmma_produce(p, tiles, 0, ring, full, empty);
  } else {
    registers_increase<232>();
    grid_dependency_wait();  // kernels in front may use y
    if (p.late_dependents) grid_launch_dependents();
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    CodesConsumer<kRows, kProducts, kScaled> consumer{p, ring, full, empty, warp, {p.stages}};
    const int count = tiles.count();
    for (int t = tiles.first(); t < count; t += tiles.step())
      consumer.run(tiles.at(t));
  }
}

template <bool kScaled>
WgmmaKernel instance(int rows) {
  switch (rows) {
    case 8: return wgmma_codes<8, 1, kScaled>;
    case 16: return wgmma_codes<16, 1, kScaled>;
    case 32: return wgmma_codes<32, 1, kScaled>;
    case 64: return wgmma_codes<64, 1, kScaled>;
    default: return wgmma_codes<128, 1, kScaled>;
  }
}

}  // namespace

WgmmaKernel wgmma_kernel_codes(int rows, int products, bool scaled) {
  if (scaled) return instance<true>(rows);
  return products == 2 ? wgmma_codes<128, 2, false> : instance<false>(rows);
}

}  // namespace fovea::cuda
