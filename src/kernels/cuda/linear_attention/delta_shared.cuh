#pragma once
// Shared memory of the gated delta rule's kernel on Hopper, its copies and its barriers.
#include "kernels/cuda/linear_attention/delta_params.h"
#include "kernels/cuda/linear_attention/panels.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::chunked {

/// Factors of a chunk's rows. With G the sums of log2 of the decays, n_k and n_q what normalises k and q (1
/// without), s the scale:
struct alignas(16) DeltaFactors {
  float sum[kChunk];    // G
  float beta[kChunk];   // 0 past the last row
  float key[kChunk];    // n_k
  float query[kChunk];  // s n_q
  float known[kChunk];  // n_k exp(G), of k S
  float read[kChunk];   // s n_q exp(G), of q S
  float tail[kChunk];   // n_k exp(G_63 - G), of the state after the chunk
  float decay;          // exp(G_63)
};

constexpr int kDeltaStages = 3;  // chunks: in use, computed ahead, arriving

struct DeltaShared {
  // Panels of 64 columns. Rows of the output replace those of v.
  alignas(1024) unsigned char k[kDeltaStages][kTileBytes], q[kDeltaStages][kTileBytes],
      v[kDeltaStages][kTileBytes];
  // Matrices of two chunks; the blocks above the diagonal stay 0.
  alignas(1024) unsigned char scores[2][kMatrixBytes];  // of q and k, decayed, at and below the diagonal
  alignas(1024) unsigned char solve[2][kMatrixBytes];   // (1 + A)^-1 diag(beta)
  alignas(1024) unsigned char below[kMatrixBytes];      // blocks of A; on the diagonal -(1 + A)^-1 of them
  float block[kBlocks][kBlock][kBlock + 4];             // diagonal blocks of A, transposed
  DeltaFactors factors[2];
  alignas(8) uint64_t full[kDeltaStages];  // K, Q and V have arrived
  alignas(8) uint64_t done[kDeltaStages];  // the state's warpgroups have used them, and the matrices
  alignas(8) uint64_t ready[2];            // matrices and factors are there
  RowAddresses addresses;
  int first;  // row of the tensors
};

/// K, Q and V of a chunk into its stage; by one thread.
FOVEA_DEVICE void load_chunk(const DeltaParams& p, DeltaShared& shared, int chunk, int stage) {
  const int head = static_cast<int>(blockIdx.x) % p.call.heads, row = shared.first + chunk * kChunk;
  const uint32_t barrier = shared_address(&shared.full[stage]);
  mbarrier_arrive_expect_tx(barrier, 3 * kTileBytes);
#pragma unroll
  for (int panel = 0; panel < 2; ++panel) {
    const uint32_t at = static_cast<uint32_t>(panel * kPanelBytes);
    tma_load_3d(shared_address(shared.k[stage]) + at, &p.k, barrier, 64 * panel, head / p.call.group, row);
    tma_load_3d(shared_address(shared.q[stage]) + at, &p.q, barrier, 64 * panel, head / p.call.group, row);
    tma_load_3d(shared_address(shared.v[stage]) + at, &p.v, barrier, 64 * panel, head, row);
  }
}

/// Rows from `left` on become 0: they are another sequence's.
FOVEA_DEVICE void clear_rows(DeltaShared& shared, int stage, int left, int thread) {
  for (int i = thread; i < 3 * 2 * (kChunk - left) * 8; i += kAheadThreads) {
    const int chunk = i % 8, panel = i / 8 % 2, tile = i / 16 % 3, row = left + i / 48;
    unsigned char* const to = tile == 0 ? shared.k[stage] : tile == 1 ? shared.q[stage] : shared.v[stage];
    *reinterpret_cast<uint4*>(to + panel * kPanelBytes + row * kRowBytes + 16 * chunk) = {0, 0, 0, 0};
  }
}

}  // namespace fovea::cuda::chunked
