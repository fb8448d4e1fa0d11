#pragma once
// What the gated delta rule's third warpgroup computes one chunk ahead: factors of the rows, the decayed
// scores, and (1 + A)^-1 diag(beta) of chunked_kernel.cuh's A.
#include "kernels/cuda/linear_attention/delta_shared.cuh"

namespace fovea::cuda::chunked {

/// Gates of a chunk as they are in memory: g of rows lane and 32 + lane; beta of row thread % 64.
struct LoadedGates {
  float low = 0, high = 0, beta = 0;
};
FOVEA_DEVICE LoadedGates load_gates(const DeltaParams& p, const RowAddresses& at, int start, int thread) {
  const int lane = lane_id();
  LoadedGates x;
  if (at.g != nullptr) {
    if (start + lane < at.rows) x.low = at.g[(start + lane) * p.call.g_stride];
    if (start + 32 + lane < at.rows) x.high = at.g[(start + 32 + lane) * p.call.g_stride];
  }
  if (const int row = start + thread % kChunk; row < at.rows)
    x.beta = at.beta == nullptr ? 1.0f : at.beta[row * p.call.beta_stride];
  return x;
}

/// log2 of a decay; those below 2^-127 count as that, so that sums and their differences stay exact enough.
FOVEA_DEVICE float gate_log2(float g) {
  g *= 1.44269504f;
  return g < -127.0f ? -127.0f : g;
}

/// rsqrt(sum x^2 + 1e-6) of a row of panels.
template <class T>
FOVEA_DEVICE float row_normalizer(const unsigned char* tile, int row) {
  float sum[4] = {};
#pragma unroll
  for (int chunk = 0; chunk < kDim / 8; ++chunk) {
    const uint4 x = *reinterpret_cast<const uint4*>(tile + chunk / 8 * kPanelBytes +
                                                    swizzled_chunk<kRowBytes>(row, chunk % 8));
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 f = unpack<T>(pairs[i]);
      sum[i] = fmaf(f.x, f.x, fmaf(f.y, f.y, sum[i]));
    }
  }
  return rsqrtf((sum[0] + sum[1]) + (sum[2] + sum[3]) + 1e-6f);
}

/// Factors of a chunk: of a row of k by each of the first 64 threads, of q by the others.
template <class T>
FOVEA_DEVICE void store_factors(const DeltaParams& p, DeltaShared& shared, int stage, int buffer,
                                const LoadedGates& gates, int thread) {
  const int lane = lane_id(), row = thread % kChunk;
  float low = gate_log2(gates.low), high = gate_log2(gates.high);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float before_low = __shfl_up_sync(0xffffffffu, low, step);
    const float before_high = __shfl_up_sync(0xffffffffu, high, step);
    if (lane >= step) low += before_low, high += before_high;
  }
  high += __shfl_sync(0xffffffffu, low, 31);
  const float last = __shfl_sync(0xffffffffu, high, 31), sum = row < 32 ? low : high;
  DeltaFactors& f = shared.factors[buffer];
  if (thread < kChunk) {
    const float key = p.call.normalize ? row_normalizer<T>(shared.k[stage], row) : 1.0f;
    f.sum[row] = sum;
    f.beta[row] = gates.beta;
    f.key[row] = key;
    f.known[row] = key * exp2_approx(sum);
    f.tail[row] = key * exp2_approx(last - sum);
    if (thread == 0) f.decay = exp2_approx(last);
  } else {
    const float query = p.call.scale * (p.call.normalize ? row_normalizer<T>(shared.q[stage], row) : 1.0f);
    f.query[row] = query;
    f.read[row] = query * exp2_approx(sum);
  }
}

/// From products of keys and of queries with keys: the warp's 16 rows of the scores and of A.
template <class T>
FOVEA_DEVICE void store_matrices(DeltaShared& shared, int buffer, const float (&kk)[kChunk / 2],
                                 const float (&qk)[kChunk / 2], int block) {
  const int g = lane_id() / 4, q = lane_id() % 4, row = block * kBlock + g;
  const DeltaFactors& f = shared.factors[buffer];
  const float sums[2] = {f.sum[row], f.sum[row + 8]}, queries[2] = {f.query[row], f.query[row + 8]};
  const float keys[2] = {f.beta[row] * f.key[row], f.beta[row + 8] * f.key[row + 8]};
  const uint32_t rows_at = static_cast<uint32_t>(block * kBlock * kRowBytes);
  const uint32_t scores = columns_first<kRowBytes>(shared_address(shared.scores[buffer])) + rows_at;
  const uint32_t below = columns_first<kRowBytes>(shared_address(shared.below)) + rows_at;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if (b > block) continue;
    float s[8], a[8];  // 4 n + 2 half + column
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = b * kBlock + 8 * n + 2 * q;
      const float2 sum = *reinterpret_cast<const float2*>(&f.sum[j]);
      const float2 key = *reinterpret_cast<const float2*>(&f.key[j]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 4 * n + 2 * half;
        const float x = key.x * exp2_approx(sums[half] - sum.x), y = key.y * exp2_approx(sums[half] - sum.y);
        s[i] = qk[8 * b + i] * (queries[half] * x);
        s[i + 1] = qk[8 * b + i + 1] * (queries[half] * y);
        a[i] = kk[8 * b + i] * (keys[half] * x);
        a[i + 1] = kk[8 * b + i + 1] * (keys[half] * y);
      }
    }
    if (b == block) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = i / 4 * 8 + 2 * q + i % 2, r = g + i / 2 % 2 * 8;
        s[i] = j <= r ? s[i] : 0.0f;
        shared.block[block][j][r] = j < r ? a[i] : 0.0f;
      }
    } else {
      const uint32_t packed[4] = {pack<T>(a[0], a[1]), pack<T>(a[2], a[3]), pack<T>(a[4], a[5]),
                                  pack<T>(a[6], a[7])};
      stmatrix_x4(columns_on(below, b), packed);
    }
    const uint32_t packed[4] = {pack<T>(s[0], s[1]), pack<T>(s[2], s[3]), pack<T>(s[4], s[5]),
                                pack<T>(s[6], s[7])};
    stmatrix_x4(columns_on(scores, b), packed);
  }
}

/// The warp's diagonal block inverted by substitution, a column per lane: times beta of the columns into
/// `solve`, negated into `below`.
template <class T>
FOVEA_DEVICE void invert_diagonal(DeltaShared& shared, int buffer, int block) {
  const int column = lane_id() % kBlock;
  float t[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i)
    t[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int j = 0; j + 1 < kBlock; ++j)
#pragma unroll
    for (int i = (j + 1) / 4 * 4; i < kBlock; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&shared.block[block][j][i]);
      const float rows[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (i + r > j) t[i + r] = fmaf(-rows[r], t[j], t[i + r]);
    }
  const bool first = lane_id() < kBlock;
  const float factor = first ? shared.factors[buffer].beta[block * kBlock + column] : -1.0f;
  unsigned char* const to = first ? shared.solve[buffer] : shared.below;
  const int at = block * kBlock + column;
#pragma unroll
  for (int i = 0; i < kBlock; ++i)
    *reinterpret_cast<uint16_t*>(to + swizzled_chunk<kRowBytes>(block * kBlock + i, at / 8) + 2 * (at % 8)) =
        static_cast<uint16_t>(pack<T>(factor * t[i], 0.0f));
}

/// The blocks of the warp's columns below the diagonal block, by substitution of blocks: T_ij = -D_i (sum
/// over j <= k < i of A_ik T_kj), all transposed.
template <class T>
FOVEA_DEVICE void solve_blocks(DeltaShared& shared, int buffer, const uint32_t (&own)[4], int block) {
  const uint32_t solve = columns_on(rows_first<kRowBytes>(shared_address(shared.solve[buffer])), block);
  const uint32_t below = rows_first<kRowBytes>(shared_address(shared.below));
  uint32_t t[kBlocks][4];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      t[b][r] = own[r];
#pragma unroll
  for (int i = 1; i < kBlocks; ++i) {
    if (i <= block) continue;
    const uint32_t rows = static_cast<uint32_t>(i * kBlock * kRowBytes);
    float sum[2][4] = {}, product[2][4];
    uint32_t m[4], a[4];
#pragma unroll
    for (int k = 0; k < i; ++k) {
      if (k < block) continue;
      ldmatrix_x4(m, columns_on(below, k) + rows);
      Mma<T>::k16(sum[0], t[k], m[0], m[1]);
      Mma<T>::k16(sum[1], t[k], m[2], m[3]);
    }
    pack_a<T>(a, sum[0], sum[1]);
    ldmatrix_x4(m, columns_on(below, i) + rows);
    Mma<T>::k16_first(product[0], a, m[0], m[1]);
    Mma<T>::k16_first(product[1], a, m[2], m[3]);
    pack_a<T>(t[i], product[0], product[1]);
    stmatrix_x4_trans(solve + rows, t[i]);
  }
}

template <class T>
FOVEA_DEVICE void run_ahead(const DeltaParams& p, DeltaShared& shared, int chunks, int thread) {
  const int block = thread / 32;
  if (thread == 0)
    for (int chunk = 0; chunk < min(chunks, 2); ++chunk)
      load_chunk(p, shared, chunk, chunk);
  LoadedGates gates = load_gates(p, shared.addresses, 0, thread);
  RingPosition<kDeltaStages> at, free;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = static_cast<int>(at.slot), buffer = chunk % 2;
    if (chunk >= 2) {  // chunk - 2 is done: its matrices are replaced now, its stage one chunk later
      mbarrier_wait(shared_address(&shared.done[free.slot]), free.phase);
      if (thread == 0 && chunk + 1 < chunks) load_chunk(p, shared, chunk + 1, static_cast<int>(free.slot));
      free.next();
    } else if (chunk == 1 && thread == 0 && chunks > 2) {
      load_chunk(p, shared, 2, 2);
    }
    mbarrier_wait(shared_address(&shared.full[stage]), at.phase);
    if (const int left = shared.addresses.rows - chunk * kChunk; left < kChunk) {
      clear_rows(shared, stage, left, thread);
      fence_proxy_async();
      __syncwarp();
      sync_ahead();
    }
    float kk[kChunk / 2], qk[kChunk / 2];
    const uint32_t keys = shared_address(shared.k[stage]);
    multiply_rows<T>(kk, keys, keys);
    multiply_rows<T>(qk, shared_address(shared.q[stage]), keys);
    store_factors<T>(p, shared, stage, buffer, gates, thread);
    gates = load_gates(p, shared.addresses, (chunk + 1) * kChunk, thread);
    sync_ahead();  // factors; all are done with the last chunk's `below`
    wgmma_wait<0>();
    wgmma_pin(kk);
    wgmma_pin(qk);
    store_matrices<T>(shared, buffer, kk, qk, block);
    __syncwarp();
    invert_diagonal<T>(shared, buffer, block);
    __syncwarp();
    uint32_t own[4];
    ldmatrix_x4_trans(own, columns_on(rows_first<kRowBytes>(shared_address(shared.solve[buffer])), block) +
                               static_cast<uint32_t>(block * kBlock * kRowBytes));
    sync_ahead();  // `below`
    solve_blocks<T>(shared, buffer, own, block);
    fence_proxy_async();
    mbarrier_arrive(shared_address(&shared.ready[buffer]));
    at.next();
  }
}

}  // namespace fovea::cuda::chunked
