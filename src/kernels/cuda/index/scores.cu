// Scores of index keys by mma.sync. A warp has one query row at a time, its heads as the rows of A in
// registers, and takes keys from a tile in shared memory. Codes of e4m3 are widened to fp16, which is exact.
#include <algorithm>
#include <string>
#include <type_traits>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/index/scores.h"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kTile = 256;  ///< keys of a tile
constexpr int kBlock = 32;                                      ///< keys whose sums a warp exchanges at once
constexpr int kSteps = kIndexDim / 16, kPitch = kIndexDim * 2 + 16;
constexpr int kWideBytes = kTile * kPitch, kRawBytes = kTile * kIndexDim;
/// Two tiles as they are stored and one that codes are widened to, or two of 16 bits.
constexpr int kCodeShared = 2 * kRawBytes + kWideBytes, kFloatShared = 2 * kWideBytes;

/// A tile's keys: thread t looks up key t.
template <bool kCodes>
struct Tiles {
  static constexpr int kKeyBytes = kCodes ? kIndexDim : 2 * kIndexDim, kLanes = kKeyBytes / 16;
  static constexpr int kOwnPitch = kCodes ? kIndexDim : kPitch;
  const ScoreParams& p;
  const int32_t* pages;
  int keys;
  uint32_t shared;
  float* scales;    ///< [2][kTile]
  int64_t* places;  ///< [kTile]

  /// Addresses of the tile's records; a barrier must follow.
  __device__ void find(int key0) const {
    const int key = key0 + static_cast<int>(threadIdx.x);
    int64_t place = -1;
    if (key < keys) {
      const int index = p.page_size.quotient(key);
      const int64_t page = pages[index];
      place = page * p.in.keys.k_page_stride +
              (key - index * static_cast<int>(p.page_size.divisor)) * p.in.keys.k_slot_stride;
    }
    places[threadIdx.x] = place;
  }
  /// Requests the tile whose places are known.
  __device__ void request(int key0, int slot) const {
    const char* const base = static_cast<const char*>(p.in.keys.k);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kLanes; i += kThreads) {
      const int key = i / kLanes, chunk = i % kLanes;
      const int64_t place = places[key];
      cp_async_16(shared + static_cast<uint32_t>((slot * kTile + key) * kOwnPitch + chunk * 16),
                  base + (place < 0 ? 0 : place * (kCodes ? 1 : 2)) + chunk * 16, place >= 0);
    }
    if constexpr (kCodes) {
      const int key = key0 + static_cast<int>(threadIdx.x);
      float scale = 0;
      if (key < keys) {
        const int index = p.page_size.quotient(key);
        scale = p.in.keys.k_scales[pages[index] * p.in.keys.scale_page_stride +
                                   (key - index * static_cast<int>(p.page_size.divisor)) *
                                       p.in.keys.scale_slot_stride];
      }
      scales[slot * kTile + static_cast<int>(threadIdx.x)] = scale;
    }
    cp_async_commit();
  }
  /// The tile in `slot` as 16-bit elements. Codes are reordered within 16, as load_query() does: elements
  /// 4 q and 4 q + 1 of lane q, then 4 q + 2 and 4 q + 3.
  __device__ uint32_t open(int slot) const {
    if constexpr (!kCodes) return shared + static_cast<uint32_t>(slot * kWideBytes);
    const uint32_t raw = shared + static_cast<uint32_t>(slot * kRawBytes), wide = shared + 2 * kRawBytes;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kLanes; i += kThreads) {
      uint32_t w[4], r[4][2];
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "r"(raw + static_cast<uint32_t>(i * 16))
                   : "memory");
#pragma unroll
      for (int j = 0; j < 4; ++j)
        e4m3x4_to<__half>(r[j], w[j]);
      const uint32_t to = wide + static_cast<uint32_t>(i / kLanes * kPitch + i % kLanes * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + half * 16), "r"(r[0][half]),
                     "r"(r[1][half]), "r"(r[2][half]), "r"(r[3][half])
                     : "memory");
    }
    return wide;
  }
};

/// The queries of a row: A of kHeadTiles times 16 heads; those past the heads are 0, as are their weights.
template <int kHeadTiles, bool kCodes>
struct Query {
  uint32_t a[kHeadTiles][kSteps][4];
  float weight[kHeadTiles][2];

  __device__ void load(const ScoreParams& p, int row) {
    const int g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int head = tile * 16 + h * 8 + g;
        const bool exists = head < p.in.heads;
        weight[tile][h] = exists ? p.in.weights[static_cast<int64_t>(row) * p.in.heads + head] : 0.0f;
        const auto* const from = static_cast<const char*>(p.in.q) +
                                 (row * p.in.q_row_stride + head * kIndexDim) * (kCodes ? 1 : 2);
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          if constexpr (kCodes) {
            uint32_t r[2];
            e4m3x4_to<__half>(r, exists ? *reinterpret_cast<const uint32_t*>(from + k * 16 + q * 4) : 0u);
            a[tile][k][h] = r[0], a[tile][k][2 + h] = r[1];
          } else {
            a[tile][k][h] = exists ? *reinterpret_cast<const uint32_t*>(from + k * 32 + q * 4) : 0u;
            a[tile][k][2 + h] = exists ? *reinterpret_cast<const uint32_t*>(from + k * 32 + 16 + q * 4) : 0u;
          }
        }
      }
  }

  /// The sums of this lane's heads over the 8 keys at `keys`: two of them.
  template <class T>
  __device__ float2 score(uint32_t keys) const {
    float c[kHeadTiles][4];
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint32_t from = keys + lane % 8 * kPitch + lane / 8 * 16;
#pragma unroll
    for (int k = 0; k < kSteps; k += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, from + static_cast<uint32_t>(k * 32));
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        if (k == 0)
          Mma<T>::k16_first(c[tile], a[tile][k], b[0], b[1]);
        else
          Mma<T>::k16(c[tile], a[tile][k], b[0], b[1]);
        Mma<T>::k16(c[tile], a[tile][k + 1], b[2], b[3]);
      }
    }
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum.x = fmaf(fmaxf(c[tile][2 * h], 0.0f), weight[tile][h], sum.x);
        sum.y = fmaf(fmaxf(c[tile][2 * h + 1], 0.0f), weight[tile][h], sum.y);
      }
    return sum;
  }
};

/// Sums eight values over the eight lanes of equal lane % 4: the lane with g = lane / 4 returns value g. One
/// fixed tree.
__device__ float sum_heads(const float (&v)[8]) {
  const int g = lane_id() / 4;
  float x[4], y[2];
  const bool upper = (g & 4) != 0, middle = (g & 2) != 0, odd = (g & 1) != 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[i] = (upper ? v[4 + i] : v[i]) + __shfl_xor_sync(~0u, upper ? v[i] : v[4 + i], 16);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    y[i] = (middle ? x[2 + i] : x[i]) + __shfl_xor_sync(~0u, middle ? x[i] : x[2 + i], 8);
  return (odd ? y[1] : y[0]) + __shfl_xor_sync(~0u, odd ? y[0] : y[1], 4);
}

template <class T, bool kCodes, int kHeadTiles>
__global__ void __launch_bounds__(kThreads, 1) index_scores_kernel(const __grid_constant__ ScoreParams p) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float scales[2 * kTile];
  __shared__ int64_t places[kTile];
  grid_launch_dependents();
  grid_dependency_wait();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = static_cast<int>(blockIdx.x) / p.blocks;
  const int begin = static_cast<int>(blockIdx.x) % p.blocks * p.row_block,
            end = min(p.in.rows, begin + p.row_block);
  const int parts = kWarps / p.row_block, own = warp % p.row_block;
  const int part_keys = kTile / parts, part_first = warp / p.row_block * part_keys;
  for (int first = begin; first < end;) {
    const int b = p.seqs.of(p.in.first + first);
    const int last = b < 0 ? end : min(end, p.seqs.q_offsets[b + 1] - p.in.first);
    const int keys = b < 0 ? 0 : p.seqs.keys(b, p.in.first + last - 1, p.in.max_keys);  // of the last row
    const int tiles = keys > p.in.topk ? (keys + kTile - 1) / kTile : 0;
    const int row = first + own;
    const int row_keys = row < last && tiles > 0 ? p.seqs.keys(b, p.in.first + row, p.in.max_keys) : 0;
    first = last;
    if (share >= tiles) continue;
    Query<kHeadTiles, kCodes> query;
    if (row_keys > p.in.topk) query.load(p, row);
    const Tiles<kCodes> loader{p, p.seqs.pages_of(b), keys, shared_address(shared), scales, places};
    __syncthreads();  // the last sequence's tiles have been read
    loader.find(share * kTile);
    __syncthreads();
    loader.request(share * kTile, 0);
    int slot = 0;
    for (int tile = share; tile < tiles; tile += p.shares, slot ^= 1) {
      const int next = tile + p.shares;
      cp_async_wait<0>();
      __syncthreads();  // this tile has arrived, the places and the tile before have been read
      if (next < tiles) loader.find(next * kTile);
      const uint32_t wide = loader.open(slot);
      __syncthreads();
      if (next < tiles) loader.request(next * kTile, slot ^ 1);
      if (row_keys <= p.in.topk) continue;
      float* const out = p.scores + row * p.stride;
#pragma unroll 1
      for (int block = part_first; block < part_first + part_keys; block += kBlock) {
        if (tile * kTile + block >= row_keys) break;
        float v[8];
#pragma unroll
        for (int i = 0; i < kBlock / 8; ++i) {
          const float2 s = query.template score<T>(wide + static_cast<uint32_t>((block + i * 8) * kPitch));
          v[2 * i] = s.x, v[2 * i + 1] = s.y;
        }
        const int in_tile = block + lane_id() / 8 * 8 + lane_id() % 4 * 2 + lane_id() / 4 % 2;
        const int key = tile * kTile + in_tile;
        const float sum = sum_heads(v) * (kCodes ? scales[slot * kTile + in_tile] : 1.0f);
        if (key < row_keys) out[key] = sum + 0.0f;  // -0 becomes 0, which it equals
      }
    }
  }
}

int row_block_of(const IndexQueries& q) {
  const int each = q.batch.num_seqs() == 0 ? 1 : q.batch.num_tokens() / q.batch.num_seqs();
  int block = 1;
  while (block < kMostRowBlock && block * 2 <= each)
    block *= 2;
  return block;
}

template <class T, bool kCodes, int kHeadTiles>
Status launch(const ScoreParams& p, CudaStream& stream) {
  const auto kernel = index_scores_kernel<T, kCodes, kHeadTiles>;
  constexpr int kShared = kCodes ? kCodeShared : kFloatShared;
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  FOVEA_CUDA_TRY(launch_dependent(kernel, {static_cast<unsigned>(p.blocks * p.shares), kThreads, kShared},
                                  stream.handle(), p));
  return {};
}

template <class T, bool kCodes>
Status launch_heads(const ScoreParams& p, CudaStream& stream) {
  if (p.in.heads <= 16) return launch<T, kCodes, 1>(p, stream);
  if (p.in.heads <= 32) return launch<T, kCodes, 2>(p, stream);
  return launch<T, kCodes, 4>(p, stream);
}

bool aligned(const void* data, std::initializer_list<int64_t> strides, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
         std::ranges::all_of(strides, [bytes](int64_t s) { return s * bytes % 16 == 0; });
}

std::string str(int64_t x) {
  return std::to_string(x);
}

}  // namespace

Status launch_index_scores(const IndexQueries& q, float* scores, int64_t stride, CudaStream& stream) {
  if (q.rows == 0 || q.max_keys <= q.topk) return {};
  const bool codes = q.keys.dtype == KvCacheDType::fp8_e4m3;
  if (q.heads < 1 || q.heads > kMostIndexHeads)
    return unsupported("an indexer of " + str(q.heads) + " heads; the GPU's kernels take up to " +
                       str(kMostIndexHeads));
  if (!codes && (q.dtype == DType::f32 || q.keys.dtype != resolve(KvCacheDType::auto_, q.dtype)))
    return unsupported("index keys of " + std::string(to_string(q.keys.dtype)) + " beside queries of " +
                       std::string(to_string(q.dtype)) +
                       "; the GPU's kernels take fp8_e4m3, or float16 or bfloat16 for both");
  if (q.q == nullptr || q.weights == nullptr || scores == nullptr || q.keys.k == nullptr ||
      codes != (q.keys.k_scales != nullptr) || stride < q.max_keys ||
      !aligned(q.keys.k, {q.keys.k_page_stride, q.keys.k_slot_stride}, codes ? 1 : 2) ||
      !aligned(q.q, {q.q_row_stride}, codes ? 1 : 2))
    return invalid("index_scores: queries, weights, keys and scores aligned to 16 bytes are needed");
  ScoreParams p;
  p.in = q;
  p.seqs = IndexSequences(q.batch);
  p.page_size = FastDivisor(static_cast<uint32_t>(q.keys.page_size));
  p.scores = scores;
  p.stride = stride;
  p.row_block = row_block_of(q);
  int multiprocessors = 0, major = 0;
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device()));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
  const int64_t tiles = (q.max_keys + kTile - 1) / kTile;
  p.blocks = (q.rows + p.row_block - 1) / p.row_block;
  p.shares = static_cast<int>(std::clamp<int64_t>((2 * multiprocessors + p.blocks - 1) / p.blocks, 1, tiles));
  if (codes && major == 9 && !q.before_hopper) {
    // One CTA has room on a multiprocessor.
    p.shares = static_cast<int>(std::clamp<int64_t>(multiprocessors / p.blocks, 1, tiles));
    return launch_scores_sm90(p, stream);
  }
  if (codes) return launch_heads<__half, true>(p, stream);
  return q.dtype == DType::f16 ? launch_heads<__half, false>(p, stream)
                               : launch_heads<__nv_bfloat16, false>(p, stream);
}

}  // namespace fovea::cuda
