// The GPU kernel of flex_attention(), compiled by NVRTC: a text that gpu_source() puts behind the macros and
// the expressions of one call:
//   FLEX_TYPE (0 fp32, 1 fp16, 2 bf16), FLEX_D, FLEX_DV, FLEX_ALIGNED (rows of 16-byte pieces), FLEX_MASK,
//   FLEX_SCORE, FLEX_PRESCALE (scores are scaled before the mask), flex_mask(args, b, h, q, k, qlen, klen),
//   flex_score(args, s, b, h, q, k, qlen, klen).
// One thread block computes 64 query rows of one head; it walks a list of blocks of 64 keys, made by the
// interval analysis. Tensor cores (mma.sync) for 16-bit types, fused multiply-adds in fp32 else.

#define FLEX_MINUS_INF __int_as_float(int(0xff800000u))

namespace flex {

constexpr int kRows = 64, kKeys = 64;
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Where a key's K and V are, in elements.
__device__ __forceinline__ void key_place(const Args& a, int b, int kv_head, int key, long long& k,
                                          long long& v) {
  if (a.page_table != nullptr) {
    const long long page = a.page_table[b * a.page_table_stride + key / a.page_size];
    const long long slot = key % a.page_size;
    k = page * a.k_page_stride + slot * a.k_row_stride + kv_head * a.k_head_stride;
    v = page * a.v_page_stride + slot * a.v_row_stride + kv_head * a.v_head_stride;
  } else {
    k = a.seqs[b].k + key * a.k_row_stride + kv_head * a.k_head_stride;
    v = a.seqs[b].v + key * a.v_row_stride + kv_head * a.v_head_stride;
  }
}

/// The change of a scaled score, and the mask: a hidden key is -inf.
__device__ __forceinline__ float see(const Args& a, float s, int b, int h, int q, int k, int qlen, int klen,
                                     bool whole) {
#if FLEX_SCORE
  s = flex_score(a, s, b, h, q, k, qlen, klen);
#endif
  if (whole) return s;
#if FLEX_MASK
  return k < klen && flex_mask(a, b, h, q, k, qlen, klen) ? s : FLEX_MINUS_INF;
#else
  return k < klen ? s : FLEX_MINUS_INF;
#endif
}

#if FLEX_TYPE != 0

using Element = unsigned short;
constexpr int kD = (FLEX_D + 15) / 16 * 16, kDv = (FLEX_DV + 15) / 16 * 16;
constexpr int kQStride = kD + 8, kVStride = kDv + 8;  // no bank conflicts of ldmatrix
constexpr int kThreads = 128;

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void copy_async(Element* to, const Element* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const Element* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const Element* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if FLEX_TYPE == 2
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned r;
#if FLEX_TYPE == 2
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}

/// One row of `n` elements into shared memory, padded with zeros to kPadded; zeros if not `there`.
template <int kCount, int kPadded>
__device__ __forceinline__ void load_piece(Element* to, const Element* from, int piece, bool there) {
#if FLEX_ALIGNED
  if (piece * 8 < kCount) {
    copy_async(to + piece * 8, from + piece * 8, there);
    return;
  }
  *reinterpret_cast<uint4*>(to + piece * 8) = uint4{0, 0, 0, 0};
#else
  for (int i = piece * 8; i < piece * 8 + 8; ++i)
    to[i] = there && i < kCount ? from[i] : Element(0);
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads) flex_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char memory[];
  Element* const q_tile = reinterpret_cast<Element*>(memory);
  Element* const k_tiles = q_tile + kRows * kQStride;
  Element* const v_tiles = k_tiles + 2 * kKeys * kQStride;
  const int head = blockIdx.x, kv_head = head / a.group;
  const Tile tile = a.tiles[blockIdx.y];
  const Range range = a.ranges[a.heads_in_ranges ? blockIdx.y * gridDim.x + head : blockIdx.y];
  const Seq seq = a.seqs[tile.b];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Element* const q = static_cast<const Element*>(a.q) + seq.q + head * a.q_head_stride;

  const auto load_keys = [&](int first, int stage) {
    Element* const kt = k_tiles + stage * kKeys * kQStride;
    Element* const vt = v_tiles + stage * kKeys * kVStride;
    constexpr int kPieces = kD / 8, kVPieces = kDv / 8;
    for (int i = threadIdx.x; i < kKeys * kPieces; i += kThreads) {
      const int key = first + i / kPieces;
      const bool there = key < seq.klen;
      long long k, v;
      key_place(a, tile.b, kv_head, there ? key : first, k, v);
      load_piece<FLEX_D, kD>(kt + i / kPieces * kQStride, static_cast<const Element*>(a.k) + k, i % kPieces,
                             there);
    }
    for (int i = threadIdx.x; i < kKeys * kVPieces; i += kThreads) {
      const int key = first + i / kVPieces;
      const bool there = key < seq.klen;
      long long k, v;
      key_place(a, tile.b, kv_head, there ? key : first, k, v);
      load_piece<FLEX_DV, kDv>(vt + i / kVPieces * kVStride, static_cast<const Element*>(a.v) + v,
                               i % kVPieces, there);
    }
    asm volatile("cp.async.commit_group;");
  };

  for (int i = threadIdx.x; i < kRows * (kD / 8); i += kThreads) {
    const int row = i / (kD / 8);
    const bool there = tile.first + row < seq.qlen;
    load_piece<FLEX_D, kD>(q_tile + row * kQStride, q + (there ? tile.first + row : 0) * a.q_row_stride,
                           i % (kD / 8), there);
  }
  if (range.begin < range.end) load_keys(a.blocks[range.begin] >> 1, 0);
  asm volatile("cp.async.commit_group;");

  float o[kDv / 8][4];
  for (auto& x : o)
    x[0] = x[1] = x[2] = x[3] = 0.0f;
  float top[2] = {FLEX_MINUS_INF, FLEX_MINUS_INF}, sum[2] = {0.0f, 0.0f};
  const int row0 = tile.first + warp * 16 + lane / 4;  // and row0 + 8

  for (int at = range.begin; at < range.end; ++at) {
    const int stage = (at - range.begin) & 1, entry = a.blocks[at], first = entry >> 1;
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    if (at + 1 < range.end) load_keys(a.blocks[at + 1] >> 1, stage ^ 1);
    const Element* const kt = k_tiles + stage * kKeys * kQStride;
    const Element* const vt = v_tiles + stage * kKeys * kVStride;

    float s[kKeys / 8][4];
    for (auto& x : s)
      x[0] = x[1] = x[2] = x[3] = 0.0f;
#pragma unroll
    for (int d = 0; d < kD; d += 16) {
      unsigned x[4];
      load_matrices(x, q_tile + (warp * 16 + lane % 16) * kQStride + d + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < kKeys; n += 16) {
        unsigned y[4];
        load_matrices(y, kt + (n + lane % 8 + lane / 16 * 8) * kQStride + d + lane / 8 % 2 * 8);
        multiply(s[n / 8], x, y[0], y[1]);
        multiply(s[n / 8 + 1], x, y[2], y[3]);
      }
    }

    const bool whole = (entry & 1) != 0 && first + kKeys <= seq.klen;
#if FLEX_PRESCALE
    const float factor = kLog2e;
#else
    const float factor = a.scale * kLog2e;
#endif
    if (FLEX_PRESCALE || !whole) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + n * 8 + lane % 4 * 2 + i % 2;
#if FLEX_PRESCALE
          s[n][i] *= a.scale;
#endif
          s[n][i] = see(a, s[n][i], tile.b, head, row0 + i / 2 * 8, key, seq.qlen, seq.klen, whole);
        }
    }
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float high = FLEX_MINUS_INF;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        high = fmaxf(high, fmaxf(s[n][2 * r] * factor, s[n][2 * r + 1] * factor));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      const float after = fmaxf(top[r], high), base = after == FLEX_MINUS_INF ? 0.0f : after;
      alpha[r] = exp2_fast(top[r] - base);
      top[r] = after;
      sum[r] *= alpha[r];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          s[n][i] = exp2_fast(fmaf(s[n][i], factor, -base));
          sum[r] += s[n][i];
        }
    }
#pragma unroll
    for (int n = 0; n < kDv / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        o[n][i] *= alpha[i / 2];
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      const unsigned p[4] = {pack(s[k / 8][0], s[k / 8][1]), pack(s[k / 8][2], s[k / 8][3]),
                             pack(s[k / 8 + 1][0], s[k / 8 + 1][1]), pack(s[k / 8 + 1][2], s[k / 8 + 1][3])};
#pragma unroll
      for (int n = 0; n < kDv; n += 16) {
        unsigned y[4];
        load_transposed(y, vt + (k + lane % 16) * kVStride + n + lane / 16 * 8);
        multiply(o[n / 8], p, y[0], y[1]);
        multiply(o[n / 8 + 1], p, y[2], y[3]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 8 * r;
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    if (row >= seq.qlen) continue;
    const bool none = top[r] == FLEX_MINUS_INF && sum[r] == 0.0f;
    const float inverse = none ? 0.0f : 1.0f / sum[r];
    Element* const out =
        static_cast<Element*>(a.out) + seq.out + row * a.out_row_stride + head * a.out_head_stride;
#pragma unroll
    for (int n = 0; n < kDv / 8; ++n) {
      const int d = n * 8 + lane % 4 * 2;
      const unsigned both = pack(o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
      if (d < FLEX_DV) out[d] = static_cast<Element>(both);
      if (d + 1 < FLEX_DV) out[d + 1] = static_cast<Element>(both >> 16);
    }
    if (a.lse != nullptr && lane % 4 == 0)
      a.lse[(seq.token + row) * gridDim.x + head] = none ? FLEX_MINUS_INF : (top[r] + log2f(sum[r])) * kLn2;
  }
}

#else  // fp32

constexpr int kThreads = 256;
constexpr int kStep = 32;  // keys at once
constexpr int kKStride = FLEX_D + 1;

extern "C" __global__ void __launch_bounds__(kThreads) flex_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char memory[];
  float* const q_tile = reinterpret_cast<float*>(memory);  // [kRows, FLEX_D]
  float* const k_tile = q_tile + kRows * FLEX_D;           // [kStep, kKStride]
  float* const v_tile = k_tile + kStep * kKStride;         // [kStep, FLEX_DV]
  float* const p_tile = v_tile + kStep * FLEX_DV;          // [kRows, kStep]
  const int head = blockIdx.x, kv_head = head / a.group;
  const Tile tile = a.tiles[blockIdx.y];
  const Range range = a.ranges[a.heads_in_ranges ? blockIdx.y * gridDim.x + head : blockIdx.y];
  const Seq seq = a.seqs[tile.b];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int kWarpRows = kRows / (kThreads / 32);  // rows of a warp: 8
  constexpr int kColumns = (FLEX_DV + 31) / 32;       // columns of a lane
  const float* const q = static_cast<const float*>(a.q) + seq.q + head * a.q_head_stride;
  for (int i = threadIdx.x; i < kRows * FLEX_D; i += kThreads) {
    const int row = i / FLEX_D;
    q_tile[i] = tile.first + row < seq.qlen ? q[(tile.first + row) * a.q_row_stride + i % FLEX_D] : 0.0f;
  }
  float o[kWarpRows][kColumns], top[kWarpRows], sum[kWarpRows];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    top[r] = FLEX_MINUS_INF;
    sum[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      o[r][c] = 0.0f;
  }
  for (int at = range.begin; at < range.end; ++at)
    for (int first = a.blocks[at] >> 1, end = min(first + kKeys, seq.klen); first < end; first += kStep) {
      const bool whole = (a.blocks[at] & 1) != 0 && first + kStep <= seq.klen;
      __syncthreads();
      for (int j = warp; j < kStep; j += kThreads / 32) {
        const bool there = first + j < seq.klen;
        long long k, v;
        key_place(a, tile.b, kv_head, there ? first + j : first, k, v);
        for (int d = lane; d < FLEX_D; d += 32)
          k_tile[j * kKStride + d] = there ? static_cast<const float*>(a.k)[k + d] : 0.0f;
        for (int d = lane; d < FLEX_DV; d += 32)
          v_tile[j * FLEX_DV + d] = there ? static_cast<const float*>(a.v)[v + d] : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const int row = warp * kWarpRows + r;
        float s = 0.0f;
        for (int d = 0; d < FLEX_D; ++d)
          s = fmaf(q_tile[row * FLEX_D + d], k_tile[lane * kKStride + d], s);
        s = see(a, s * a.scale, tile.b, head, tile.first + row, first + lane, seq.qlen, seq.klen, whole) *
            kLog2e;
        float high = s;
#pragma unroll
        for (int x = 16; x > 0; x /= 2)
          high = fmaxf(high, __shfl_xor_sync(~0u, high, x));
        const float after = fmaxf(top[r], high), base = after == FLEX_MINUS_INF ? 0.0f : after;
        const float alpha = exp2f(top[r] - base), p = exp2f(s - base);
        top[r] = after;
        sum[r] = sum[r] * alpha + p;
        p_tile[row * kStep + lane] = p;
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          o[r][c] *= alpha;
      }
      __syncwarp();
      for (int j = 0; j < kStep; ++j) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float v = c * 32 + lane < FLEX_DV ? v_tile[j * FLEX_DV + c * 32 + lane] : 0.0f;
#pragma unroll
          for (int r = 0; r < kWarpRows; ++r)
            o[r][c] = fmaf(p_tile[(warp * kWarpRows + r) * kStep + j], v, o[r][c]);
        }
      }
    }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const int row = tile.first + warp * kWarpRows + r;
#pragma unroll
    for (int x = 16; x > 0; x /= 2)
      sum[r] += __shfl_xor_sync(~0u, sum[r], x);
    if (row >= seq.qlen) continue;
    const bool none = top[r] == FLEX_MINUS_INF && sum[r] == 0.0f;
    float* const out =
        static_cast<float*>(a.out) + seq.out + row * a.out_row_stride + head * a.out_head_stride;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (c * 32 + lane < FLEX_DV) out[c * 32 + lane] = none ? 0.0f : o[r][c] / sum[r];
    if (a.lse != nullptr && lane == 0)
      a.lse[(seq.token + row) * gridDim.x + head] = none ? FLEX_MINUS_INF : (top[r] + log2f(sum[r])) * kLn2;
  }
}

#endif

}  // namespace flex
