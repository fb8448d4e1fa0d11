#pragma once
// Lightning attention in chunks with wgmma (sm_90a): two warpgroups have 64 columns of v each, their state
// transposed in registers; a third computes gates and the matrix of scores one chunk ahead. One CTA per SM.
#include "kernels/cuda/linear_attention/panels.cuh"

namespace fovea::cuda::chunked {

/// copy_tile() into panels.
FOVEA_DEVICE void copy_panels(const unsigned char* tile, const char* rows, int64_t token_stride, int start,
                              int count) {
  constexpr int kRowsPerStep = kThreads / (kDim / 8);
  const int row = static_cast<int>(threadIdx.x) / (kDim / 8),
            chunk = static_cast<int>(threadIdx.x) % (kDim / 8);
  const char* from = rows + 2 * (start + row) * token_stride + 16 * chunk;
  const uint32_t to = shared_address(tile) + static_cast<uint32_t>(chunk / 8 * kPanelBytes) +
                      swizzled_chunk<kRowBytes>(row, chunk % 8);
#pragma unroll
  for (int i = 0; i < kChunk / kRowsPerStep; ++i) {
    const bool valid = start + row + i * kRowsPerStep < count;
    cp_async_16(to + i * kRowsPerStep * kRowBytes, valid ? from : rows, valid);
    from += 2 * kRowsPerStep * token_stride;
  }
}

constexpr int kTileStages = 3;  // of K and Q: computed ahead, in use, arriving

struct SharedAhead {
  alignas(1024) unsigned char k[kTileStages][kTileBytes], q[kTileStages][kTileBytes], v[2][kTileBytes];
  alignas(1024) unsigned char scores[2][kMatrixBytes];
  Gates gates[2];
  float g[kTileStages][kChunk];
  RowAddresses addresses;
};

/// Decayed products into scores: the warp's block of rows.
template <class T>
FOVEA_DEVICE void store_scores(SharedAhead& shared, int buffer, const float (&m)[kChunk / 2], int block) {
  const int g = opaque(lane_id() / 4), q = opaque(lane_id() % 4);
  const Gates& gates = shared.gates[buffer];
  unsigned char* const to = shared.scores[buffer];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = block * kBlock + g + 8 * half;
    const float of_row = gates.query[i];
    const float decay = gates.sum[i];
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const int j = 8 * n + 2 * q;
      if (n / 2 > block) {
        store_pair(to, i, j, 0);
        continue;
      }
      const float2 sum = *reinterpret_cast<const float2*>(&gates.sum[j]);
      const float2 key = *reinterpret_cast<const float2*>(&gates.key[j]);
      float low = m[4 * n + 2 * half] * of_row * key.x * exp2_approx(decay - sum.x);
      float high = m[4 * n + 2 * half + 1] * of_row * key.y * exp2_approx(decay - sum.y);
      if (n / 2 == block) {
        low = j <= i ? low : 0.0f;
        high = j + 1 <= i ? high : 0.0f;
      }
      store_pair(to, i, j, pack<T>(low, high));
    }
  }
}

/// The factors of E for the state: exp(G_63 - G), and what normalises k.
template <class T>
FOVEA_DEVICE void pack_for_state(uint32_t (&a)[kBlocks][4], const uint32_t (&e)[kBlocks][4],
                                 const Gates& gates) {
  const int q = opaque(lane_id() % 4);
  const float last = gates.sum[kChunk - 1];
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
    const int block = i / 2, half = i % 2, j = 8 * i + 2 * q;
    const float2 sum = *reinterpret_cast<const float2*>(&gates.sum[j]);
    const float2 key = *reinterpret_cast<const float2*>(&gates.key[j]);
    const float low = key.x * exp2_approx(last - sum.x), high = key.y * exp2_approx(last - sum.y);
    const float2 top = unpack<T>(e[block][2 * half]), bottom = unpack<T>(e[block][2 * half + 1]);
    a[block][2 * half] = pack<T>(low * top.x, high * top.y);
    a[block][2 * half + 1] = pack<T>(low * bottom.x, high * bottom.y);
  }
}

FOVEA_DEVICE void scale_out(float (&o)[kChunk / 2], const Gates& gates) {
  const int q = opaque(lane_id() % 4);
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const int i = 8 * n + 2 * q;
    const float2 query = *reinterpret_cast<const float2*>(&gates.query[i]);
    const float2 sum = *reinterpret_cast<const float2*>(&gates.sum[i]);
    const float low = query.x * exp2_approx(sum.x), high = query.y * exp2_approx(sum.y);
    o[4 * n] *= low, o[4 * n + 1] *= high, o[4 * n + 2] *= low, o[4 * n + 3] *= high;
  }
}

/// O^T of the warp's columns to its rows in memory.
template <class T>
FOVEA_DEVICE void store_out(const RecurrenceParams& p, const RowAddresses& at, const float (&o)[kChunk / 2],
                            int start, int warp) {
  const int row = start + opaque(lane_id() / 4);
  char* to = at.out + 2 * (row * p.out.token_stride + 16 * warp + 2 * (lane_id() % 4));
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const uint32_t low = movmatrix_trans(pack<T>(o[4 * n], o[4 * n + 1]));
    const uint32_t high = movmatrix_trans(pack<T>(o[4 * n + 2], o[4 * n + 3]));
    if (row + 8 * n < at.rows) {
      reinterpret_cast<uint32_t*>(to)[0] = low;
      reinterpret_cast<uint32_t*>(to)[4] = high;
    }
    to += 16 * p.out.token_stride;
  }
}

/// The third warpgroup: gates and scores of a chunk.
template <class T>
FOVEA_DEVICE void compute_ahead(const RecurrenceParams& p, SharedAhead& shared, int chunk, int thread) {
  const int stage = chunk % kTileStages, buffer = chunk % 2, block = thread / 32;
  float m[kChunk / 2];
  multiply_rows<T>(m, shared_address(shared.q[stage]), shared_address(shared.k[stage]));
  Gates& gates = shared.gates[buffer];
  if (thread < 32) sum_gates(gates, shared.g[stage], shared.addresses.g != nullptr);
  if (thread >= 64) gates.key[thread - 64] = 1.0f, gates.query[thread - 64] = p.scale;
  sync_ahead();
  wgmma_wait<0>();
  wgmma_pin(m);
  store_scores<T>(shared, buffer, m, block);
  fence_proxy_async();
}

/// K, Q and gates of a chunk, by the first two warpgroups.
FOVEA_DEVICE void copy_keys(const RecurrenceParams& p, SharedAhead& shared, int chunk) {
  const RowAddresses& at = shared.addresses;
  const int stage = chunk % kTileStages, start = chunk * kChunk, thread = static_cast<int>(threadIdx.x);
  if (start >= at.rows) return;
  copy_panels(shared.k[stage], at.k, p.k.token_stride, start, at.rows);
  copy_panels(shared.q[stage], at.q, p.q.token_stride, start, at.rows);
  if (thread < kChunk) copy_gates(shared.g[stage], at.g, p.g_stride, start, at.rows, thread);
}

FOVEA_DEVICE void copy_values(const RecurrenceParams& p, SharedAhead& shared, int chunk) {
  const RowAddresses& at = shared.addresses;
  if (chunk * kChunk < at.rows)
    copy_tile(shared.v[chunk % 2], at.v, p.v.token_stride, chunk * kChunk, at.rows);
}

template <class T>
FOVEA_DEVICE void run_ahead(const RecurrenceParams& p, SharedAhead& shared, int chunks, int thread) {
  __syncthreads();  // the first chunk has arrived
  if (chunks > 0) compute_ahead<T>(p, shared, 0, thread);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __syncthreads();  // see run_state()
    if (chunk + 1 < chunks) compute_ahead<T>(p, shared, chunk + 1, thread);
  }
}

/// The first two warpgroups: the state.
template <class T>
FOVEA_DEVICE void run_state(const RecurrenceParams& p, SharedAhead& shared, int chunks) {
  const int head = static_cast<int>(blockIdx.x) % p.heads, seq = static_cast<int>(blockIdx.x) / p.heads;
  copy_keys(p, shared, 0);
  copy_values(p, shared, 0);
  cp_async_commit();
  copy_keys(p, shared, 1);
  cp_async_commit();
  float s[kDim / 2];  // S^T: register 4 n + i is state_element(n, i)
  const float* in = state_block(p.states.in, p.states.in_slots, seq, head, p);
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i)
    s[i] = in == nullptr ? 0.0f : in[state_element(i / 4, i % 4)];
  cp_async_wait<1>();
  fence_proxy_async();
  __syncthreads();  // the first chunk has arrived
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const uint32_t k = shared_address(shared.k[chunk % kTileStages]),
                   q = shared_address(shared.q[chunk % kTileStages]);
    const Gates& gates = shared.gates[chunk % 2];
    uint32_t a[kDim / 16][4];
    float o[kChunk / 2];
    pack_state<T>(a, s);
    cp_async_wait_all();
    fence_proxy_async();
    __syncthreads();  // this chunk's V and matrices, and the next one's K and Q; the last chunk is done with
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d)
      Wgmma<T, kChunk>::template rs<false>(o, a[d], next_columns(tile_rows(q), d), d > 0);
    wgmma_commit();
    copy_keys(p, shared, chunk + 2);
    copy_values(p, shared, chunk + 1);
    cp_async_commit();
    uint32_t e[kBlocks][4];
    const uint32_t values =
        columns_on(rows_first<2 * kDim>(shared_address(shared.v[chunk % 2])), warp_here());
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ldmatrix_x4_trans(e[block], values + block * kBlock * 2 * kDim);
    wgmma_wait<0>();
    wgmma_pin(o);
    scale_out(o, gates);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
      Wgmma<T, kChunk>::template rs<false>(
          o, e[j], next_columns(tile_rows(shared_address(shared.scores[chunk % 2])), j), true);
    wgmma_commit();
    uint32_t of_state[kBlocks][4];
    pack_for_state<T>(of_state, e, gates);
    const float decay = exp2_approx(gates.sum[kChunk - 1]);
#pragma unroll
    for (float& y : s)
      y *= decay;
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
      Wgmma<T, kDim>::template rs<true>(
          s, of_state[j], wgmma_advance(tile_columns(k), static_cast<uint32_t>(j * kBlock * kRowBytes)),
          true);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(o);
    store_out<T>(p, shared.addresses, o, chunk * kChunk, warp_here());
    wgmma_wait<0>();
    wgmma_pin(s);
  }
  float* out = state_block(p.states.out, p.states.out_slots, seq, head, p);
  if (out == nullptr) return;
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i)
    out[state_element(i / 4, i % 4)] = s[i];
}

template <class T>
__global__ void __launch_bounds__(kAllThreads, 1)
    lightning_wgmma_kernel(const __grid_constant__ RecurrenceParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  SharedAhead& shared = *reinterpret_cast<SharedAhead*>(memory);
  if (threadIdx.x == 0) locate_rows(p, shared.addresses);
  __syncthreads();
  const int chunks = (shared.addresses.rows + kChunk - 1) / kChunk;
  // 384 threads start with 168 registers each; 2 x 200 + 104 are as many.
  if (threadIdx.x >= kThreads) {
    registers_decrease<104>();
    run_ahead<T>(p, shared, chunks, static_cast<int>(threadIdx.x) - kThreads);
  } else {
    registers_increase<200>();
    run_state<T>(p, shared, chunks);
  }
}

}  // namespace fovea::cuda::chunked
