#include "kernels/cuda/rows/route.h"

#include <algorithm>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAll = 0xffffffffu;

/// Orders floats as unsigned numbers above 0: NaN first, -0 equal to 0.
__device__ uint32_t rank_of(float x) {
  if (x != x) return kAll;
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(kAll, x, step);
  return x;
}

/// A warp takes one row; lane l holds the logits of experts l, l + 32, ...
template <int kEach>
__global__ void __launch_bounds__(32 * kWarps) route_kernel(const __grid_constant__ RouteParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const float* logits = p.logits + row * p.logits_stride;
  float x[kEach];
  uint32_t rank[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = lane + 32 * i;
    x[i] = id < p.num_experts ? logits[id] : -INFINITY;
    rank[i] = id < p.num_experts ? rank_of(x[i]) : 0;  // 0 = not to be chosen
  }
  int chosen_id = 0;  // of lane j: the j-th choice
  float chosen = 0.0f;
  for (int j = 0; j < p.experts_per_token; ++j) {
    uint32_t most = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (rank[i] > most) most = rank[i], at = i;
    const uint32_t best = __reduce_max_sync(kAll, most);
    const int id = static_cast<int>(
        __reduce_min_sync(kAll, most == best ? static_cast<unsigned>(lane + 32 * at) : kAll));
    float value = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane + 32 * i == id) value = x[i], rank[i] = 0;
    value = __shfl_sync(kAll, value, id % 32);
    if (lane == j) chosen_id = id, chosen = value;
  }
  const bool mine = lane < p.experts_per_token;
  float weight = 0.0f;
  switch (p.router) {
    case Router::softmax_then_top: {
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        top = fmaxf(top, x[i]);
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(kAll, top, step));
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (lane + 32 * i < p.num_experts) sum = __fadd_rn(sum, expf(__fsub_rn(x[i], top)));
      sum = warp_sum(sum);
      weight = mine ? __fdiv_rn(expf(__fsub_rn(chosen, top)), sum) : 0.0f;
      if (p.renormalize) {
        const float all = warp_sum(weight);
        weight = __fdiv_rn(weight, all);
      }
      break;
    }
    case Router::top_then_softmax: {
      const float top = __shfl_sync(kAll, chosen, 0);
      weight = mine ? expf(__fsub_rn(chosen, top)) : 0.0f;
      const float all = warp_sum(weight);
      weight = __fdiv_rn(weight, all);
      break;
    }
    case Router::sigmoid_then_top:  // choice_kernel's
    case Router::sigmoid_top: weight = __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-chosen)));
  }
  if (!mine) return;
  p.experts[row * p.experts_per_token + lane] = chosen_id;
  p.weights[row * p.experts_per_token + lane] = weight;
}

/// The same for choices that are not the scores: with a bias, among groups, or by sigmoids. Scores and
/// choices of a row are in shared memory.
template <int kEach>
__global__ void __launch_bounds__(32 * kWarps) choice_kernel(const __grid_constant__ RouteParams p) {
  __shared__ float choices[kWarps][32 * kEach], worths[kWarps][32 * kEach];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= p.rows) return;
  float *choice = choices[warp], *worth = worths[warp];
  const float* logits = p.logits + row * p.logits_stride;
  const bool by_sigmoid = p.router == Router::sigmoid_then_top;
  float x[kEach];
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = lane + 32 * i;
    x[i] = id < p.num_experts ? logits[id] : -INFINITY;
    top = fmaxf(top, x[i]);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    top = fmaxf(top, __shfl_xor_sync(kAll, top, step));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (lane + 32 * i >= p.num_experts) continue;
    x[i] = by_sigmoid ? __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x[i]))) : expf(__fsub_rn(x[i], top));
    sum = __fadd_rn(sum, x[i]);
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = lane + 32 * i;
    if (id >= p.num_experts) continue;
    if (!by_sigmoid) x[i] = __fdiv_rn(x[i], sum);
    choice[id] = p.bias == nullptr ? x[i] : __fadd_rn(x[i], p.bias[id]);
  }
  __syncwarp();
  const int size = p.num_experts / p.groups;
  if (p.groups > 1) {
    for (int g = lane; g < p.groups; g += 32) {
      uint32_t best[2] = {0, 0};
      float values[2] = {0.0f, 0.0f};
      for (int e = g * size; e < (g + 1) * size; ++e) {
        const uint32_t rank = rank_of(choice[e]);
        if (rank > best[0]) {
          best[1] = best[0], values[1] = values[0];
          best[0] = rank, values[0] = choice[e];
        } else if (rank > best[1]) {
          best[1] = rank, values[1] = choice[e];
        }
      }
      worth[g] = p.group_best == 2 ? __fadd_rn(values[0], values[1]) : values[0];
    }
    __syncwarp();
  }
  uint32_t rank[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = lane + 32 * i;
    rank[i] = 0;  // not to be chosen
    if (id >= p.num_experts) continue;
    float value = choice[id];
    if (p.groups > 1) {
      const int own = id / size;
      const uint32_t mine = rank_of(worth[own]);
      int before = 0;  // groups that are chosen first
      for (int g = 0; g < p.groups; ++g) {
        const uint32_t other = rank_of(worth[g]);
        before += other > mine || (other == mine && g < own);
      }
      if (before >= p.top_groups) value = -INFINITY;
    }
    rank[i] = rank_of(value);
  }
  int chosen_id = 0;  // of lane j: the j-th choice
  float weight = 0.0f;
  for (int j = 0; j < p.experts_per_token; ++j) {
    uint32_t most = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (rank[i] > most) most = rank[i], at = i;
    const uint32_t best = __reduce_max_sync(kAll, most);
    const int id = static_cast<int>(
        __reduce_min_sync(kAll, most == best ? static_cast<unsigned>(lane + 32 * at) : kAll));
    float value = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane + 32 * i == id) value = x[i], rank[i] = 0;
    value = __shfl_sync(kAll, value, id % 32);
    if (lane == j) chosen_id = id, weight = value;
  }
  if (p.renormalize) {
    const float all = warp_sum(weight);
    weight = __fdiv_rn(weight, by_sigmoid ? __fadd_rn(all, 1e-20f) : all);
  }
  if (lane >= p.experts_per_token) return;
  p.experts[row * p.experts_per_token + lane] = chosen_id;
  p.weights[row * p.experts_per_token + lane] = __fmul_rn(weight, p.scale);
}

/// Whether the k largest scores are chosen and are the weights, except for renormalize.
bool is_plain(const RouteParams& p) {
  return p.router != Router::sigmoid_then_top && p.bias == nullptr && p.groups == 1 && p.scale == 1.0f;
}

}  // namespace

Status launch_route(const RouteParams& p, CudaStream& stream) {
  const int most = std::min(kMaxExpertsPerToken, p.num_experts);
  if (p.num_experts < 1 || p.num_experts > kMaxExperts || p.experts_per_token < 1 ||
      p.experts_per_token > most)
    return invalid("route: " + std::to_string(p.experts_per_token) + " of " + std::to_string(p.num_experts) +
                   " experts; up to " + std::to_string(kMaxExpertsPerToken) + " of up to " +
                   std::to_string(kMaxExperts) + " are supported");
  if (p.rows < 0 || p.rows > INT32_MAX) return invalid("route: " + std::to_string(p.rows) + " rows");
  if (p.rows == 0) return {};
  if (p.logits == nullptr || p.experts == nullptr || p.weights == nullptr)
    return invalid("route: logits, experts and weights must not be null");
  if (p.groups < 1 || p.num_experts % p.groups != 0 || p.top_groups < 1 || p.group_best < 1 ||
      p.group_best > 2 || p.experts_per_token > p.num_experts / p.groups * p.top_groups)
    return invalid("route: " + std::to_string(p.top_groups) + " of " + std::to_string(p.groups) +
                   " groups; they must divide the experts and hold enough of them");
  const auto grid = static_cast<unsigned>((p.rows + kWarps - 1) / kWarps);
  const auto launch = [&](auto kernel) { kernel<<<grid, 32 * kWarps, 0, stream.handle()>>>(p); };
  if (!is_plain(p)) {
    if (p.router != Router::sigmoid_then_top && p.router != Router::softmax_then_top)
      return invalid("route: a bias, groups or a scale need a router that takes scores before it chooses");
    if (p.num_experts <= 64)
      launch(choice_kernel<2>);
    else if (p.num_experts <= 256)
      launch(choice_kernel<8>);
    else
      launch(choice_kernel<32>);
    FOVEA_CUDA_TRY(cudaGetLastError());
    return {};
  }
  if (p.num_experts <= 32)
    launch(route_kernel<1>);
  else if (p.num_experts <= 64)
    launch(route_kernel<2>);
  else if (p.num_experts <= 128)
    launch(route_kernel<4>);
  else if (p.num_experts <= 256)
    launch(route_kernel<8>);
  else
    launch(route_kernel<32>);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
