// HSTU attention on tensor cores: a CTA computes 64 rows of one sequence and head over tiles of 64 keys, a
// warp 16 rows. There is no maximum and no sum to keep: weights silu(alpha q.k + bias) are packed as they
// are, and the sum is divided by N at the end.
#include "kernels/cpu/hstu_mask.h"
#include "kernels/cuda/linear_attention/sequence.cuh"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"
#include "kernels/cuda/tiles/swizzle.cuh"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps, kKeys = 64;

template <int kDim>
struct Shared {
  alignas(1024) unsigned char q[kRows * kDim * 2], k[2][kKeys * kDim * 2], v[2][kKeys * kDim * 2];
  int first, last;  // keys that a row of the CTA sees
};

/// kTileRows rows of one head; zeros from row `count` on.
template <int kDim, int kTileRows>
FOVEA_DEVICE void copy_rows(unsigned char* tile, const char* rows, int64_t token_stride, int start,
                            int count) {
  constexpr int kChunks = kDim / 8, kRowsPerStep = kThreads / kChunks;
  const int row = static_cast<int>(threadIdx.x) / kChunks, chunk = static_cast<int>(threadIdx.x) % kChunks;
#pragma unroll
  for (int i = 0; i < kTileRows / kRowsPerStep; ++i) {
    const int at = row + i * kRowsPerStep;
    const bool valid = start + at < count;
    cp_async_16(shared_address(tile) + swizzled_chunk<2 * kDim>(at, chunk),
                rows + (valid ? 2 * (start + at) * token_stride + 16 * chunk : 0), valid);
  }
}

struct RowRange {
  int row, begin, end;  // a row of the sequence; it sees [begin, end) and itself

  FOVEA_DEVICE bool sees(int j) const { return (j >= begin && j < end) || j == row; }
};

FOVEA_DEVICE float bias_of(const HstuAttention& c, const int64_t* times, int keys, int i, int j) {
  float bias = 0;
  if (c.position_bias != nullptr) bias = c.position_bias[c.max_seq_len - 1 + j - i];
  if (c.time_bias != nullptr) {
    int64_t x = times[min(i + 1, keys - 1)] - times[j];
    x = x < 0 ? -x : x;
    int low = 0, high = c.time_buckets;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (c.time_bounds[middle] <= x)
        low = middle + 1;
      else
        high = middle;
    }
    bias += c.time_bias[low];
  }
  return bias;
}

/// z / (1 + e^-z).
FOVEA_DEVICE float silu(float z) {
  return __fdividef(z, 1.0f + exp2_approx(-1.44269504f * z));
}

/// Scores of 16 rows become weights; all keys are seen.
FOVEA_DEVICE void weigh(float (&s)[kKeys / 8][4], float alpha) {
#pragma unroll
  for (auto& tile : s)
#pragma unroll
    for (float& x : tile)
      x = silu(alpha * x);
}

/// The same with the mask and biases.
FOVEA_DEVICE void weigh(float (&s)[kKeys / 8][4], const HstuAttention& c, const RowRange (&ranges)[2],
                        const int64_t* times, int keys, int first) {
  const int q = lane_id() % 4;
  const bool biased = c.position_bias != nullptr || c.time_bias != nullptr;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const RowRange& range = ranges[i / 2];
      const int j = first + 8 * n + 2 * q + i % 2;
      float z = c.alpha * s[n][i];
      const bool seen = j < keys && range.sees(j);
      if (biased && seen && range.row < keys) z += bias_of(c, times, keys, range.row, j);
      s[n][i] = seen ? silu(z) : 0.0f;
    }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, kDim > 64 ? 1 : 2)
    hstu_kernel(const __grid_constant__ HstuParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared<kDim>& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  const HstuAttention& c = p.call;
  const int seq = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id(), g = lane / 4, q = lane % 4;
  const SequenceRows of_keys = sequence_rows(c.sequences.offsets, seq, c.sequences.tokens, c.max_seq_len);
  SequenceRows of_rows = of_keys;
  if (c.q_offsets != nullptr) of_rows = sequence_rows(c.q_offsets, seq, c.q_tokens, of_keys.count);
  const int keys = of_keys.count, first_row = keys - of_rows.count;
  const int tiles = (of_rows.count + kRows - 1) / kRows;
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x);  // those with most keys first
  if (tile < 0) return;
  const int start = tile * kRows;  // among the queries

  const char* of_q =
      static_cast<const char*>(c.q.data) + 2 * (of_rows.first * c.q.token_stride + head * c.q.head_stride);
  const char* of_k =
      static_cast<const char*>(c.k.data) + 2 * (of_keys.first * c.k.token_stride + head * c.k.head_stride);
  const char* of_v =
      static_cast<const char*>(c.v.data) + 2 * (of_keys.first * c.v.token_stride + head * c.v.head_stride);
  copy_rows<kDim, kRows>(shared.q, of_q, c.q.token_stride, start, of_rows.count);
  if (threadIdx.x == 0) shared.first = INT32_MAX, shared.last = 0;
  __syncthreads();
  const int targets = c.num_targets == nullptr ? 0 : min(max(c.num_targets[seq], 0), keys);
  const HstuMask mask{keys, targets, c.contextual, c.max_attn_len, c.min_full, c.num_targets != nullptr};
  RowRange ranges[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + start + 16 * warp + g + 8 * half;
    const HstuRange range = hstu_range(mask, min(row, keys - 1));
    ranges[half] = {row, static_cast<int>(range.begin), static_cast<int>(range.end)};
    if (q == 0 && row < keys) {
      atomicMin(&shared.first, min(row, ranges[half].begin < ranges[half].end ? ranges[half].begin : row));
      atomicMax(&shared.last, max(row + 1, ranges[half].end));
    }
  }
  __syncthreads();
  const int first = shared.first / kKeys * kKeys, last = shared.last;
  copy_rows<kDim, kKeys>(shared.k[0], of_k, c.k.token_stride, first, keys);
  copy_rows<kDim, kKeys>(shared.v[0], of_v, c.v.token_stride, first, keys);
  cp_async_commit();

  const int64_t* times = c.times == nullptr ? nullptr : c.times + of_keys.first;
  const uint32_t queries =
      shared_address(shared.q) + swizzled_chunk<2 * kDim>(16 * warp + lane % 16, lane / 16);
  const bool plain = c.position_bias == nullptr && c.time_bias == nullptr;
  float o[kDim / 8][4] = {};
#pragma unroll 1
  for (int j = first, buffer = 0; j < last; j += kKeys, buffer ^= 1) {
    cp_async_wait_all();
    __syncthreads();
    if (j + kKeys < last) {
      copy_rows<kDim, kKeys>(shared.k[1 - buffer], of_k, c.k.token_stride, j + kKeys, keys);
      copy_rows<kDim, kKeys>(shared.v[1 - buffer], of_v, c.v.token_stride, j + kKeys, keys);
    }
    cp_async_commit();
    bool all_seen = true, none_seen = true;
#pragma unroll
    for (const RowRange& range : ranges) {
      all_seen = all_seen && range.begin <= j && range.end >= j + kKeys;
      const bool own = range.row >= j && range.row < j + kKeys;
      none_seen = none_seen && !own && (range.begin >= j + kKeys || range.end <= j);
    }
    if (__all_sync(0xffffffffu, none_seen)) continue;
    const bool whole = plain && __all_sync(0xffffffffu, all_seen);
    float s[kKeys / 8][4] = {};
    const uint32_t k =
        shared_address(shared.k[buffer]) + swizzled_chunk<2 * kDim>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t a[4];
      ldmatrix_x4(a, queries ^ static_cast<uint32_t>(32 * d));
#pragma unroll
      for (int n = 0; n < kKeys / 8; n += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, (k ^ static_cast<uint32_t>(32 * d)) + 8 * n * 2 * kDim);
        Mma<T>::k16(s[n], a, b[0], b[1]);
        Mma<T>::k16(s[n + 1], a, b[2], b[3]);
      }
    }
    if (whole)
      weigh(s, c.alpha);
    else
      weigh(s, c, ranges, times, keys, j);
    const uint32_t v = shared_address(shared.v[buffer]) + swizzled_chunk<2 * kDim>(lane % 16, lane / 16);
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t a[4];
      a[0] = pack<T>(s[2 * n][0], s[2 * n][1]);
      a[1] = pack<T>(s[2 * n][2], s[2 * n][3]);
      a[2] = pack<T>(s[2 * n + 1][0], s[2 * n + 1][1]);
      a[3] = pack<T>(s[2 * n + 1][2], s[2 * n + 1][3]);
#pragma unroll
      for (int d = 0; d < kDim / 8; d += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, (v ^ static_cast<uint32_t>(16 * d)) + 16 * n * 2 * kDim);
        Mma<T>::k16(o[d], a, b[0], b[1]);
        Mma<T>::k16(o[d + 1], a, b[2], b[3]);
      }
    }
  }
  cp_async_wait_all();
  const float scale = 1.0f / static_cast<float>(c.max_seq_len);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = start + 16 * warp + g + 8 * half;
    if (row >= of_rows.count) continue;
    T* out = static_cast<T*>(c.out.data) + (of_rows.first + row) * c.out.token_stride +
             head * c.out.head_stride + 2 * q;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d)
      *reinterpret_cast<uint32_t*>(out + 8 * d) = pack<T>(scale * o[d][2 * half], scale * o[d][2 * half + 1]);
  }
}

template <class T, int kDim>
cudaError_t launch_hstu_of(const HstuParams& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(Shared<kDim>));
  if (const cudaError_t code =
          cudaFuncSetAttribute(hstu_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      code != cudaSuccess)
    return code;
  const dim3 grid(static_cast<unsigned>((p.max_rows + kRows - 1) / kRows),
                  static_cast<unsigned>(p.call.heads), static_cast<unsigned>(p.call.sequences.count));
  hstu_kernel<T, kDim><<<grid, kThreads, kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

bool has_hstu(const HstuAttention& c) {
  return c.dtype != DType::f32 && c.dk == c.dv && (c.dk == 64 || c.dk == 128) &&
         aligned_rows(c.q.data, c.q.token_stride, c.q.head_stride) &&
         aligned_rows(c.k.data, c.k.token_stride, c.k.head_stride) &&
         aligned_rows(c.v.data, c.v.token_stride, c.v.head_stride) &&
         aligned_rows(c.out.data, c.out.token_stride, c.out.head_stride);
}

cudaError_t launch_hstu_tiles(const HstuParams& p, cudaStream_t stream) {
  if (p.call.dtype == DType::bf16)
    return p.call.dk == 64 ? launch_hstu_of<__nv_bfloat16, 64>(p, stream)
                           : launch_hstu_of<__nv_bfloat16, 128>(p, stream);
  return p.call.dk == 64 ? launch_hstu_of<__half, 64>(p, stream) : launch_hstu_of<__half, 128>(p, stream);
}

}  // namespace fovea::cuda
