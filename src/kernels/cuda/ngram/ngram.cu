#include "base/philox.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/ngram/ngram.h"

namespace fovea::cuda {
namespace {

constexpr int kPlaceThreads = 128, kFollowThreads = 1024;

__global__ void place_kernel(const __grid_constant__ PlaceArgs p) {
  const int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= p.num_rows) return;
  const PlacedRow row = p.rows[r];
  if (row.slot < 0) return;
  const NgramState& state = p.slots.states[row.slot];
  const int position = state.length - 1 + row.ahead;
  const int32_t token =
      row.ahead == 0 ? p.slots.tokens[row.slot * p.slots.capacity + position] : state.drafts[row.ahead - 1];
  p.token_ids[r] = max(token, 0);  // without a draft any: it is not accepted
  p.positions[r] = position;
  const int32_t page = p.kv_indices[p.kv_indptr[row.sequence] + position / p.page_size];
  p.kv_slots[r] = static_cast<int64_t>(page) * p.page_size + position % p.page_size;
  if (r + 1 == p.q_offsets[row.sequence + 1]) p.kv_lens[row.sequence] = position + 1;
  if (row.logit_row >= 0) p.sample_rows[row.logit_row].position = static_cast<uint64_t>(position) + 1;
}

/// Drafts that are accepted; appends them and the token after them.
__device__ int append(const FollowArgs& p, int r, const FollowedRow& row) {
  NgramState& state = p.slots.states[row.slot];
  int32_t* const tokens = p.slots.tokens + row.slot * p.slots.capacity;
  int length = state.length;
  const uint64_t newest = static_cast<uint64_t>(length) - 1;  // position of row r
  for (int i = 0; i <= row.drafts; ++i) {
    const int32_t draft = i < row.drafts ? state.drafts[i] : -1;
    const SampleResult& result = p.results[r + i];
    bool accepts = draft >= 0 && result.status == SampleStatus::ok && result.token == draft;
    if (p.rolls && draft >= 0 && result.status == SampleStatus::ok)
      accepts =
          static_cast<double>(philox_bits(~p.sample_rows[r + i].seed, newest + static_cast<uint64_t>(i))) *
              0x1p-53 <
          p.dice[i];
    if (length < p.slots.capacity) tokens[length++] = accepts ? draft : max(result.token, 0);
    if (!accepts) break;
  }
  for (int i = 0; i <= row.drafts; ++i)
    p.results[r + i].draft = i < row.drafts ? state.drafts[i] : -1;
  state.length = length;
  return length;
}

/// Tokens before `end` that equal those at the end, at most `most`.
__device__ int match(const int32_t* tokens, int length, int end, int most) {
  int n = 0;
  while (n < most && n < end && tokens[end - 1 - n] == tokens[length - 1 - n])
    ++n;
  return n;
}

/// One CTA for each row; those of a sequence read its tokens together.
__global__ void __launch_bounds__(kFollowThreads) follow_kernel(const __grid_constant__ FollowArgs p) {
  __shared__ int length_shared;
  __shared__ unsigned long long best_shared;
  const int r = static_cast<int>(blockIdx.x);
  const FollowedRow row = p.rows[r];
  if (row.slot < 0) return;
  if (threadIdx.x == 0) {
    length_shared = append(p, r, row);
    best_shared = 0;
  }
  __syncthreads();
  const int length = length_shared;
  const int32_t* const tokens = p.slots.tokens + row.slot * p.slots.capacity;
  // The longest match and, of equal ones, the earliest end.
  unsigned long long best = 0;
  const int32_t last = tokens[length - 1];
  const auto look = [&](int end) {
    const int n = match(tokens, length, end, p.max);
    if (n < p.min) return;
    const unsigned long long key =
        static_cast<unsigned long long>(n) << 32 | (0xffffffffu - static_cast<unsigned>(end));
    best = key > best ? key : best;
  };
  constexpr int kEach = 8;  // loads in flight
  for (int first = 1; first < length; first += kFollowThreads * kEach) {
    int32_t seen[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int end = first + i * kFollowThreads + static_cast<int>(threadIdx.x);
      seen[i] = end < length ? tokens[end - 1] : -1;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (seen[i] == last) look(first + i * kFollowThreads + static_cast<int>(threadIdx.x));
  }
  if (best > 0) atomicMax(&best_shared, best);
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kMostNgramDrafts) return;
  const unsigned long long found = best_shared;
  const int from = found > 0 ? static_cast<int>(0xffffffffu - static_cast<unsigned>(found)) : length;
  int32_t draft = i < p.most && from + i < length ? tokens[from + i] : -1;
  if (p.rolls && draft < 0 && i < p.most) draft = (last + i + 1) % p.vocab;
  p.slots.states[row.slot].drafts[i] = draft;
}

}  // namespace

Status launch_place(const PlaceArgs& p, CudaStream& stream) {
  if (p.num_rows < 0 || p.page_size <= 0) return invalid("place: rows or page size out of range");
  if (p.num_rows == 0) return {};
  place_kernel<<<(p.num_rows + kPlaceThreads - 1) / kPlaceThreads, kPlaceThreads, 0, stream.handle()>>>(p);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status launch_follow(const FollowArgs& p, CudaStream& stream) {
  if (p.num_rows < 0 || p.min < 1 || p.max < p.min || p.most < 1 || p.most > kMostNgramDrafts)
    return invalid("follow: rows, match lengths or drafts out of range");
  if (p.num_rows == 0) return {};
  follow_kernel<<<p.num_rows, kFollowThreads, 0, stream.handle()>>>(p);
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace fovea::cuda
