#pragma once
// W x^T for few rows of x by mma.sync: each of a CTA's warps streams a panel of 16 outputs through a ring of
// batches of blocks of its own and widens it in registers. Rows of x pass through shared memory in two slots
// of kChunk blocks, which the warps share. On sm_90 a batch is one bulk copy; before, copies of 16 bytes, and
// the ring is not ahead of the end of a batch.
#include <algorithm>

#include "kernels/cuda/codes/widen.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/mma.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda {

/// kLarge: one CTA for a multiprocessor, which may have most of its shared memory.
template <WeightCode kCode, int kTiles, int kWarpsOf = 4, bool kLarge = false>
struct CodeStream {
  static constexpr int kWarps = kWarpsOf, kThreads = 32 * kWarps;
  static constexpr int kRows = 8 * kTiles;
  using Block = CodeBlock<kCode>;
  static constexpr int kBatch = 4;  // blocks
  static constexpr int kStages = kLarge ? 6 : kCode == WeightCode::mxfp4 ? 4 : 3;
  static constexpr int kBatchBytes = kBatch * Block::kBytes, kRingBytes = kStages * kBatchBytes;  // of a warp
  static constexpr int kChunk = kLarge        ? (kTiles <= 2   ? 32
                                                 : kTiles == 4 ? 16
                                                               : 8)
                                : kTiles <= 2 ? 8
                                              : 4;  // blocks
  static constexpr int kBlockOfX = kRows * 128;     // bytes
  static constexpr int kBarrierBytes = 256;
  static constexpr int kSharedBytes = kBarrierBytes + kWarps * kRingBytes + 2 * kChunk * kBlockOfX;
  // A pass of the threads copies kPass blocks of x, or a part of one: kRowsOfThread rows by each thread.
  static constexpr int kPassRows = kThreads / 8;
  static constexpr int kRowsOfThread = (kRows + kPassRows - 1) / kPassRows;
  static constexpr int kPass = std::max(kPassRows / kRows, 1);
  static_assert(kChunk % kBatch == 0 && kChunk % kPass == 0 && kWarps * kStages * 8 <= kBarrierBytes);

  uint32_t memory;       ///< kSharedBytes of the CTA, 128-byte aligned
  const uint8_t* panel;  ///< the warp's
  int inputs, blocks;
  const uint8_t* rows[kRowsOfThread];  ///< of x, at this thread's 16 bytes of a block; see row_of()
  bool valid[kRowsOfThread];

  /// The row of the tile that copy `i` of this thread is of.
  static FOVEA_DEVICE int row_of(int i) { return static_cast<int>(threadIdx.x) / 8 % kRows + kPassRows * i; }

  /// Begins to copy the panel; x need not be there yet.
  FOVEA_DEVICE void begin(uint32_t shared, const uint8_t* first_block, int all_inputs) {
    memory = shared;
    panel = first_block;
    inputs = all_inputs;
    blocks = static_cast<int>(packed_blocks(all_inputs));
#if __CUDA_ARCH__ >= 900
    if (lane_id() == 0) {
      for (int i = 0; i < kStages; ++i)
        mbarrier_init(barrier(i), 1);
      mbarrier_init_fence();
    }
    __syncwarp();
#endif
    for (int batch = 0; batch < kStages; ++batch)
      issue(batch);
  }

  /// Row `i` of this thread begins at `row` (valid) or is zeros.
  FOVEA_DEVICE void set_row(int i, const void* row, bool exists) {
    rows[i] = static_cast<const uint8_t*>(row) + threadIdx.x % 8 * 16;
    valid[i] = exists;
  }

  /// sums[t][i] of the warp: row 8 t + 2 q + i % 2, output g + 8 (i / 2) of the panel. With kScaled,
  /// scale(pair of blocks, high) multiplies the chain of each 128 inputs, which are added in ascending order.
  template <bool kScaled, class Scale>
  FOVEA_DEVICE void run(float (&sums)[kTiles][4], Scale&& scale) {
    const int lane = lane_id();
    const auto lane_of_x = static_cast<uint32_t>(lane % 8 * 128 + ((lane / 8) ^ (lane % 8)) * 16);
    float chain[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[t][i] = chain[t][i] = 0.0f;
    const auto add_chain = [&](int pair) {
      const float low = scale(pair, 0), high = scale(pair, 1);
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[t][i] = __fmaf_rn(chain[t][i], i < 2 ? low : high, sums[t][i]);
          chain[t][i] = 0.0f;
        }
    };
    copy(0);
    RingPosition<kStages> at;
    int b = 0;
    for (int chunk = 0; b < blocks; ++chunk) {
      cp_async_wait<0>();
      __syncthreads();  // this chunk is here, and all warps have read the one before
      copy(chunk + 1);
      uint32_t x = x_slot(chunk) + lane_of_x;
      const int end = min(b + kChunk, blocks);
      for (; b < end; b += kBatch, x += kBatch * kBlockOfX) {
        wait(at);
        const uint32_t batch = ring() + at.slot * kBatchBytes;
        Block codes[kBatch];
        bool large = b + kBatch > blocks;
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          codes[j].load_shared(batch + j * Block::kBytes);  // past the end: what was there before
          large = large || codes[j].large();
        }
        if (!__any_sync(0xffffffffu, large)) {
          uint32_t a[2][4][4], v[2][kTiles][4];
          load_x(x, 0, v[0]);
          codes[0].template widen<false>(a[0]);
#pragma unroll
          for (int i = 0; i < 2 * kBatch;
               ++i) {  // halves of blocks, each with what the next needs in between
            const int j = i / 2, half = i % 2;
            if (i + 1 < 2 * kBatch) load_x(x + (i + 1) / 2 * kBlockOfX, (i + 1) % 2, v[(i + 1) % 2]);
#pragma unroll
            for (int s = 0; s < 2; ++s) {
#pragma unroll
              for (int t = 0; t < kTiles; ++t)
                Mma<__nv_bfloat16>::k16(chain[t], a[j % 2][2 * half + s], v[i % 2][t][2 * s],
                                        v[i % 2][t][2 * s + 1]);
              if (j + 1 < kBatch) codes[j + 1].template widen_part<false>(a[(j + 1) % 2], 2 * half + s);
            }
            if (kScaled && half == 1 && j % 2 == 1) add_chain((b + j) / 2);
          }
        } else {
#pragma unroll 1
          for (int j = 0; j < kBatch && b + j < blocks; ++j) {
            Block block;
            block.load_shared(batch + j * Block::kBytes);
            uint32_t a[4][4];
            block.template widen<true>(a);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              uint32_t v[kTiles][4];
              load_x(x + j * kBlockOfX, half, v);
#pragma unroll
              for (int s = 0; s < 2; ++s)
#pragma unroll
                for (int t = 0; t < kTiles; ++t)
                  Mma<__nv_bfloat16>::k16(chain[t], a[2 * half + s], v[t][2 * s], v[t][2 * s + 1]);
            }
            if (kScaled && (j % 2 == 1 || b + j + 1 == blocks)) add_chain((b + j) / 2);
          }
        }
        __syncwarp();  // all lanes have read the batch
        issue(b / kBatch + kStages);
        at.next();
      }
    }
    if constexpr (!kScaled)
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[t][i] = chain[t][i];
  }

 private:
  FOVEA_DEVICE int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  FOVEA_DEVICE uint32_t barrier(uint32_t stage) const { return memory + (warp() * kStages + stage) * 8; }
  FOVEA_DEVICE uint32_t ring() const { return memory + kBarrierBytes + warp() * kRingBytes; }
  FOVEA_DEVICE uint32_t x_slot(int chunk) const {
    return memory + kBarrierBytes + kWarps * kRingBytes +
           static_cast<uint32_t>(chunk % 2 * kChunk * kBlockOfX);
  }

  /// Copies a batch into its stage, which has been read.
  FOVEA_DEVICE void issue(int batch) const {
    const int first = batch * kBatch;
    if (first >= blocks) return;
    const auto bytes = static_cast<uint32_t>(min(kBatch, blocks - first) * Block::kBytes);
    const uint32_t stage = batch % kStages, to = ring() + stage * kBatchBytes;
    const uint8_t* from = panel + static_cast<int64_t>(first) * Block::kBytes;
#if __CUDA_ARCH__ >= 900
    if (lane_id() == 0) {
      mbarrier_arrive_expect_tx(barrier(stage), bytes);
      bulk_load(to, from, bytes, barrier(stage), CacheHint::evict_first);
    }
#else
    for (uint32_t at = static_cast<uint32_t>(lane_id()) * 16; at < bytes; at += 512)
      cp_async_16(to + at, from + at);
    cp_async_commit();
#endif
  }

  FOVEA_DEVICE void wait(const RingPosition<kStages>& at) const {
#if __CUDA_ARCH__ >= 900
    mbarrier_wait(barrier(at.slot), at.phase);
#else
    cp_async_wait<0>();
    __syncwarp();
#endif
  }

  /// The B fragments of 32 inputs of all rows.
  static FOVEA_DEVICE void load_x(uint32_t x, int half, uint32_t (&v)[kTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      ldmatrix_x4(v[t], (x ^ static_cast<uint32_t>(half * 64)) + static_cast<uint32_t>(t * 1024));
  }

  /// Chunk `chunk` of x into its slot.
  FOVEA_DEVICE void copy(int chunk) const {
    const int thread = static_cast<int>(threadIdx.x), piece = thread % 8;
    const int first = chunk * kChunk, end = min(first + kChunk, blocks);
    const int pass = kPass > 1 ? thread / (8 * kRows) : 0;
    uint32_t to = x_slot(chunk) + static_cast<uint32_t>(pass * kBlockOfX);
    for (int b = first + pass; b < end; b += kPass, to += kPass * kBlockOfX) {
      const int bytes = min(16, 2 * (inputs - b * kBlockInputs) - piece * 16);
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        const int row = row_of(i);
        if (kRows % kPassRows != 0 && kPass == 1 && row >= kRows) break;
        const bool exists = valid[i] && bytes > 0;
        copy_part(to + static_cast<uint32_t>(row * 128 + ((piece ^ (row % 8)) * 16)),
                  exists ? rows[i] + static_cast<int64_t>(b) * 128 : rows[i], exists ? bytes : 0);
      }
    }
    cp_async_commit();
  }

  /// The first `bytes` bytes of 16, then zeros.
  static FOVEA_DEVICE void copy_part(uint32_t to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }
};

}  // namespace fovea::cuda
