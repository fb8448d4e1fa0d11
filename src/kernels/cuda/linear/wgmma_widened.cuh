#pragma once
// Linear layers of e4m3 weights for few rows by wgmma (sm_90a): rows of x are the A operand, weights the B
// operand, as for 16-bit weights (wgmma_kernel.cuh), but widened on the way: one warp copies codes into a
// ring, other warpgroups widen them into a second ring in the order and swizzle of wgmma's operands, and one
// warpgroup multiplies. A third ring has x. So that widening, which takes longer than multiplying where a
// warp does both in turn, is beside the chain of products.
//
// Shared memory: x, [x_stages][blocks][x_rows][128 bytes], 128-byte swizzle; weights, [stages][blocks][unit
// of 16 outputs][2 KiB]; codes, [code_stages][blocks][unit][1 KiB]. Instructions read rows and outputs that a
// stage lacks: whatever lies behind, for accumulators that are not stored.
#include <cstddef>

#include "kernels/cuda/codes/widen.cuh"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/linear/wgmma_tiles.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda {

/// Whether the phase with that parity has completed, without suspension.
FOVEA_DEVICE bool mbarrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

/// Full and empty barriers of a ring.
struct WidenedBarriers {
  WgmmaBarriers x, weights, codes;
};

struct WidenedMemory {
  uint32_t x, weights, codes;             ///< where the rings begin
  int x_bytes, weight_bytes, code_bytes;  ///< of a stage
  uint32_t barriers;

  FOVEA_DEVICE uint32_t full_x(uint32_t slot) const {
    return barriers + offsetof(WidenedBarriers, x) + 8 * slot;
  }
  FOVEA_DEVICE uint32_t full_weights(uint32_t slot) const {
    return barriers + offsetof(WidenedBarriers, weights) + 8 * slot;
  }
  FOVEA_DEVICE uint32_t full_codes(uint32_t slot) const {
    return barriers + offsetof(WidenedBarriers, codes) + 8 * slot;
  }
  static constexpr uint32_t kEmpty =
      offsetof(WgmmaBarriers, empty);  ///< from a full barrier to its empty one
};

/// Where a stage of x and of weights begins.
struct WidenedStage {
  uint32_t x, weights;
};

/// Copies codes; one thread.
FOVEA_DEVICE void copy_codes(const WgmmaParams& p, const WgmmaTiles& tiles, const WidenedMemory& m) {
  const int count = tiles.count();
  WgmmaRing at{p.code_stages};
  for (int t = tiles.first(); t < count; t += tiles.step()) {
    const WgmmaTile tile = tiles.at(t);
    const CUtensorMap* map = tile.units == p.part_units ? &p.weights : &p.fewer;
    for (int block = 0; block < p.k_blocks; block += p.blocks) {
      const uint32_t full = m.full_codes(at.slot);
      mbarrier_wait(full + m.kEmpty, at.phase ^ 1);
      mbarrier_arrive_expect_tx(full, static_cast<uint32_t>(p.blocks * tile.units * p.unit_bytes));
      tma_load_3d(m.codes + at.slot * m.code_bytes, map, full, 0, tile.unit, block, CacheHint::evict_first);
      at.next();
    }
  }
}

/// Copies x; one thread.
FOVEA_DEVICE void copy_rows(const WgmmaParams& p, const WgmmaTiles& tiles, const WidenedMemory& m) {
  const int count = tiles.count();
  WgmmaRing at{p.x_stages};
  for (int t = tiles.first(); t < count; t += tiles.step()) {
    const WgmmaTile tile = tiles.at(t);
    for (int block = 0; block < p.k_blocks; block += p.blocks) {
      const uint32_t full = m.full_x(at.slot);
      mbarrier_wait(full + m.kEmpty, at.phase ^ 1);
      mbarrier_arrive_expect_tx(full, static_cast<uint32_t>(p.blocks * p.x_rows * 128));
      wgmma_load_x(p, tile, 0, block, m.x + at.slot * m.x_bytes, full);
      at.next();
    }
  }
}

/// Widens codes. Warpgroups take stages in turn, so that what one waits for is hidden behind the others' work
/// (there are at least as many stages of weights as warpgroups: else one could be two rounds ahead; and a
/// multiple of as many stages of codes: else a warpgroup would wait for codes in a slot in which those of the
/// other one, which it doesn't wait for, may be missing still, and take the phase before them for its own);
/// of a stage of four blocks a warp takes one block, of two blocks half a block.
template <int kBlocks, int kWiden>
struct CodesWidener {
  static constexpr int kHalves = kBlocks / 2;  // of a block, 32 inputs, for a warp

  const WgmmaParams& p;
  const WidenedMemory& m;
  WgmmaRing from, to;
  uint32_t code_place;           ///< of a lane, in a stage of one unit
  uint32_t places[4 * kHalves];  ///< of 8 inputs each of output g, in a unit
  int block;                     ///< of the stage

  FOVEA_DEVICE CodesWidener(const WgmmaParams& params, const WidenedMemory& memory, int warp)
      : p(params), m(memory), from{params.code_stages}, to{params.stages} {
    const int lane = lane_id(), g = lane / 4, q = lane % 4;
    block = warp * kBlocks / 4;
    const int half = kHalves == 2 ? 0 : warp % 2;
    code_place = static_cast<uint32_t>(half * 512 + lane * 16);
#pragma unroll
    for (int i = 0; i < 4 * kHalves; ++i)
      places[i] = static_cast<uint32_t>(g * 128 + (((half * 4 + i) ^ g) * 16) + q * 4);
  }

  /// A tile of kUnits units: `turn` says how many stages are other warpgroups' before this one's next.
  template <int kUnits>
  FOVEA_DEVICE void run(int& turn) {
    for (int first = 0; first < p.k_blocks; first += kBlocks) {
      if (turn == 0) {
        stage<kUnits>();
        turn = kWiden;
      }
      --turn;
      from.next();
      to.next();
    }
  }

  template <int kUnits>
  FOVEA_DEVICE void stage() {
    const uint32_t codes =
        m.codes + from.slot * m.code_bytes + static_cast<uint32_t>(block * kUnits * 1024) + code_place;
    const uint32_t weights =
        m.weights + to.slot * m.weight_bytes + static_cast<uint32_t>(block * kUnits * kBlockBytes);
    mbarrier_wait(m.full_codes(from.slot), from.phase);
    uint4 words[kUnits][kHalves];
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
        words[u][h] = load_shared_16(codes + static_cast<uint32_t>(u * 1024 + h * 512));
    mbarrier_wait(m.full_weights(to.slot) + m.kEmpty, to.phase ^ 1);
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const uint4 w = words[u][h];
        const uint32_t of_rows[2][2] = {{w.x, w.z}, {w.y, w.w}};
#pragma unroll
        for (int high = 0; high < 2; ++high)
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            const E4m3Pairs pairs = widen_e4m3(of_rows[high][step]);
            const uint32_t unit = static_cast<uint32_t>(u * kBlockBytes + high * 1024);
            store_shared_4(weights + places[4 * h + 2 * step] + unit, pairs.low);
            store_shared_4(weights + places[4 * h + 2 * step + 1] + unit, pairs.high);
          }
      }
    fence_proxy_async();
    __syncwarp();
    if (lane_id() == 0) {
      mbarrier_arrive(m.full_codes(from.slot) + m.kEmpty);
      mbarrier_arrive(m.full_weights(to.slot));
    }
  }

  /// kMost: units of a tile.
  template <int kMost>
  FOVEA_DEVICE void run(const WgmmaTiles& tiles, int group) {
    const int count = tiles.count();
    int turn = group;
    for (int t = tiles.first(); t < count; t += tiles.step())
      run_units<kMost>(tiles.at(t).units, turn);
  }
  template <int kUnits>
  FOVEA_DEVICE void run_units(int units, int& turn) {
    if constexpr (kUnits > 0) {
      if (units == kUnits)
        run<kUnits>(turn);
      else
        run_units<kUnits - 1>(units, turn);
    }
  }
};

/// The products. kBlocks: k blocks of a stage. kScaled: scales of 128 inputs.
template <int kColumns, int kBlocks, bool kGated, bool kScaled>
struct WidenedConsumer {
  using Product = Wgmma<__nv_bfloat16, kColumns>;
  static constexpr int kSums = kColumns / 2, kGroups = kColumns / 8;
  static constexpr int kBatch = kScaled ? 2 : kBlocks;  // of a batch of products
  static constexpr int kBatches = kBlocks / kBatch;
  static_assert(kBatches <= 2);

  const WgmmaParams& p;
  const WidenedMemory& m;
  const int warp;
  WgmmaRing x_at, w_at;
  uint32_t held_x = 0, held_w = 0;  ///< the stage before
  bool ready = false;               ///< the stage is full
  float sums[kSums];
  float chain[kScaled ? 2 : 1][kScaled ? kSums : 1];
  float2 scales[kScaled ? 2 : 1][kScaled ? kGroups / 2 : 1];

  FOVEA_DEVICE void release(uint32_t x_slot, uint32_t w_slot) const {
    if (lane_id() == 0) {
      mbarrier_arrive(m.full_x(x_slot) + m.kEmpty);
      mbarrier_arrive(m.full_weights(w_slot) + m.kEmpty);
    }
  }

  /// The products of kCount blocks of the stage from `block` on.
  template <int kBuffer, int kCount>
  FOVEA_DEVICE void multiply(const WidenedStage& at, int units, int block, bool accumulate) {
    float(&d)[kSums] = target<kBuffer>();
    const uint32_t x_stride = p.x_rows * 128, w_stride = static_cast<uint32_t>(units) * kBlockBytes;
    uint64_t x = wgmma_descriptor(at.x + block * x_stride, 0, 1024, TileSwizzle::span_128);
    uint64_t w = wgmma_descriptor(at.weights + block * w_stride, 0, 1024, TileSwizzle::span_128);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        Product::template ss<false, false>(d, wgmma_advance(x, 32 * s), wgmma_advance(w, 32 * s),
                                           accumulate || j > 0 || s > 0);
      }
      x = wgmma_advance(x, x_stride);
      w = wgmma_advance(w, w_stride);
    }
    wgmma_commit();
  }

  template <int kBuffer>
  FOVEA_DEVICE float (&target())[kSums] {
    if constexpr (kScaled)
      return chain[kBuffer];
    else
      return sums;
  }

  /// Adds the chain of an earlier batch.
  template <int kBuffer>
  FOVEA_DEVICE void add_chain() {
    if constexpr (kScaled) {
      wgmma_pin(chain[kBuffer]);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const float2 by = scales[kBuffer][i / 8];
        sums[i] = __fmaf_rn(chain[kBuffer][i], i / 4 % 2 == 0 ? by.x : by.y, sums[i]);
      }
    }
  }

  template <int kBuffer>
  FOVEA_DEVICE void load_scales(int unit, int pair) {
    if constexpr (kScaled) {
      const int pairs = (p.k_blocks + 1) / 2;
#pragma unroll
      for (int i = 0; i < kGroups / 2; ++i)
        scales[kBuffer][i] = __ldg(reinterpret_cast<const float2*>(p.scales) +
                                   int64_t{min(unit + i, p.units - 1)} * pairs + pair);
    }
  }

  /// Begins a stage.
  FOVEA_DEVICE void wait() const {
    if (ready) return;
    mbarrier_wait(m.full_x(x_at.slot), x_at.phase);
    mbarrier_wait(m.full_weights(w_at.slot), w_at.phase);
  }
  /// Ends a stage: its successor is asked for while products are still running.
  FOVEA_DEVICE void next_stage() {
    held_x = x_at.slot, held_w = w_at.slot;
    x_at.next();
    w_at.next();
    const bool x_ready = mbarrier_test(m.full_x(x_at.slot), x_at.phase);
    ready = mbarrier_test(m.full_weights(w_at.slot), w_at.phase) && x_ready;
  }
  FOVEA_DEVICE WidenedStage stage() const {
    return {m.x + x_at.slot * m.x_bytes, m.weights + w_at.slot * m.weight_bytes};
  }

  /// Hardly any instruction waits in front of the tensor cores, so that what is not a product takes its time
  /// from them: all of it is between the products of a stage, and little.
  FOVEA_DEVICE void run_plain(const WgmmaTile& tile) {
    for (int block = 0; block < p.k_blocks; block += kBlocks) {
      wait();
      const WidenedStage at = stage();
      const uint32_t before_x = held_x, before_w = held_w;
      if (block + kBlocks <= p.k_blocks) {
        multiply<0, kBlocks - 1>(at, tile.units, 0, block > 0);
        wgmma_wait<1>();
        if (block > 0) release(before_x, before_w);
        next_stage();
        multiply<0, 1>(at, tile.units, kBlocks - 1, true);
      } else {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          if (block + j >= p.k_blocks) break;
          multiply<0, 1>(at, tile.units, j, block + j > 0);
        }
        wgmma_wait<0>();
        if (block > 0) release(before_x, before_w);
        next_stage();
      }
    }
    wgmma_wait<0>();
    release(held_x, held_w);
    wgmma_pin(sums);
    scale_outputs(tile);
  }

  /// Two chains at a time, then their sums.
  FOVEA_DEVICE void run_scaled(const WgmmaTile& tile) {
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      sums[i] = 0.0f;
    int block = 0;
    for (; block + 2 * kBatch <= p.k_blocks; block += 2 * kBatch) {
      chain_of<0, 0>(tile, block);
      const uint32_t first_x = x_at.slot, first_w = w_at.slot;
      if constexpr (kBatches == 1) next_stage();
      chain_of<1, kBatches - 1>(tile, block + kBatch);
      next_stage();
      wgmma_wait<1>();
      if constexpr (kBatches == 1) release(first_x, first_w);
      add_chain<0>();
      wgmma_wait<0>();
      release(held_x, held_w);
      add_chain<1>();
    }
    for (int i = 0; block < p.k_blocks; ++block) {
      if (i == 0) wait();
      load_scales<0>(tile.unit, block / 2);
      multiply<0, 1>(stage(), tile.units, i, block % 2 != 0);
      wgmma_wait<0>();
      if (block % 2 != 0 || block + 1 == p.k_blocks) add_chain<0>();
      if (++i == kBlocks || block + 1 == p.k_blocks) {
        next_stage();
        release(held_x, held_w);
        i = 0;
      }
    }
  }

  template <int kBuffer, int kIndex>
  FOVEA_DEVICE void chain_of(const WgmmaTile& tile, int block) {
    load_scales<kBuffer>(tile.unit, block / 2);
    if constexpr (kIndex == 0) wait();
    multiply<kBuffer, kBatch>(stage(), tile.units, kIndex * kBatch, false);
  }

  FOVEA_DEVICE void run(const WgmmaTile& tile) {
    if constexpr (kScaled)
      run_scaled(tile);
    else
      run_plain(tile);
    const int groups = kGated ? tile.units : 2 * tile.units;
    const int column = (kGated ? tile.unit : 2 * tile.unit) * 8;
    Epilogue<__nv_bfloat16, kGated, kGroups>{p.epilogue, p.epilogue.rows}.run(sums, tile.row + 16 * warp,
                                                                              column, groups);
    __syncwarp();
  }

  /// Scales of outputs.
  FOVEA_DEVICE void scale_outputs(const WgmmaTile& tile) {
    if (16 * warp >= p.epilogue.rows) return;
    const int columns = p.epilogue.columns;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (j / 2 >= tile.units) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int panel = tile.unit + j / 2, in_group = lane_id() % 4 * 2 + i;
        const int output = kGated ? panel * 8 + in_group : panel * 16 + j % 2 * 8 + in_group;
        const float by =
            output < columns ? __ldg(p.scales + output + (kGated && j % 2 == 1 ? columns : 0)) : 1.0f;
        sums[4 * j + i] = __fmul_rn(sums[4 * j + i], by);
        sums[4 * j + 2 + i] = __fmul_rn(sums[4 * j + 2 + i], by);
      }
    }
  }
};

/// kWiden: warpgroups that widen.
template <int kColumns, int kBlocks, int kWiden, bool kGated, bool kScaled>
__global__ void __launch_bounds__(128 * (kWiden + 2), 1)
    wgmma_widened(const __grid_constant__ WgmmaParams p) {
  extern __shared__ uint8_t raw[];
  __shared__ WidenedBarriers barriers;
  WidenedMemory m;
  m.x = (shared_address(raw) + 1023) & ~1023u;
  m.x_bytes = p.x_bytes, m.weight_bytes = p.stage_bytes, m.code_bytes = p.stage_bytes / 2;
  m.weights = m.x + static_cast<uint32_t>(p.x_stages * m.x_bytes);
  m.codes = m.weights + static_cast<uint32_t>(p.stages * m.weight_bytes);
  m.barriers = shared_address(&barriers);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  constexpr int kWidenWarps = 4 * kWiden, kCopyCodes = 4 + kWidenWarps, kCopyRows = kCopyCodes + 1;
  constexpr int kWorking = 32 * (kCopyRows + 1);  // threads
  if (!p.late_dependents) grid_launch_dependents();
  if (warp == kCopyCodes) {
    if (lane_id() == 0) {
      const auto begin = [&](uint32_t full, int stages, uint32_t fillers, uint32_t readers) {
        for (int i = 0; i < stages; ++i) {
          mbarrier_init(full + 8 * i, fillers);
          mbarrier_init(full + m.kEmpty + 8 * i, readers);
        }
      };
      begin(m.full_x(0), p.x_stages, 1, 4);
      begin(m.full_weights(0), p.stages, 4, 4);
      begin(m.full_codes(0), p.code_stages, 1, 4);
      mbarrier_init_fence();
    }
    __syncwarp();
    named_barrier_arrive(1, kWorking);  // the first copies need not wait
  } else if (warp <= kCopyRows) {
    named_barrier_sync(1, kWorking);
  }
  const WgmmaTiles tiles{p, 0, 1};
  if (warp >= kCopyCodes) {
    registers_decrease<40>();
    if (warp == kCopyCodes && lane_id() == 0) {
      if (!p.constant_weight) grid_dependency_wait();
      copy_codes(p, tiles, m);
    } else if (warp == kCopyRows && lane_id() == 0) {
      tma_prefetch(&p.x);
      grid_dependency_wait();
      copy_rows(p, tiles, m);
    }
  } else if (warp >= 4) {
    registers_decrease<96>();
    CodesWidener<kBlocks, kWiden>(p, m, warp % 4).template run<kColumns / 16>(tiles, warp / 4 - 1);
  } else {
    registers_increase<232>();
    grid_dependency_wait();  // kernels in front may use y
    if (p.late_dependents) grid_launch_dependents();
    WidenedConsumer<kColumns, kBlocks, kGated, kScaled> consumer{p, m, warp, {p.x_stages}, {p.stages}};
    const int count = tiles.count();
    for (int t = tiles.first(); t < count; t += tiles.step())
      consumer.run(tiles.at(t));
  }
}

}  // namespace fovea::cuda
