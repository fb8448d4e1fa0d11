#pragma once
// The gated delta rule in chunks with wgmma (sm_90a): two warpgroups have 64 columns of v each, their state
// transposed in registers; a third computes one chunk ahead what does not need it (delta_ahead.cuh).
#include "kernels/cuda/linear_attention/delta_ahead.cuh"

namespace fovea::cuda::chunked {

/// Factors of 64 rows, as the columns of a transposed accumulator have them: element 4 n + i is of row
/// 8 n + 2 q + i % 2.
FOVEA_DEVICE float2 factors_of(const float (&factors)[kChunk], int n) {
  return *reinterpret_cast<const float2*>(&factors[8 * n + 2 * (lane_id() % 4)]);
}

/// v - known x, in place of v.
template <class T>
FOVEA_DEVICE void subtract_known(uint32_t (&v)[kBlocks][4], const float (&x)[kChunk / 2],
                                 const DeltaFactors& f) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 known = factors_of(f.known, n);
    uint32_t(&pairs)[4] = v[n / 2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t& pair = pairs[2 * (n % 2) + half];
      const float2 value = unpack<T>(pair);
      pair = pack<T>(fmaf(-known.x, x[4 * n + 2 * half], value.x),
                     fmaf(-known.y, x[4 * n + 2 * half + 1], value.y));
    }
  }
}

FOVEA_DEVICE void scale_rows(float (&o)[kChunk / 2], const float (&factors)[kChunk]) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 f = factors_of(factors, n);
    o[4 * n] *= f.x, o[4 * n + 1] *= f.y, o[4 * n + 2] *= f.x, o[4 * n + 3] *= f.y;
  }
}

/// An accumulator as A fragments.
template <class T>
FOVEA_DEVICE void pack_rows(uint32_t (&a)[kBlocks][4], const float (&x)[kChunk / 2]) {
#pragma unroll
  for (int i = 0; i < kChunk / 4; ++i)
    a[i / 4][i % 4] = pack<T>(x[2 * i], x[2 * i + 1]);
}

/// x (+)= a M^T for a 64 x 64 matrix M.
template <class T, bool kAdd>
FOVEA_DEVICE void times_matrix(float (&x)[kChunk / 2], const uint32_t (&a)[kBlocks][4], uint32_t matrix) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
    Wgmma<T, kChunk>::template rs<false>(x, a[j], next_columns(tile_rows(matrix), j), kAdd || j > 0);
}

/// x = S^T rows^T.
template <class T>
FOVEA_DEVICE void state_times_tile(float (&x)[kChunk / 2], const uint32_t (&s)[kDim / 16][4], uint32_t tile) {
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d)
    Wgmma<T, kChunk>::template rs<false>(x, s[d], next_columns(tile_rows(tile), d), d > 0);
}

/// The warpgroup's 64 columns of out, which lie in `panel`, to memory.
FOVEA_DEVICE void store_panel(const DeltaParams& p, const DeltaShared& shared, const unsigned char* panel,
                              int chunk, int part) {
  const int thread = static_cast<int>(threadIdx.x) % 128, left = shared.addresses.rows - chunk * kChunk;
  if (left >= kChunk) {
    if (thread == 0) {
      tma_store_3d(&p.out, shared_address(panel), 64 * part, static_cast<int>(blockIdx.x) % p.call.heads,
                   shared.first + chunk * kChunk);
      bulk_commit();
    }
    return;
  }
  for (int row = thread / 8; row < left; row += 16)
    *reinterpret_cast<uint4*>(shared.addresses.out +
                              2 * ((chunk * kChunk + row) * p.call.out.token_stride + 64 * part) +
                              16 * (thread % 8)) =
        *reinterpret_cast<const uint4*>(panel + swizzled_chunk<kRowBytes>(row, thread % 8));
}

/// The first two warpgroups.
template <class T>
FOVEA_DEVICE void run_state(const DeltaParams& p, DeltaShared& shared, int chunks) {
  const int head = static_cast<int>(blockIdx.x) % p.call.heads,
            seq = static_cast<int>(blockIdx.x) / p.call.heads;
  const int warp = static_cast<int>(threadIdx.x) / 32, part = warp / 4;
  float s[kDim / 2];  // S^T: register 4 n + i is state_element(n, i)
  const float* in = state_block(p.call.states.in, p.call.states.in_slots, seq, head, p.call);
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i)
    s[i] = in == nullptr ? 0.0f : in[state_element(i / 4, i % 4)];
  RingPosition<kDeltaStages> at;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int buffer = chunk % 2;
    const uint32_t keys = shared_address(shared.k[at.slot]);
    unsigned char* const panel = shared.v[at.slot] + part * kPanelBytes;
    const uint32_t values = columns_on(rows_first<kRowBytes>(shared_address(panel)), warp % 4);
    const DeltaFactors& f = shared.factors[buffer];
    uint32_t a[kDim / 16][4], e[kBlocks][4];
    float x[kChunk / 2], o[kChunk / 2];
    pack_state<T>(a, s);
    mbarrier_wait(shared_address(&shared.full[at.slot]), at.phase);
    mbarrier_wait(shared_address(&shared.ready[buffer]), static_cast<uint32_t>(chunk / 2 % 2));
    wgmma_fence();
    state_times_tile<T>(x, a, keys);
    state_times_tile<T>(o, a, shared_address(shared.q[at.slot]));
    wgmma_commit();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ldmatrix_x4_trans(e[block], values + block * kBlock * kRowBytes);
    wgmma_wait<0>();
    wgmma_pin(x);
    wgmma_pin(o);
    subtract_known<T>(e, x, f);
    wgmma_fence();
    times_matrix<T, false>(x, e, shared_address(shared.solve[buffer]));
    wgmma_commit();
    scale_rows(o, f.read);
    const float decay = f.decay;
#pragma unroll
    for (float& y : s)
      y *= decay;
    wgmma_wait<0>();
    wgmma_pin(x);
    uint32_t of_state[kBlocks][4];
    pack_rows<T>(e, x);
    scale_rows(x, f.tail);
    pack_rows<T>(of_state, x);
    wgmma_fence();
    times_matrix<T, true>(o, e, shared_address(shared.scores[buffer]));
    wgmma_commit();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
      Wgmma<T, kDim>::template rs<true>(
          s, of_state[j], wgmma_advance(tile_columns(keys), static_cast<uint32_t>(j * kBlock * kRowBytes)),
          true);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(o);
    pack_rows<T>(e, o);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      stmatrix_x4_trans(values + block * kBlock * kRowBytes, e[block]);
    fence_proxy_async();
    named_barrier_sync(static_cast<uint32_t>(2 + part), 128);
    store_panel(p, shared, panel, chunk, part);
    wgmma_wait<0>();
    wgmma_pin(s);
    if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(shared_address(&shared.done[at.slot]));
    at.next();
  }
  if (threadIdx.x % 128 == 0) bulk_wait<0>();
  float* out = state_block(p.call.states.out, p.call.states.out_slots, seq, head, p.call);
  if (out == nullptr) return;
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i)
    out[state_element(i / 4, i % 4)] = s[i];
}

template <class T>
__global__ void __launch_bounds__(kAllThreads, 1) delta_wgmma_kernel(const __grid_constant__ DeltaParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DeltaShared& shared = *reinterpret_cast<DeltaShared*>(memory);
  if (threadIdx.x == 0) {
    locate_rows(p.call, shared.addresses);
    shared.first = sequence_rows(p.call.offsets, static_cast<int>(blockIdx.x) / p.call.heads, p.call.tokens,
                                 p.call.max_len)
                       .first;
    for (int i = 0; i < kDeltaStages; ++i) {
      mbarrier_init(shared_address(&shared.full[i]), 1);
      mbarrier_init(shared_address(&shared.done[i]), kWarps);
    }
    for (uint64_t& barrier : shared.ready)
      mbarrier_init(shared_address(&barrier), kAheadThreads);
    mbarrier_init_fence();
  }
  static_assert(offsetof(DeltaShared, solve) == offsetof(DeltaShared, scores) + 2 * kMatrixBytes);
  for (int i = static_cast<int>(threadIdx.x); i < 4 * kMatrixBytes / 16; i += kAllThreads)
    *reinterpret_cast<uint4*>(shared.scores[0] + 16 * i) = {0, 0, 0, 0};
  fence_proxy_async();
  __syncthreads();
  const int chunks = (shared.addresses.rows + kChunk - 1) / kChunk;
  // 384 threads start with 168 registers each; 2 x 192 + 120 are as many.
  if (threadIdx.x >= kThreads) {
    registers_decrease<120>();
    run_ahead<T>(p, shared, chunks, static_cast<int>(threadIdx.x) - kThreads);
  } else {
    registers_increase<192>();
    run_state<T>(p, shared, chunks);
  }
}

}  // namespace fovea::cuda::chunked
