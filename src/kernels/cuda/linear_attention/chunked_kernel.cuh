#pragma once
// Chunks of 64 rows on tensor cores: one CTA for each sequence and head. With G_i the sum of log decays up to
// row i of the chunk and S the state before it:
//   A_ij = beta_i exp(G_i - G_j) k_i.k_j, j < i;   (1 + A) E = beta (V - exp(G) K S)
//   O = scale (exp(G) Q S + (exp(G_i - G_j) q_i.k_j, j <= i) E);   S' = exp(G_63) S + (exp(G_63 - G) K)^T E
// (lightning attention: E = V). A warp keeps 16 columns of S in registers, transposed: the accumulators of
// S^T are A fragments of S^T K^T, and those of E^T are A fragments of what follows, so that only K, Q, V and
// the two 64 x 64 matrices pass through shared memory. The system is solved by blocks of 16 rows, each warp
// for its own columns.
#include "kernels/cuda/linear_attention/chunk_tile.cuh"

namespace fovea::cuda::chunked {

template <class T>
FOVEA_DEVICE void pack_a(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
  a[0] = pack<T>(low[0], low[1]);
  a[1] = pack<T>(low[2], low[3]);
  a[2] = pack<T>(high[0], high[1]);
  a[3] = pack<T>(high[2], high[3]);
}

/// sum[n] += factor S^T X^T for kTiles tiles of 8 rows of X; `at`: rows_first() of them. Uses of S have
/// different factors, -1 or one that the compiler does not know: it would keep S as 16-bit fragments from one
/// use to the next, and spill.
template <class T, int kTiles>
FOVEA_DEVICE void state_times_rows(float (&sum)[kTiles][4], const float (&s)[kDim / 8][4], uint32_t at,
                                   float factor) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t a[4];
    const float(&low)[4] = s[2 * k], (&high)[4] = s[2 * k + 1];
    a[0] = pack<T>(factor * low[0], factor * low[1]);
    a[1] = pack<T>(factor * low[2], factor * low[3]);
    a[2] = pack<T>(factor * high[0], factor * high[1]);
    a[3] = pack<T>(factor * high[2], factor * high[3]);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, columns_on(at, k) + 8 * n * 2 * kDim);
      Mma<T>::k16(sum[n], a, b[0], b[1]);
      Mma<T>::k16(sum[n + 1], a, b[2], b[3]);
    }
  }
}

/// Sums of log2 of the decays over a chunk by one warp, two rows per lane. Decays below 2^-127 are 0, and
/// counted so that sums and their differences stay exact enough.
FOVEA_DEVICE void sum_gates(Gates& gates, const float* g, bool given) {
  const int lane = lane_id();
  float2 x = {0, 0};
  if (given) x = *reinterpret_cast<const float2*>(g + 2 * lane);
  x.x *= 1.44269504f, x.y *= 1.44269504f;
  x.x = x.x < -127.0f ? -127.0f : x.x;
  x.y = x.y < -127.0f ? -127.0f : x.y;
  float sum = x.x + x.y;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += before;
  }
  const float first = __shfl_up_sync(0xffffffffu, sum, 1);
  gates.sum[2 * lane] = (lane == 0 ? 0.0f : first) + x.x;
  gates.sum[2 * lane + 1] = sum;
}

/// rsqrt(sum x^2 + 1e-6) of each row, four threads to a row.
template <class T>
FOVEA_DEVICE void normalize_rows(const unsigned char* tile, float* factor, float scale) {
  const int row = static_cast<int>(threadIdx.x) / 4, part = static_cast<int>(threadIdx.x) % 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kDim / 8 / 4; ++i) {
    const uint4 x =
        *reinterpret_cast<const uint4*>(tile + swizzled_chunk<2 * kDim>(row, part * (kDim / 32) + i));
#pragma unroll
    for (const uint32_t pair : {x.x, x.y, x.z, x.w}) {
      const float2 f = unpack<T>(pair);
      sum = fmaf(f.x, f.x, fmaf(f.y, f.y, sum));
    }
  }
  sum = quad_sum(sum);
  if (part == 0) factor[row] = scale * rsqrtf(sum + 1e-6f);
}

/// Blocks of Q K^T (kind 0) and K K^T (kind 1) with their factors: one row of blocks per warp, two at a time,
/// which keeps the accumulators few.
template <class T, bool kDelta>
FOVEA_DEVICE void chunk_matrices(Shared& shared, int buffer, int warp) {
  const int kind = warp / kBlocks, place = warp % kBlocks;
  if (!kDelta && kind == 1) return;
  const int block = kind == 0 ? place : kBlocks - 1 - place;  // as much for each of the SM's four schedulers
  const int g = opaque(lane_id() / 4), q = opaque(lane_id() % 4);
  const Gates& gates = shared.gates;
#pragma unroll 1
  for (int first = 0; first <= block; first += 2) {
    const uint32_t tile = shared_address(shared.k[buffer]);
    const uint32_t k = rows_first<2 * kDim>(tile) + static_cast<uint32_t>(first * kBlock * 2 * kDim);
    const uint32_t rows = columns_first<2 * kDim>(kind == 0 ? shared_address(shared.q[buffer]) : tile) +
                          static_cast<uint32_t>(block * kBlock * 2 * kDim);
    float sum[4][4] = {};
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t a[4], b[4];
      ldmatrix_x4(a, columns_on(rows, d));
      ldmatrix_x4(b, columns_on(k, d));
      Mma<T>::k16(sum[0], a, b[0], b[1]);
      Mma<T>::k16(sum[1], a, b[2], b[3]);
      if (first < block) {
        ldmatrix_x4(b, columns_on(k, d) + kBlock * 2 * kDim);
        Mma<T>::k16(sum[2], a, b[0], b[1]);
        Mma<T>::k16(sum[3], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = block * kBlock + g + 8 * half;
      const float of_row = kind == 0 ? gates.query[i] : -gates.key[i] * gates.beta[i];
      const float decay = gates.sum[i];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int column = first + n / 2, j = first * kBlock + 8 * n + 2 * q;
        if (column > block) continue;
        float x[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const bool below = kind == 0 ? j + c <= i : j + c < i;
          const float factor = of_row * gates.key[j + c] * exp2_approx(decay - gates.sum[j + c]);
          x[c] = below ? sum[n][2 * half + c] * factor : 0.0f;
        }
        if (kind == 1 && column == block)
          *reinterpret_cast<float2*>(&shared.block[block][g + 8 * half][8 * (n % 2) + 2 * q]) = {-x[0],
                                                                                                 -x[1]};
        else
          store_pair(kind == 0 ? shared.scores : shared.solve, i, j, pack<T>(x[0], x[1]));
      }
    }
  }
  if (kind == 1) {
    __syncwarp();
    invert_block<T>(shared.block[block], shared.solve, block);
  }
}

/// Values of the warp's columns as A fragments, transposed.
FOVEA_DEVICE void read_values(uint32_t (&v)[kBlocks][4], const Shared& shared, int warp) {
  const uint32_t at = columns_on(rows_first<2 * kDim>(shared_address(shared.v)), warp);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    ldmatrix_x4_trans(v[block], at + block * kBlock * 2 * kDim);
}

/// K S of the warp's columns and half of the rows; -K S of the first.
template <class T>
FOVEA_DEVICE void known_values(float (&x)[kBlocks][4], const float (&s)[kDim / 8][4], const Shared& shared,
                               int buffer, int half) {
#pragma unroll
  for (auto& tile : x)
#pragma unroll
    for (float& y : tile)
      y = 0.0f;
  state_times_rows<T>(x, s, rows_first<2 * kDim>(shared_address(shared.k[buffer])) + half * kChunk * kDim,
                      half == 0 ? -1.0f : 1.0f);
}

/// Half of E^T of the warp's columns in place of the values, from `x` of known_values(). The rows in front
/// of them have been solved.
template <class T>
FOVEA_DEVICE void solve_columns(uint32_t (&e)[kBlocks][4], float (&x)[kBlocks][4], const Shared& shared,
                                int half) {
  const int q = lane_id() % 4;
  const uint32_t at = rows_first<2 * kChunk>(shared_address(shared.solve));
#pragma unroll
  for (int b = 0; b < kBlocks / 2; ++b) {
    const int i = half * kBlocks / 2 + b;
#pragma unroll
    for (int n = 0; n < 2; ++n) {  // beta (V - exp(G) K S)
      const int j = i * kBlock + 8 * n + 2 * q;
      const float2 beta = *reinterpret_cast<const float2*>(&shared.gates.beta[j]);
      const float2 sum = *reinterpret_cast<const float2*>(&shared.gates.sum[j]);
      const float2 key = *reinterpret_cast<const float2*>(&shared.gates.key[j]);
      const float sign = half == 0 ? 1.0f : -1.0f;
      const float low = sign * key.x * exp2_approx(sum.x), high = sign * key.y * exp2_approx(sum.y);
      const float2 top = unpack<T>(e[i][2 * n]), bottom = unpack<T>(e[i][2 * n + 1]);
      float(&tile)[4] = x[2 * b + n];
      tile[0] = beta.x * fmaf(low, tile[0], top.x);
      tile[1] = beta.y * fmaf(high, tile[1], top.y);
      tile[2] = beta.x * fmaf(low, tile[2], bottom.x);
      tile[3] = beta.y * fmaf(high, tile[3], bottom.y);
    }
    uint32_t m[4], a[4];
#pragma unroll
    for (int j = 0; j < i; ++j) {
      ldmatrix_x4(m, columns_on(at, j) + i * kBlock * 2 * kChunk);
      Mma<T>::k16(x[2 * b], e[j], m[0], m[1]);
      Mma<T>::k16(x[2 * b + 1], e[j], m[2], m[3]);
    }
    pack_a<T>(a, x[2 * b], x[2 * b + 1]);
    ldmatrix_x4(m, columns_on(at, i) + i * kBlock * 2 * kChunk);
    float y[2][4];
    Mma<T>::k16_first(y[0], a, m[0], m[1]);
    Mma<T>::k16_first(y[1], a, m[2], m[3]);
    pack_a<T>(e[i], y[0], y[1]);
  }
}

/// Rows of out for the warp's columns, two blocks of rows at a time.
template <class T>
FOVEA_DEVICE void write_out(const RecurrenceParams& p, const Shared& shared, int buffer, int warp,
                            const float (&s)[kDim / 8][4], const uint32_t (&e)[kBlocks][4], int start) {
  const int g = lane_id() / 4, q = lane_id() % 4;
  const uint32_t scores = rows_first<2 * kChunk>(shared_address(shared.scores));
#pragma unroll 1  // one part at a time in registers
  for (int part = 0; part < 2; ++part) {
    float o[kBlocks][4] = {};
    state_times_rows<T>(o, s, rows_first<2 * kDim>(shared_address(shared.q[buffer])) + part * kChunk * kDim,
                        *static_cast<const volatile float*>(&shared.one));
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const int i = part * kChunk / 2 + 8 * n + 2 * q;
      const float2 query = *reinterpret_cast<const float2*>(&shared.gates.query[i]);
      const float2 sum = *reinterpret_cast<const float2*>(&shared.gates.sum[i]);
      const float low = query.x * exp2_approx(sum.x), high = query.y * exp2_approx(sum.y);
      o[n][0] *= low, o[n][1] *= high, o[n][2] *= low, o[n][3] *= high;
    }
#pragma unroll
    for (int block = 0; block < kBlocks / 2; ++block)
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        if (j > part * kBlocks / 2 + block) continue;
        uint32_t b[4];
        ldmatrix_x4(b, columns_on(scores, j) + (part * kBlocks / 2 + block) * kBlock * 2 * kChunk);
        Mma<T>::k16(o[2 * block], e[j], b[0], b[1]);
        Mma<T>::k16(o[2 * block + 1], e[j], b[2], b[3]);
      }
    const int row = opaque(start + part * kChunk / 2 + g);
    char* to = shared.addresses.out + 2 * (row * p.out.token_stride + 16 * warp + 2 * q);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const uint32_t low = movmatrix_trans(pack<T>(o[n][0], o[n][1]));
      const uint32_t high = movmatrix_trans(pack<T>(o[n][2], o[n][3]));
      if (row + 8 * n < shared.addresses.rows) {
        reinterpret_cast<uint32_t*>(to)[0] = low;
        reinterpret_cast<uint32_t*>(to)[4] = high;
      }
      to += 16 * p.out.token_stride;
    }
  }
}

/// S' = exp(G_63) S + (exp(G_63 - G) K)^T E, transposed.
template <class T>
FOVEA_DEVICE void update_state(float (&s)[kDim / 8][4], const Shared& shared, int buffer,
                               const uint32_t (&e)[kBlocks][4]) {
  const int q = opaque(lane_id() % 4);
  const uint32_t keys = columns_first<2 * kDim>(shared_address(shared.k[buffer]));
  const float last = shared.gates.sum[kChunk - 1], decay = exp2_approx(last);
#pragma unroll
  for (auto& tile : s)
#pragma unroll
    for (float& x : tile)
      x *= decay;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    uint32_t a[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = block * kBlock + 8 * half + 2 * q;
      const float2 sum = *reinterpret_cast<const float2*>(&shared.gates.sum[j]);
      const float2 key = *reinterpret_cast<const float2*>(&shared.gates.key[j]);
      const float low = key.x * exp2_approx(last - sum.x), high = key.y * exp2_approx(last - sum.y);
      const float2 top = unpack<T>(e[block][2 * half]), bottom = unpack<T>(e[block][2 * half + 1]);
      a[2 * half] = pack<T>(low * top.x, high * top.y);
      a[2 * half + 1] = pack<T>(low * bottom.x, high * bottom.y);
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, columns_on(keys, n / 2) + block * kBlock * 2 * kDim);
      Mma<T>::k16(s[n], a, b[0], b[1]);
      Mma<T>::k16(s[n + 1], a, b[2], b[3]);
    }
  }
}

/// The chunk's gates from what copy_chunk() has brought.
template <class T, bool kDelta>
FOVEA_DEVICE void read_gates(const RecurrenceParams& p, Shared& shared, int buffer, int left) {
  const int thread = static_cast<int>(threadIdx.x);
  Gates& gates = shared.gates;
  if (thread < 32) sum_gates(gates, shared.g[buffer], shared.addresses.g != nullptr);
  const int row = thread - 64;
  const bool mine = row >= 0 && row < kChunk;
  if (kDelta && mine)
    gates.beta[row] = row >= left ? 0.0f : shared.addresses.beta == nullptr ? 1.0f : shared.beta[buffer][row];
  if (kDelta && p.normalize) {
    normalize_rows<T>(shared.k[buffer], gates.key, 1.0f);
    normalize_rows<T>(shared.q[buffer], gates.query, p.scale);
  } else if (mine) {
    gates.key[row] = 1.0f;
    gates.query[row] = p.scale;
  }
}

/// K, Q and gates of the chunk from `start` on.
template <bool kDelta>
FOVEA_DEVICE void copy_chunk(const RecurrenceParams& p, Shared& shared, int buffer, int start) {
  const RowAddresses& at = shared.addresses;
  copy_tile(shared.k[buffer], at.k, p.k.token_stride, start, at.rows);
  copy_tile(shared.q[buffer], at.q, p.q.token_stride, start, at.rows);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kChunk)
    copy_gates(shared.g[buffer], at.g, p.g_stride, start, at.rows, thread);
  else if (kDelta && thread < 2 * kChunk)
    copy_gates(shared.beta[buffer], at.beta, p.beta_stride, start, at.rows, thread - kChunk);
}

FOVEA_DEVICE void locate_rows(const RecurrenceParams& p, RowAddresses& at) {
  const int head = static_cast<int>(blockIdx.x) % p.heads, seq = static_cast<int>(blockIdx.x) / p.heads;
  const int64_t kh = head / p.group;
  const SequenceRows rows = sequence_rows(p.offsets, seq, p.tokens, p.max_len);
  const int64_t first = rows.first;
  at.q = static_cast<const char*>(p.q.data) + 2 * (first * p.q.token_stride + kh * p.q.head_stride);
  at.k = static_cast<const char*>(p.k.data) + 2 * (first * p.k.token_stride + kh * p.k.head_stride);
  at.v = static_cast<const char*>(p.v.data) + 2 * (first * p.v.token_stride + head * p.v.head_stride);
  at.out = static_cast<char*>(p.out.data) + 2 * (first * p.out.token_stride + head * p.out.head_stride);
  at.g = p.g == nullptr ? nullptr : p.g + first * p.g_stride + head;
  at.beta = p.beta == nullptr ? nullptr : p.beta + first * p.beta_stride + head;
  at.rows = rows.count;
}

/// The element of S^T in register i of tile n: [dk][dv] in memory.
FOVEA_DEVICE int state_element(int n, int i) {
  const int warp = static_cast<int>(threadIdx.x) / 32, g = lane_id() / 4, q = lane_id() % 4;
  return (8 * n + 2 * q + i % 2) * kDim + 16 * warp + g + i / 2 * 8;
}

// CTAs of an SM, by its shared memory: devices of sm_80 have room for one.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define FOVEA_CHUNKED_CTAS 1
#else
#define FOVEA_CHUNKED_CTAS 2
#endif

template <class T, bool kDelta>
__global__ void __launch_bounds__(kThreads, FOVEA_CHUNKED_CTAS)
    chunked_kernel(const __grid_constant__ RecurrenceParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    locate_rows(p, shared.addresses);
    shared.one = 1.0f;
  }
  __syncthreads();
  if (shared.addresses.rows > 0) {
    copy_chunk<kDelta>(p, shared, 0, 0);
    copy_tile(shared.v, shared.addresses.v, p.v.token_stride, 0, shared.addresses.rows);
  }
  cp_async_commit();

  float s[kDim / 8][4];  // S^T: rows 16 warp + g (+ 8) of v, columns 8 n + 2 q (+ 1) of k
  {
    const float* in = state_block(p.states.in, p.states.in_slots, static_cast<int>(blockIdx.x) / p.heads,
                                  static_cast<int>(blockIdx.x) % p.heads, p);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[n][i] = in == nullptr ? 0.0f : in[state_element(n, i)];
  }
#pragma unroll 1
  for (int start = 0; start < shared.addresses.rows; start += kChunk) {
    const int buffer = start / kChunk % 2;
    cp_async_wait_all();
    __syncthreads();  // this chunk has arrived; all warps are done with the last one
    if (start + kChunk < shared.addresses.rows) copy_chunk<kDelta>(p, shared, 1 - buffer, start + kChunk);
    cp_async_commit();
    read_gates<T, kDelta>(p, shared, buffer, shared.addresses.rows - start);
    __syncthreads();  // gates
    chunk_matrices<T, kDelta>(shared, buffer, warp);
    uint32_t e[kBlocks][4];
    float x[kBlocks][4];
    if constexpr (kDelta) known_values<T>(x, s, shared, buffer, 0);
    read_values(e, shared, warp);
    __syncthreads();  // matrices; V has been read
    if (start + kChunk < shared.addresses.rows)
      copy_tile(shared.v, shared.addresses.v, p.v.token_stride, start + kChunk, shared.addresses.rows);
    cp_async_commit();
    if constexpr (kDelta) {
      solve_columns<T>(e, x, shared, 0);
      known_values<T>(x, s, shared, buffer, 1);
      solve_columns<T>(e, x, shared, 1);
    }
    write_out<T>(p, shared, buffer, warp, s, e, start);
    update_state<T>(s, shared, buffer, e);
  }
  cp_async_wait_all();

  float* out = state_block(p.states.out, p.states.out_slots, static_cast<int>(blockIdx.x) / p.heads,
                           static_cast<int>(blockIdx.x) % p.heads, p);
  if (out == nullptr) return;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[state_element(n, i)] = s[n][i];
}

template <class T, bool kDelta>
cudaError_t launch_chunked_of(const RecurrenceParams& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(Shared));
  if (const cudaError_t code = cudaFuncSetAttribute(chunked_kernel<T, kDelta>,
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      code != cudaSuccess)
    return code;
  chunked_kernel<T, kDelta><<<static_cast<unsigned>(p.seqs * p.heads), kThreads, kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace fovea::cuda::chunked
