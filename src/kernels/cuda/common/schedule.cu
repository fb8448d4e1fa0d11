#include "kernels/cuda/common/schedule.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/programmatic_launch.h"

namespace fovea::cuda {
namespace {

// Each CTA goes through the whole step by itself, in its shared memory, and writes its share of the items: no
// CTA waits for another, and no prefix sum goes through global memory. A round takes 512 sequences, and
// within it 512 of their tiles at a time.
constexpr int kMaxThreads = 512;  // also sequences and tiles of a round
constexpr int kMaxCtas = 32;

/// PlanDivide by reciprocals: a division is a chain of about 25 dependent instructions.
struct StepDivide {
  FastDivisor group, tile_rows, block_keys, blocks_per_split;
  __device__ int by_group(int rows) const { return group.quotient(rows); }
  __device__ int by_block(int keys) const { return block_keys.quotient(keys); }
  __device__ int by_split(int blocks) const { return blocks_per_split.quotient(blocks); }
  __device__ int by_tile(int rows) const { return tile_rows.quotient(rows); }
};

struct StepStorage {
  ItemTile tiles[kMaxThreads];
  int2 before[kMaxThreads];  // items and partial results before each tile of a round
  int32_t tile_before[kMaxThreads], q_begin[kMaxThreads], n_q[kMaxThreads], n_k[kMaxThreads];
  int2 warps[kMaxThreads / 32];
  int64_t keys[kMaxThreads / 32], partials[kMaxThreads / 32];
  unsigned errors[kMaxThreads / 32];
};

/// Exclusive prefix sum over the threads of a CTA, and the total. One barrier suffices: every caller has a
/// barrier of its own before the next scan, so `warps` has been read by then.
__device__ int2 step_scan(int2 mine, int2* warps, int2& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int2 sum = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int x = __shfl_up_sync(~0u, sum.x, step), y = __shfl_up_sync(~0u, sum.y, step);
    if (lane >= step) sum.x += x, sum.y += y;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  const int count = static_cast<int>(blockDim.x) / 32;
  total = make_int2(0, 0);
  int2 before = make_int2(sum.x - mine.x, sum.y - mine.y);
#pragma unroll 4
  for (int w = 0; w < count; ++w) {
    const int2 of = warps[w];
    if (w < warp) before.x += of.x, before.y += of.y;
    total.x += of.x, total.y += of.y;
  }
  return before;
}

/// What is wrong with the step; the same in all threads.
struct StepError {
  PlanError error;
  bool all;          ///< it invalidates all sequences; else only those for which sequence_error() returns it
  int split_tokens;  ///< split_tokens()
};
__device__ StepError step_error(const PlanPolicy& policy, const StepDivide& divide,
                                const AttentionLimits& limits, const PlanInput& in, const PartialRoom& room,
                                StepStorage& shared) {
  constexpr auto bit = [](PlanError error) { return 1u << static_cast<int>(error); };
  unsigned errors = 0;  // a bit for each error that some sequence has
  int64_t keys = 0, partials = 0;
  for (int b = static_cast<int>(threadIdx.x); b < in.num_seqs; b += static_cast<int>(blockDim.x)) {
    int32_t n_k = 0;
    const PlanError error = sequence_error(limits, in, b, n_k);
    errors |= bit(error);
    keys += n_k;
    if (policy.draft_tokens > policy.max_split_tokens && error == PlanError::none)
      partials += draft_partials(policy, divide, static_cast<int>(divide.blocks_per_split.divisor), room,
                                 in.q_offsets[b + 1] - in.q_offsets[b], n_k);
  }
  errors = __reduce_or_sync(~0u, errors);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    keys += __shfl_xor_sync(~0u, keys, step);
    partials += __shfl_xor_sync(~0u, partials, step);
  }
  if (threadIdx.x % 32 == 0) {
    const unsigned warp = threadIdx.x / 32;
    shared.errors[warp] = errors, shared.keys[warp] = keys, shared.partials[warp] = partials;
  }
  __syncthreads();
  keys = partials = 0;
#pragma unroll 4
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w)
    errors |= shared.errors[w], keys += shared.keys[w], partials += shared.partials[w];
  const int tokens = split_tokens(policy, room, partials);
  for (const PlanError error : {PlanError::q_offsets, PlanError::too_many_rows})
    if (errors & bit(error)) return {error, true, policy.max_split_tokens};
  if (keys > limits.max_kv_tokens) return {PlanError::kv_tokens, true, policy.max_split_tokens};
  for (const PlanError error : {PlanError::kv_len, PlanError::pages})
    if (errors & bit(error)) return {error, false, tokens};
  return {PlanError::none, false, tokens};
}

__device__ void store_item(WorkItem* to, const WorkItem& item) {
  static_assert(sizeof(WorkItem) == 4 * sizeof(int4));
  int4 words[4];
  memcpy(words, &item, sizeof item);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    reinterpret_cast<int4*>(to)[i] = words[i];
}

template <bool kPlainMask>
__global__ __launch_bounds__(kMaxThreads) void schedule_kernel(const __grid_constant__ PlanPolicy policy,
                                                               const __grid_constant__ StepDivide divide,
                                                               const __grid_constant__ AttentionLimits limits,
                                                               const __grid_constant__ PlanInput in,
                                                               const __grid_constant__ PageSource pages,
                                                               const __grid_constant__ PartialRoom room,
                                                               const __grid_constant__ ScheduleView out) {
  __shared__ StepStorage shared;
  grid_launch_dependents();
  grid_dependency_wait();
  const int rank = static_cast<int>(threadIdx.x), size = static_cast<int>(blockDim.x);
  const StepError error = step_error(policy, divide, limits, in, room, shared);
  const int seqs = error.all ? min(in.num_rows, 1) : in.num_seqs;
  const int blocks_per_split = static_cast<int>(divide.blocks_per_split.divisor);
  int2 done = make_int2(0, 0);
  FOVEA_ROLLED
  for (int first_seq = 0; first_seq < seqs; first_seq += size) {
    const int seq = first_seq + rank;
    int tiles = 0;
    if (seq < seqs) {
      int32_t begin = 0, n_q = in.num_rows, n_k = kLostKeys, keys = 0;
      if (!error.all) {
        begin = in.q_offsets[seq], n_q = in.q_offsets[seq + 1] - begin;
        if (sequence_error(limits, in, seq, keys) == PlanError::none) n_k = keys;
      }
      tiles = divide.tile_rows.quotient(n_q * policy.group + policy.tile_rows - 1);
      shared.q_begin[rank] = begin, shared.n_q[rank] = n_q, shared.n_k[rank] = n_k;
    }
    int2 total;
    const int2 before = step_scan(make_int2(tiles, 0), shared.warps, total);
    shared.tile_before[rank] = before.x;
    __syncthreads();
    const int count = min(size, seqs - first_seq);
    FOVEA_ROLLED
    for (int first = 0; first < total.x; first += size) {
      const int index = first + rank;
      ItemTile tile;
      if (index < total.x) {
        // The common case is one tile per sequence: no search.
        int at = index;
        if (index >= count || shared.tile_before[index] != index ||
            (index + 1 < count ? shared.tile_before[index + 1] : total.x) != index + 1)
          at = find_interval(shared.tile_before, count, index);
        tile.seq = first_seq + at;
        tile.q_row = shared.q_begin[at], tile.n_q = shared.n_q[at], tile.n_k = max(shared.n_k[at], 0);
        if (pages.first != nullptr) tile.first_page = pages.first[tile.seq];
        // Last rows first: under a causal mask they see the most keys, and the longest work should start
        // first.
        const int next = at + 1 < count ? shared.tile_before[at + 1] : total.x;
        tile.row = (next - 1 - index) * policy.tile_rows;
        tile.rows = min(tile.n_q * policy.group - tile.row, policy.tile_rows);
        const KeyRanges keys = tile_keys<kPlainMask>(policy, divide, in, tile);
        tile.set_keys(keys);
        set_blocks(policy, divide, keys, tile);
        set_splits(error.split_tokens, divide, blocks_per_split, tile);
        tile.first_split = divide.by_split(tile.block);
        tile.n_k = shared.n_k[at];
        shared.tiles[rank] = tile;
      } else {
        tile.num_splits = 0;
      }
      int2 items;
      const int partials = tile.num_splits > 1 ? tile.num_splits * room.of_tile(tile.rows) : 0;
      shared.before[rank] = step_scan(make_int2(tile.num_splits, partials), shared.warps, items);
      __syncthreads();
      const int tiles_here = min(size, total.x - first);
      const int stride = static_cast<int>(gridDim.x) * size;
      FOVEA_ROLLED
      for (int i = static_cast<int>(blockIdx.x) * size + rank; i < items.x; i += stride) {
        int low = 0, high = tiles_here;  // the last tile with before.x <= i
        FOVEA_ROLLED
        while (high - low > 1) {
          const int middle = (low + high) / 2;
          if (shared.before[middle].x <= i)
            low = middle;
          else
            high = middle;
        }
        const int2 of = shared.before[low];
        store_item(out.items + done.x + i,
                   item_of(policy, blocks_per_split, pages, shared.tiles[low], i - of.x, done.y + of.y));
      }
      done.x += items.x, done.y += items.y;
      __syncthreads();
    }
  }
  if (blockIdx.x == 0 && rank == 0) {
    *out.num_items = done.x;
    if (out.error != nullptr) *out.error = error.error;
    if (out.queue != nullptr) *out.queue = 0;
  }
  if (out.arrivals == nullptr) return;
  const int64_t counters = int64_t{done.y} * policy.num_kv_heads, stride = int64_t{gridDim.x} * size;
  for (int64_t i = int64_t{blockIdx.x} * size + rank; i < counters; i += stride)
    out.arrivals[i] = 0;
}

}  // namespace

Status launch_schedule(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input,
                       const PageSource& pages, const ScheduleView& out, CUstream_st* stream) {
  FOVEA_RETURN_IF_ERROR(check_plan_limits(policy, limits));
  FOVEA_RETURN_IF_ERROR(check_plan_input(policy, limits, input));
  const ScheduleLimits most = schedule_limits(policy, limits);
  // As many threads as there are sequences or tiles, so that one round takes all: barriers of fewer threads
  // are cheaper.
  const int64_t round =
      std::max<int64_t>(input.num_seqs, int64_t{limits.max_tokens} * policy.group / policy.tile_rows);
  const int threads = round <= 128 ? 128 : round <= 256 ? 256 : kMaxThreads;
  const auto divisor = [](int d) { return FastDivisor(static_cast<uint32_t>(d)); };
  const StepDivide divide{divisor(policy.group), divisor(policy.tile_rows), divisor(policy.block_keys),
                          divisor(policy.split_keys / policy.block_keys)};
  const auto blocks = std::clamp<int64_t>((most.max_items + threads - 1) / threads, 1, kMaxCtas);
  const MaskSpec& mask = policy.mask;
  const bool plain = !mask.spans && mask.chunk == 0 && mask.sink_tokens == 0;
  int device = 0, major = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = has_programmatic_launch(major) ? 1 : 0;
  if (code == cudaSuccess)
    code = cudaLaunchKernelEx(&config, plain ? schedule_kernel<true> : schedule_kernel<false>, policy, divide,
                              limits, input, pages, most.room(), out);
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // clears the error: reported here, not by the next launch
  return Error{ErrorCode::internal, std::string("launch of the schedule: ") + cudaGetErrorString(code)};
}

}  // namespace fovea::cuda
