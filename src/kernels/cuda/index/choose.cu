// The largest scores of a row: an exact radix select over their ranks, a CTA a row. Rows that fit stay in
// shared memory.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/index/sequences.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 2048;
constexpr int kEach = 4;                 ///< neighbours of a thread
constexpr int kMostResident = 48 << 10;  ///< keys of a row in shared memory

struct Params {
  IndexSequences seqs;
  int first, rows, topk;
  int64_t max_keys;
  const float* scores;
  int64_t stride;
  int32_t* chosen;
  int resident;  ///< keys that the shared memory holds
};

/// As rank_of() of kernels/cpu/indexer.cc: ascending with the score, NaN last.
__device__ uint32_t rank_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ~0u;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/// The sum of x over the threads before this one; `total` over all. Two barriers.
__device__ uint32_t sum_before(uint32_t x, uint32_t (&warps)[kWarps], uint32_t& total) {
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / 32;
  uint32_t sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t y = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += y;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  uint32_t of_warps = warps[lane];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t y = __shfl_up_sync(~0u, of_warps, step);
    if (lane >= step) of_warps += y;
  }
  total = __shfl_sync(~0u, of_warps, 31);
  const uint32_t before = __shfl_sync(~0u, of_warps, warp == 0 ? 0 : warp - 1);
  __syncthreads();  // `warps` may be written again
  return sum - x + (warp == 0 ? 0u : before);
}

struct Shared {
  uint32_t bins[kBins], warps[kWarps];
  uint32_t digit, left;
};

/// The row's ranks, in shared memory or from the scores.
struct Ranks {
  const uint32_t* shared;  ///< null: not resident
  const float* scores;
  __device__ uint32_t at(int i) const { return shared != nullptr ? shared[i] : rank_of(__ldcg(scores + i)); }
};

/// Counts the digits of ranks that begin with `found`. Equal digits of a warp are added at once, as ReLU
/// makes most scores 0.
__device__ void count(Shared& s, const Ranks& ranks, int n, uint32_t found, uint32_t known, int shift,
                      uint32_t mask) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads)
    s.bins[i] = 0;
  __syncthreads();
  for (int first = 0; first < n; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const uint32_t rank = i < n ? ranks.at(i) : 0u;
    const bool counts = i < n && (rank & known) == found;
    const uint32_t digit = rank >> shift & mask;
    const unsigned all = __ballot_sync(~0u, counts);
    if (all == 0) continue;
    const int leader = __ffs(static_cast<int>(all)) - 1;
    const uint32_t common = __shfl_sync(~0u, digit, leader);  // by all lanes, before any branch
    const unsigned same = __ballot_sync(~0u, counts && digit == common);
    if (lane_id() == leader)
      atomicAdd(&s.bins[digit], static_cast<uint32_t>(__popc(same)));
    else if (counts && (same >> lane_id() & 1u) == 0)
      atomicAdd(&s.bins[digit], 1u);
  }
  __syncthreads();
}

/// The digit of the rank that is number `left` from the top, and how many of the ranks with it are chosen.
__device__ void find_digit(Shared& s, uint32_t left) {
  // Thread t has bins 2047 - 2 t and 2046 - 2 t.
  const int bin = kBins - 1 - 2 * static_cast<int>(threadIdx.x);
  const uint32_t upper = s.bins[bin], lower = s.bins[bin - 1];
  uint32_t total;
  const uint32_t before = sum_before(upper + lower, s.warps, total);
  if (before < left && left <= before + upper) s.digit = static_cast<uint32_t>(bin), s.left = left - before;
  if (before + upper < left && left <= before + upper + lower)
    s.digit = static_cast<uint32_t>(bin - 1), s.left = left - before - upper;
  __syncthreads();
}

__device__ void write_chosen(Shared& s, const Ranks& ranks, int n, uint32_t found, uint32_t left,
                             int32_t* chosen) {
  uint32_t larger = 0, equal = 0;  // before the keys at hand
  for (int first = 0; first < n; first += kThreads * kEach) {
    const int begin = first + static_cast<int>(threadIdx.x) * kEach;
    uint32_t rank[kEach], own = 0, total;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      rank[e] = begin + e < n ? ranks.at(begin + e) : 0u;
      own += rank[e] > found && begin + e < n ? 1u : rank[e] == found && begin + e < n ? 0x10000u : 0u;
    }
    const uint32_t before = sum_before(own, s.warps, total);
    uint32_t over = larger + (before & 0xffffu), ties = equal + (before >> 16);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (begin + e >= n) break;
      const bool is_larger = rank[e] > found, is_equal = rank[e] == found;
      if (is_larger || (is_equal && ties < left)) chosen[over + min(ties, left)] = begin + e;
      over += is_larger ? 1u : 0u;
      ties += is_equal ? 1u : 0u;
    }
    larger += total & 0xffffu;
    equal += total >> 16;
  }
}

__global__ void __launch_bounds__(kThreads) choose_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) uint32_t resident[];
  __shared__ Shared s;
  grid_launch_dependents();
  grid_dependency_wait();
  for (int row = static_cast<int>(blockIdx.x); row < p.rows; row += static_cast<int>(gridDim.x)) {
    const int b = p.seqs.of(p.first + row);
    const int n = b < 0 ? 0 : p.seqs.keys(b, p.first + row, p.max_keys);
    int32_t* const chosen = p.chosen + static_cast<int64_t>(row) * p.topk;
    if (n <= p.topk) {
      for (int i = static_cast<int>(threadIdx.x); i < p.topk; i += kThreads)
        chosen[i] = i < n ? i : -1;
      continue;
    }
    const float* const scores = p.scores + row * p.stride;
    Ranks ranks{nullptr, scores};
    if (n <= p.resident) {
      __syncthreads();  // the last row's ranks have been read
      for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
        resident[i] = rank_of(__ldcg(scores + i));
      ranks.shared = resident;
      __syncthreads();
    }
    uint32_t found = 0, known = 0, left = static_cast<uint32_t>(p.topk);
#pragma unroll 1
    for (int pass = 0; pass < 3; ++pass) {
      const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
      const uint32_t mask = pass == 2 ? 1023u : 2047u;
      count(s, ranks, n, found, known, shift, mask);
      find_digit(s, left);
      found |= s.digit << shift;
      known |= mask << shift;
      left = s.left;
      __syncthreads();
    }
    write_chosen(s, ranks, n, found, left, chosen);
  }
}

}  // namespace

Status launch_choose_largest(const IndexQueries& q, const float* scores, int64_t stride, int32_t* chosen,
                             CudaStream& stream) {
  if (q.rows == 0) return {};
  if (chosen == nullptr || q.topk < 1 || (scores == nullptr && q.max_keys > q.topk) || stride < q.max_keys)
    return invalid("choose_largest: scores of at least max_keys a row, and lists are needed");
  Params p;
  p.seqs = IndexSequences(q.batch);
  p.first = q.first;
  p.rows = q.rows;
  p.topk = q.topk;
  p.max_keys = q.max_keys;
  p.scores = scores;
  p.stride = stride;
  p.chosen = chosen;
  // Short rows leave room for two CTAs on a multiprocessor.
  constexpr int kShort = 20 << 10;
  p.resident = q.max_keys <= q.topk ? 0 : q.max_keys <= kShort ? kShort : kMostResident;
  const int bytes = p.resident * 4;
  FOVEA_CUDA_TRY(
      cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostResident * 4));
  FOVEA_CUDA_TRY(launch_dependent(choose_kernel,
                                  {static_cast<unsigned>(q.rows), kThreads, static_cast<size_t>(bytes)},
                                  stream.handle(), p));
  return {};
}

}  // namespace fovea::cuda
