#pragma once
// Linear layers by wgmma (sm_90a): rows of x are the A operand, weights the B operand, both in shared memory.
//
// A persistent CTA has kGroups consumer warpgroups, each with 64 rows of a tile, and a producer warp that
// keeps a ring of stages full by TMA. A stage has `blocks` k blocks: first those of x, each [x_rows][128
// bytes] with the 128-byte swizzle, then those of the weights: [block][unit of 16 outputs][2 KiB], or [unit
// of 8 outputs][block][1 KiB] for half panels. Rows and outputs that a tile lacks are whatever lies there:
// they reach only accumulators that are not stored.
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/linear/wgmma_tiles.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda {

template <class T, int kColumns, int kGroups, bool kGated>
__global__ __launch_bounds__(128 * kGroups + 32, 1) void wgmma_linear(const __grid_constant__ WgmmaParams p) {
  extern __shared__ uint8_t raw[];
  __shared__ WgmmaBarriers barriers;
  const uint32_t ring = (shared_address(raw) + 1023) & ~1023u;
  const uint32_t full = shared_address(barriers.full), empty = shared_address(barriers.empty);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int cluster = p.share == ClusterShare::none ? 1 : 2;
  const int rank = cluster == 2 ? static_cast<int>(cluster_rank()) : 0;
  const bool producer = warp == 4 * kGroups;
  if (!p.late_dependents) grid_launch_dependents();
  if (producer) {
    if (lane_id() == 0) {
      for (int i = 0; i < p.stages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, static_cast<uint32_t>(4 * kGroups * cluster));
      }
      mbarrier_init_fence();
    }
    __syncwarp();
  }
  if (cluster == 2)
    cluster_sync();
  else if (producer)
    named_barrier_arrive(1, 128 * kGroups + 32);  // the first loads need not wait
  else
    named_barrier_sync(1, 128 * kGroups + 32);

  const WgmmaTiles tiles{p, rank, cluster};
  const int count = tiles.count();
  WgmmaRing at{p.stages};

  if (producer) {
    if (lane_id() == 0) wgmma_produce(p, tiles, rank, ring, full, empty);
    __syncwarp();
  } else {
    grid_dependency_wait();  // kernels in front may use y
    if (p.late_dependents) grid_launch_dependents();
    const int group = warp / 4;
    const auto release = [&](uint32_t slot) {
      if (lane_id() == 0) {
        if (cluster == 2) {
          mbarrier_arrive_cluster(empty + 8 * slot, 0);
          mbarrier_arrive_cluster(empty + 8 * slot, 1);
        } else {
          mbarrier_arrive(empty + 8 * slot);
        }
      }
    };
    constexpr int kBlocks = wgmma_blocks(kColumns, kGroups);
    const uint32_t x_stride = p.x_rows * 128;
    for (int t = tiles.first(); t < count; t += tiles.step()) {
      const WgmmaTile tile = tiles.at(t);
      // Half panels: the 8-row groups of B are kBlocks KiB apart.
      const uint32_t w_stride = p.halves ? kBlockBytes / 2 : tile.units * kBlockBytes;
      const uint32_t w_groups = p.halves ? kBlocks * (kBlockBytes / 2) : 1024;
      float d[kColumns / 2];
      // One batch: the products of kCount k blocks from block i of a stage on.
      const auto products = [&](auto blocks, uint32_t slot, int i, auto first) {
        constexpr bool kFirst = decltype(first)::value;
        const uint32_t stage = ring + slot * p.stage_bytes;
        uint64_t a = wgmma_descriptor(stage + i * x_stride + group * 8192, 0, 1024, TileSwizzle::span_128);
        uint64_t b = wgmma_descriptor(stage + p.x_bytes + i * w_stride, 0, w_groups, TileSwizzle::span_128);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < decltype(blocks)::value; ++j) {
          Wgmma<T, kColumns>::template ss<false, false>(d, a, b, !kFirst || j > 0);
#pragma unroll
          for (int s = 1; s < 4; ++s)
            Wgmma<T, kColumns>::template ss<false, false>(d, wgmma_advance(a, 32 * s),
                                                          wgmma_advance(b, 32 * s), true);
          a = wgmma_advance(a, x_stride);
          b = wgmma_advance(b, w_stride);
        }
        wgmma_commit();
      };
      using All = std::integral_constant<int, kBlocks>;
      using One = std::integral_constant<int, 1>;
      mbarrier_wait(full + 8 * at.slot, at.phase);
      int block = kBlocks;
      if (block <= p.k_blocks) {
        products(All(), at.slot, 0, std::true_type());
      } else {
        products(One(), at.slot, 0, std::true_type());
        for (int i = 1; i < p.k_blocks; ++i)
          products(One(), at.slot, i, std::false_type());
      }
      for (; block < p.k_blocks; block += kBlocks) {
        const uint32_t held = at.slot;
        at.next();
        mbarrier_wait(full + 8 * at.slot, at.phase);
        if (block + kBlocks <= p.k_blocks) {
          products(All(), at.slot, 0, std::false_type());
          wgmma_wait<1>();
        } else {
          for (int i = 0; i < p.k_blocks - block; ++i)
            products(One(), at.slot, i, std::false_type());
          wgmma_wait<0>();
        }
        release(held);
      }
      wgmma_wait<0>();
      wgmma_pin(d);
      release(at.slot);
      at.next();

      constexpr int kWidth = 8;  // columns of y of half a panel, or of a panel of a gated pair
      const int groups = kGated || p.halves ? tile.units : 2 * tile.units;
      const int column = (kGated || p.halves ? tile.unit : 2 * tile.unit) * kWidth;
      const int rows = min(p.epilogue.rows, tile.row + p.x_rows);
      Epilogue<T, kGated, kColumns / 8>{p.epilogue, rows}.run(d, tile.row + 64 * group + 16 * (warp % 4),
                                                              column, groups);
      __syncwarp();
    }
  }
  if (cluster == 2) cluster_sync();
}

}  // namespace fovea::cuda
