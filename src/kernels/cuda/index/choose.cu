// The largest scores of a row, exactly, a CTA a row. A sample of the scores gives a bound that nearly twice
// as many exceed as are chosen; one read of the row collects these in order, and a radix select over their
// ranks finds the last one. Where the bound leaves too few or too many, the radix select reads all scores.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/index/sequences.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kBins = 2048, kOwnBins = kBins / kThreads;
constexpr int kEach = 4;  ///< neighbours of a thread
/// Scores that a thread reads at once: kBlocks times kBlockKeys neighbours. A warp's follow each other. Two
/// blocks take 64 registers and leave room for two CTAs, which is slower.
constexpr int kBlocks = 1, kBlockKeys = 8, kWarpKeys = 32 * kBlocks * kBlockKeys, kChunk = kWarps * kWarpKeys;
constexpr int kCandidates = 6144;
/// Vectors of a thread in a sample; rows from kLongRow keys on have the larger one.
constexpr int kSample = 1, kLongSample = 3, kLongRow = 64 << 10;
static_assert(kThreads * kEach * kLongSample <= kCandidates && kCandidates / kThreads > 2 * kEach);

struct Params {
  IndexSequences seqs;
  int first, rows, topk;
  int64_t max_keys;
  const float* scores;
  int64_t stride;
  int32_t* chosen;
  bool vectors;  ///< rows begin at multiples of 16 bytes
  int want;      ///< candidates to aim at; 0: none, as more keys are chosen than there is room for
};

/// As rank_of() of kernels/cpu/indexer.cc: ascending with the score, NaN last. Never 0.
__device__ uint32_t rank_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ~0u;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
/// The score of a rank.
__device__ float score_of(uint32_t rank) {
  return __uint_as_float(rank >> 31 != 0 ? rank & 0x7fffffffu : ~rank);
}

struct Shared {
  uint32_t ranks[kCandidates];  ///< at first the bits of scores
  int32_t keys[kCandidates];
  uint32_t bins[kBins], warps[kWarps], totals[2][kWarps], few[32];
  uint32_t digit, left, of_digit, least, most, number;
};

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
  const uint32_t of_warp = lane < kWarps ? warps[lane] : 0u;
  total = __reduce_add_sync(~0u, of_warp);
  const uint32_t before = __reduce_add_sync(~0u, lane < warp ? of_warp : 0u);
  __syncthreads();  // `warps` may be written again
  return sum - x + before;
}

/// Ranks to select from: those in shared memory, or of a row's scores.
struct Collected {
  Shared& s;
  __device__ uint32_t first_rank(int i) const { return s.ranks[i] = rank_of(__uint_as_float(s.ranks[i])); }
  __device__ uint32_t rank(int i) const { return s.ranks[i]; }
  __device__ int32_t key(int i) const { return s.keys[i]; }
};
struct Row {
  const float* scores;
  __device__ uint32_t first_rank(int i) const { return rank(i); }
  __device__ uint32_t rank(int i) const { return rank_of(__ldcg(scores + i)); }
  __device__ int32_t key(int i) const { return i; }
};

/// Ranks above `found` are chosen, and of those equal to it the first `left`.
struct Bound {
  uint32_t found, left;
};

/// Counts the digits [shift, upper) of ranks, less `least`, whose bits from `upper` on are `found`.
template <class Ranks>
__device__ void count(Shared& s, const Ranks& ranks, int n, uint32_t least, uint32_t found, int upper,
                      int shift) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads)
    s.bins[i] = 0;
  __syncthreads();
  const uint32_t mask = (1u << (upper - shift)) - 1;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const uint32_t rank = ranks.rank(i) - least;
    if (upper == 32 || rank >> upper == found) atomicAdd(&s.bins[rank >> shift & mask], 1u);
  }
  __syncthreads();
}

/// The digit of the rank that is number `left` from the top, how many ranks have it, and how many of these
/// are chosen.
__device__ void find_digit(Shared& s, uint32_t left) {
  // A thread has kOwnBins bins, descending.
  const int top = kBins - 1 - kOwnBins * static_cast<int>(threadIdx.x);
  uint32_t own[kOwnBins], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kOwnBins; ++i)
    sum += own[i] = s.bins[top - i];
  uint32_t before = sum_before(sum, s.warps, total);
#pragma unroll
  for (int i = 0; i < kOwnBins; ++i) {
    if (before < left && left <= before + own[i])
      s.digit = static_cast<uint32_t>(top - i), s.left = left - before, s.of_digit = own[i];
    before += own[i];
  }
  __syncthreads();
}

/// The bound of the `left` largest of the at most 32 ranks that begin with `found`, by every warp alike.
template <class Ranks>
__device__ Bound select_few(Shared& s, const Ranks& ranks, int n, uint32_t least, uint32_t found, int shift,
                            uint32_t left, int number) {
  if (threadIdx.x == 0) s.number = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const uint32_t rank = ranks.rank(i) - least;
    if (rank >> shift == found) s.few[atomicAdd(&s.number, 1u)] = rank;
  }
  __syncthreads();
  const uint32_t own = lane_id() < number ? s.few[lane_id()] : 0u;
  uint32_t larger = 0, equal = 0;
  for (int i = 0; i < number; ++i) {
    const uint32_t other = __shfl_sync(~0u, own, i);
    larger += other > own ? 1u : 0u;
    equal += other == own ? 1u : 0u;
  }
  const unsigned last = __ballot_sync(~0u, lane_id() < number && larger < left && left <= larger + equal);
  const int lane = __ffs(static_cast<int>(last)) - 1;
  return {least + __shfl_sync(~0u, own, lane), left - __shfl_sync(~0u, larger, lane)};
}

/// The bound of the `left` largest of n ranks; of up to `slack` more, where that is found sooner.
template <class Ranks>
__device__ Bound select(Shared& s, const Ranks& ranks, int n, uint32_t left, uint32_t slack = 0) {
  if (threadIdx.x == 0) s.least = ~0u, s.most = 0;
  __syncthreads();
  uint32_t least = ~0u, most = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const uint32_t rank = ranks.first_rank(i);
    least = min(least, rank), most = max(most, rank);
  }
  least = __reduce_min_sync(~0u, least), most = __reduce_max_sync(~0u, most);
  if (lane_id() == 0) atomicMin(&s.least, least), atomicMax(&s.most, most);
  __syncthreads();
  least = s.least;
  constexpr int kDigit = 11;
  static_assert(kBins == 1 << kDigit);
  uint32_t found = 0;
  int upper = 32 - __clz(static_cast<int>(s.most - least));
#pragma unroll 1
  while (true) {
    const int shift = max(0, upper - kDigit);
    count(s, ranks, n, least, found, upper, shift);
    find_digit(s, left);
    found = found << (upper - shift) | s.digit;
    left = s.left;
    const uint32_t number = s.of_digit;
    __syncthreads();
    if (shift == 0) return {least + found, left};
    if (number - left <= slack) return {least + (found << shift) - 1, 0};
    if (slack == 0 && number <= 32)
      return select_few(s, ranks, n, least, found, shift, left, static_cast<int>(number));
    upper = shift;
  }
}

/// Writes what is chosen of n ranks in ascending order; returns how many equal bound.found.
template <class Ranks>
__device__ uint32_t write_chosen(Shared& s, const Ranks& ranks, int n, const Bound& bound, int32_t* chosen) {
  uint32_t larger = 0, equal = 0;  // before the keys at hand
  for (int first = 0; first < n; first += kThreads * kEach) {
    const int begin = first + static_cast<int>(threadIdx.x) * kEach;
    uint32_t rank[kEach], own = 0, total;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      rank[e] = begin + e < n ? ranks.rank(begin + e) : 0u;
      own += begin + e >= n ? 0u : rank[e] > bound.found ? 1u : rank[e] == bound.found ? 0x10000u : 0u;
    }
    const uint32_t before = sum_before(own, s.warps, total);
    uint32_t over = larger + (before & 0xffffu), ties = equal + (before >> 16);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (begin + e >= n) break;
      const bool is_larger = rank[e] > bound.found, is_equal = rank[e] == bound.found;
      if (is_larger || (is_equal && ties < bound.left))
        chosen[over + min(ties, bound.left)] = ranks.key(begin + e);
      over += is_larger ? 1u : 0u;
      ties += is_equal ? 1u : 0u;
    }
    larger += total & 0xffffu;
    equal += total >> 16;
  }
  return equal;
}

/// A score of a sample of the row that about `want` exceed. n > kCandidates.
__device__ float sampled_bound(Shared& s, const Params& p, const float* scores, int n) {
  const int each = n < kLongRow ? kSample : kLongSample, groups = kThreads * each;
  for (int k = 0; k < each; ++k) {
    const int group = k * kThreads + static_cast<int>(threadIdx.x);
    // Somewhere in the group's part of the row, as pages or sequences may repeat in equal steps.
    const uint32_t begin = static_cast<uint32_t>(int64_t{group} * n / groups),
                   room = static_cast<uint32_t>(n / groups - 2 * kEach),
                   at = begin + ((static_cast<uint32_t>(group) * 2654435761u) >> 16) % room;
    const float* const from = scores + at / kEach * kEach;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      s.ranks[group * kEach + e] = __float_as_uint(__ldg(from + e));
  }
  __syncthreads();
  const int samples = groups * kEach;
  const uint32_t number = max(1u, static_cast<uint32_t>(int64_t{samples} * p.want / n));
  return score_of(select(s, Collected{s}, samples, number, number / 4).found) + 0.0f;  // -0 becomes 0
}

/// A thread's scores from key i on, and which of them exist.
__device__ uint32_t read(const float* scores, int n, int i, bool whole, float (&x)[kBlockKeys]) {
  if (whole) {
#pragma unroll
    for (int e = 0; e < kBlockKeys; e += 4) {
      const float4 v = __ldg(reinterpret_cast<const float4*>(scores + i + e));
      x[e] = v.x, x[e + 1] = v.y, x[e + 2] = v.z, x[e + 3] = v.w;
    }
    return (1u << kBlockKeys) - 1;
  }
  uint32_t exist = 0;
#pragma unroll
  for (int e = 0; e < kBlockKeys; ++e) {
    x[e] = i + e < n ? __ldg(scores + i + e) : 0.0f;
    exist |= i + e < n ? 1u << e : 0u;
  }
  return exist;
}

/// Collects the keys whose scores exceed `bound`, or all, in order; returns how many, at most kCandidates
/// + 1.
__device__ int collect(Shared& s, const Params& p, const float* scores, int n, float bound, bool all) {
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / 32;
  int taken = 0, buffer = 0;
  for (int first = 0; first < n; first += kChunk, buffer ^= 1) {
    const int begin = first + warp * kWarpKeys + lane * kBlockKeys;
    const bool whole = p.vectors && first + kChunk <= n;
    float x[kBlocks][kBlockKeys];
    uint32_t own[kBlocks], number = 0;  // 16 bits for each block
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const uint32_t exist = read(scores, n, begin + j * 32 * kBlockKeys, whole, x[j]);
      own[j] = 0;
#pragma unroll
      for (int e = 0; e < kBlockKeys; ++e)
        own[j] |= x[j][e] <= bound ? 0u : 1u << e;  // NaN is above all
      own[j] = all ? exist : own[j] & exist;
      number |= static_cast<uint32_t>(__popc(own[j])) << (16 * j);
    }
    uint32_t sum = number;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t y = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += y;
    }
    const uint32_t of_blocks = __shfl_sync(~0u, sum, 31), before = sum - number;
    if (lane == 0) s.totals[buffer][warp] = (of_blocks & 0xffffu) + (of_blocks >> 16);
    __syncthreads();
    const uint32_t of_warp = lane < kWarps ? s.totals[buffer][lane] : 0u;
    int to =
        taken + static_cast<int>(__reduce_add_sync(~0u, lane < warp ? of_warp : 0u) + (before & 0xffffu));
    taken += static_cast<int>(__reduce_add_sync(~0u, of_warp));
    if (taken > kCandidates) return kCandidates + 1;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < kBlockKeys; ++e)
        if ((own[j] >> e & 1u) != 0) {
          s.ranks[to] = __float_as_uint(x[j][e]);
          s.keys[to++] = begin + j * 32 * kBlockKeys + e;
        }
      // From this thread's keys in the first block to those in the second.
      if (j == 0)
        to += static_cast<int>((of_blocks & 0xffffu) - (before & 0xffffu) - (number & 0xffffu) +
                               (before >> 16));
    }
  }
  __syncthreads();
  return taken;
}

__global__ void __launch_bounds__(kThreads, 3) choose_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  grid_launch_dependents();
  grid_dependency_wait();
  const int row = static_cast<int>(blockIdx.x);
  const int b = p.seqs.of(p.first + row);
  const int n = b < 0 ? 0 : p.seqs.keys(b, p.first + row, p.max_keys);
  int32_t* const chosen = p.chosen + static_cast<int64_t>(row) * p.topk;
  if (n <= p.topk) {
    for (int i = static_cast<int>(threadIdx.x); i < p.topk; i += kThreads)
      chosen[i] = i < n ? i : -1;
    return;
  }
  const float* const scores = p.scores + row * p.stride;
  if (p.want > 0) {
    const bool all = n <= kCandidates;
    const float bound = all ? 0.0f : sampled_bound(s, p, scores, n);
    const int taken = collect(s, p, scores, n, bound, all);
    if (taken >= p.topk && taken <= kCandidates) {
      const Collected candidates{s};
      write_chosen(s, candidates, taken, select(s, candidates, taken, static_cast<uint32_t>(p.topk)), chosen);
      return;
    }
    // Those that equal the bound may be as many as are missing.
    const uint32_t left = static_cast<uint32_t>(p.topk - taken);
    if (taken < p.topk && write_chosen(s, Row{scores}, n, {rank_of(bound), left}, chosen) >= left) return;
    __syncthreads();
  }
  write_chosen(s, Row{scores}, n, select(s, Row{scores}, n, static_cast<uint32_t>(p.topk)), chosen);
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
  p.vectors = reinterpret_cast<uintptr_t>(scores) % 16 == 0 && stride % kEach == 0;
  p.want = q.topk > kCandidates / 2 ? 0 : std::max(q.topk / 4 * 7, 1024);
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(sizeof(Shared))));
  FOVEA_CUDA_TRY(launch_dependent(choose_kernel, {static_cast<unsigned>(q.rows), kThreads, sizeof(Shared)},
                                  stream.handle(), p));
  return {};
}

}  // namespace fovea::cuda
