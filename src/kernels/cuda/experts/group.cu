#include "kernels/cuda/experts/group.h"

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/rows/route.h"

namespace fovea::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kGroupThreads = 1024;

/// CTA e: counts the pairs of experts before e, which gives its first position, and lists its own in
/// ascending order. Each warp takes a run of the pairs.
__global__ void __launch_bounds__(kGroupThreads) group_kernel(const __grid_constant__ Grouping groups) {
  const int32_t* experts = groups.experts;
  const int pairs = groups.pairs;
  __shared__ int before[32], mine[32];
  const int expert = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int run = (pairs + 32 * warps - 1) / (32 * warps) * 32;
  const int first = warp * run, last = min(pairs, first + run);
  int lower = 0, own = 0;
#pragma unroll 4
  for (int at = first + lane; at - lane < last; at += 32) {
    const int id = at < last ? experts[at] : -1;
    lower += id >= 0 && id < expert;
    own += id == expert;
    if (expert == 0 && at < last && (id < 0 || id >= groups.num_experts)) groups.position[at] = -1;
  }
  lower = __reduce_add_sync(kAll, lower), own = __reduce_add_sync(kAll, own);
  if (lane == 0) before[warp] = lower, mine[warp] = own;
  __syncthreads();
  const int all_lower = __reduce_add_sync(kAll, lane < warps ? before[lane] : 0);
  const int all_own = __reduce_add_sync(kAll, lane < warps ? mine[lane] : 0);
  if (threadIdx.x == 0) {
    groups.begin[expert] = all_lower;
    if (expert == groups.num_experts - 1) groups.begin[groups.num_experts] = all_lower + all_own;
  }
  if (own == 0) return;
  int position = all_lower + __reduce_add_sync(kAll, lane < warp ? mine[lane] : 0);
#pragma unroll 4
  for (int at = first + lane; at - lane < last; at += 32) {
    const bool is_own = at < last && experts[at] == expert;
    const unsigned found = __ballot_sync(kAll, is_own);
    if (is_own) {
      const int to = position + __popc(found & ((1u << lane) - 1));
      groups.row[to] = at / groups.experts_per_token;
      groups.pair[to] = at;
      groups.position[at] = to;
    }
    position += __popc(found);
  }
}

constexpr int kCombineThreads = 256;
constexpr int kOwnInput = -2;  ///< in place of a position: the expert's output is its input

/// Position of a pair among few; -1 where its expert's id is out of range.
__device__ int direct_position(const Grouping& groups, int pair, int id) {
  if (id < 0 || id >= groups.num_experts) return -1;
  int position = 0;
  for (int i = 0; i < groups.pairs; ++i) {
    const int other = groups.experts[i];
    position += other >= 0 && (other < id || (other == id && i < pair));
  }
  return position;
}

/// A CTA takes up to 1024 columns of one row.
template <class Shared, class Out, bool kDirect>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ CombineParams p, int chunks, bool aligned) {
  __shared__ int position[kMaxExpertsPerToken];
  __shared__ float weight[kMaxExpertsPerToken];
  const int64_t row = blockIdx.x / chunks;
  const int thread = static_cast<int>(threadIdx.x), k = p.experts_per_token;
  if (thread < k) {
    const int32_t* ids = p.experts + row * k;
    const int id = ids[thread];
    int place = 0;  // among the row's experts in ascending order
    for (int j = 0; j < k; ++j)
      place += ids[j] < id || (ids[j] == id && j < thread);
    const int64_t pair = row * k + thread;
    const int beyond = id - p.groups.num_experts;
    position[place] = beyond >= 0 && beyond < p.identity_experts ? kOwnInput
                      : kDirect ? direct_position(p.groups, static_cast<int>(pair), id)
                                : p.groups.position[pair];
    weight[place] = p.weights == nullptr ? 1.0f : p.weights[row * k + thread];
  }
  __syncthreads();
  const int at = static_cast<int>(blockIdx.x % chunks) * 4 * kCombineThreads + 4 * thread;
  if (at >= p.hidden) return;
  const auto run = [&](auto is_aligned) {
    constexpr bool kAligned = decltype(is_aligned)::value;
    Four sum;
    if (p.shared != nullptr)
      sum = load_four<kAligned>(static_cast<const Shared*>(p.shared) + row * p.shared_stride, at, p.hidden);
    int own = 0;  // the last ones, by their ids, unless an id is out of range
    while (own < k && position[k - 1 - own] == kOwnInput)
      ++own;
#pragma unroll 4
    for (int j = 0; j < k - own; ++j) {
      const int from = position[j];
      const Four v =
          load_four<kAligned>(p.results + static_cast<int64_t>(max(from, 0)) * p.hidden, at, p.hidden);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum.x[i] = fmaf(from < 0 ? __int_as_float(0x7fc00000) : weight[j], v.x[i], sum.x[i]);
    }
    if (own > 0) {
      const Four v = load_four<kAligned>(static_cast<const Out*>(p.x) + row * p.x_stride, at, p.hidden);
      for (int j = k - own; j < k; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum.x[i] = fmaf(weight[j], v.x[i], sum.x[i]);
    }
    store_four<kAligned>(static_cast<Out*>(p.out) + row * p.out_stride, at, p.hidden, sum);
  };
  if (aligned)
    run(std::true_type{});
  else
    run(std::false_type{});
}

}  // namespace

Status launch_group(const Grouping& groups, cudaStream_t stream) {
  const int threads = groups.pairs > 4096 ? kGroupThreads : groups.pairs > 256 ? 256 : 64;
  group_kernel<<<static_cast<unsigned>(groups.num_experts), threads, 0, stream>>>(groups);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status launch_combine(const CombineParams& p, cudaStream_t stream) {
  const int chunks = (p.hidden + 4 * kCombineThreads - 1) / (4 * kCombineThreads);
  const bool aligned = by_four(p.results, DType::f32, p.hidden, p.hidden) &&
                       by_four(p.out, p.out_dtype, p.out_stride, p.hidden) &&
                       by_four(p.shared, p.shared_dtype, p.shared_stride, p.hidden) &&
                       by_four(p.x, p.out_dtype, p.x_stride, p.hidden);
  with_type(p.out_dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    const auto choose = [&](auto direct) {
      constexpr bool kDirect = decltype(direct)::value;
      return p.shared_dtype == DType::f32 ? combine_kernel<float, Out, kDirect>
                                          : combine_kernel<Out, Out, kDirect>;
    };
    const auto kernel = p.groups.direct() ? choose(std::true_type()) : choose(std::false_type());
    kernel<<<static_cast<unsigned>(p.rows * chunks), kCombineThreads, 0, stream>>>(p, chunks, aligned);
  });
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
