#pragma once
// Shared memory of the chunked kernel and the fragments that it reads from it. All tiles have rows of 16-bit
// elements whose 16-byte chunks are swizzled by the row (tiles/swizzle.cuh).
#include "kernels/cuda/linear_attention/sequence.cuh"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"
#include "kernels/cuda/tiles/swizzle.cuh"

namespace fovea::cuda::chunked {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kDim = 128;             // Dk and Dv
constexpr int kChunk = kLinearChunk;  // rows
constexpr int kBlock = 16;            // rows and columns of a block of the chunk's matrices
constexpr int kBlocks = kChunk / kBlock;
constexpr int kTileBytes = kChunk * kDim * 2, kMatrixBytes = kChunk * kChunk * 2;

/// Where the CTA's sequence and head lie: row 0 of each tensor. In shared memory, because registers are
/// scarce.
struct RowAddresses {
  const char *q, *k, *v;
  char* out;
  const float *g, *beta;  // or null
  int rows;
};

/// Factors of the chunk's rows.
struct Gates {
  float sum[kChunk];  // of log2 of the decays, up to and with the row
  float beta[kChunk];
  float key[kChunk];    // 1, or what normalises k
  float query[kChunk];  // scale, times what normalises q
};

struct Shared {
  alignas(1024) unsigned char k[2][kTileBytes], q[2][kTileBytes], v[kTileBytes];
  alignas(1024) unsigned char scores[kMatrixBytes];  // of q and k, decayed, at and below the diagonal
  alignas(1024) unsigned char solve[kMatrixBytes];   // below the diagonal blocks -A; these inverted
  float block[kBlocks][kBlock][kBlock + 4];          // diagonal blocks of A
  Gates gates;
  float g[2][kChunk], beta[2][kChunk];  // of a chunk, as they are in memory
  RowAddresses addresses;
  float one;
};

/// The rows from `start` on into a tile; rows from `count` on are zeros.
FOVEA_DEVICE void copy_tile(const unsigned char* tile, const char* rows, int64_t token_stride, int start,
                            int count) {
  constexpr int kRowsPerStep = kThreads / (kDim / 8);  // rows
  const int row = static_cast<int>(threadIdx.x) / (kDim / 8),
            chunk = static_cast<int>(threadIdx.x) % (kDim / 8);
  const char* from = rows + 2 * (start + row) * token_stride + 16 * chunk;
  const uint32_t to = shared_address(tile) + swizzled_chunk<2 * kDim>(row, chunk);
#pragma unroll
  for (int i = 0; i < kChunk / kRowsPerStep; ++i) {
    const bool valid = start + row + i * kRowsPerStep < count;
    cp_async_16(to + i * kRowsPerStep * 2 * kDim, valid ? from : rows, valid);
    from += 2 * kRowsPerStep * token_stride;
  }
}

/// A value per row, by one thread each; 0 past the last row.
FOVEA_DEVICE void copy_gates(float* to, const float* from, int64_t stride, int start, int count, int row) {
  const bool valid = start + row < count;
  if (from == nullptr) return;
  if (valid)
    cp_async_4(shared_address(to + row), from + (start + row) * stride);
  else
    to[row] = 0.0f;
}

/// Hides the value of x from the compiler, which would otherwise compute what follows from it earlier and
/// once for several uses, and spill.
template <class X>
FOVEA_DEVICE X opaque(X x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Lane addresses of ldmatrix in a tile, for its first 16 x 16 elements; tiles are aligned so that 16 columns
/// further is an exclusive or, and rows are an addition.
///   rows_first: rows as the n of a B fragment (r[0], r[1]: 8 rows; r[2], r[3]: the next 8), or transposed
///   the tile's columns as the rows of an A fragment columns_first: rows of an A fragment, or transposed the
///   tile's rows as the k of a B fragment
template <int kRowBytes>
FOVEA_DEVICE uint32_t rows_first(uint32_t tile) {
  const int lane = lane_id();
  return opaque(tile + swizzled_chunk<kRowBytes>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
}
template <int kRowBytes>
FOVEA_DEVICE uint32_t columns_first(uint32_t tile) {
  const int lane = lane_id();
  return opaque(tile + swizzled_chunk<kRowBytes>(lane % 16, lane / 16));
}
/// `at` of the 16 columns from 16 * step.
FOVEA_DEVICE uint32_t columns_on(uint32_t at, int step) {
  return at ^ static_cast<uint32_t>(32 * step);
}

FOVEA_DEVICE void store_pair(unsigned char* matrix, int row, int column, uint32_t pair) {
  *reinterpret_cast<uint32_t*>(matrix + swizzled_chunk<2 * kChunk>(row, column / 8) + 2 * (column % 8)) =
      pair;
}

/// sum[i] += sign * the 8 x 8 matrix at rows of 4 floats `a` times x; kBelow: only below its diagonal.
template <bool kBelow>
FOVEA_DEVICE void times_columns(float (&sum)[8], const float* a, const float (&x)[8], float sign) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    __syncwarp();  // loads of all rows ahead would take registers that are not there
#pragma unroll
    for (int j = 0; j < (kBelow ? i + 1 : 8); j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(a + i * (kBlock + 4) + j);
      const float of_row[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (!kBelow || j + c <= i) sum[i] = fmaf(sign * of_row[c], x[j + c], sum[i]);
    }
  }
}

/// The lower triangular block 1 + `a` (below its diagonal) inverted into the diagonal block of `solve`, by
/// one warp; `a` is overwritten. With halves of 8 rows: T11 and T22 by forward substitution, a column per
/// lane, T21 = -T22 A21 T11.
template <class T>
FOVEA_DEVICE void invert_block(float (&a)[kBlock][kBlock + 4], unsigned char* solve, int block) {
  const int column = opaque(lane_id() % kBlock), half = column / 8;
  float t[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    __syncwarp();  // loads of all rows ahead would take registers that are not there
    float sum = i == column % 8 ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j)
      sum = fmaf(-a[8 * half + i][8 * half + j], t[j], sum);
    t[i] = sum;
  }
  float below[8] = {};  // of T21
  __syncwarp();
  if (lane_id() >= 8 && lane_id() < kBlock)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      a[8 + i][column] = t[i];
  __syncwarp();
  float known[8] = {};  // only of the left half
  times_columns<false>(known, &a[8][0], t, 1.0f);
  times_columns<true>(below, &a[8][8], known, -1.0f);
  if (lane_id() >= kBlock) return;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int row = block * kBlock + i, at = block * kBlock + column;
    const float x = i < 8 ? (half == 0 ? t[i % 8] : 0.0f) : (half == 0 ? below[i % 8] : t[i % 8]);
    *reinterpret_cast<uint16_t*>(solve + swizzled_chunk<2 * kChunk>(row, at / 8) + 2 * (at % 8)) =
        static_cast<uint16_t>(pack<T>(x, 0.0f));
  }
}

}  // namespace fovea::cuda::chunked
