#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/check/page_check.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxCtas = 1024;

/// The contents of *out until the last CTA has finished: the key of the least (seq, entry) so far, ~0 for
/// none, and the number of CTAs that are done.
struct Progress {
  unsigned long long key;
  unsigned unused, blocks;
};
static_assert(sizeof(Progress) == sizeof(PageFault));

/// A sequence's page table entries, and which of them a step reads.
struct Entries {
  const int32_t* ids = nullptr;
  int count = 0, page_size = 1;
  KeyRanges keys;   ///< that some row sees
  PageFault fault;  ///< of the sequence as a whole; ordered after the faults of its entries

  __device__ Entries(const PageCheck& c, int seq) {
    fault.seq = seq;
    if (c.q_offsets != nullptr && c.q_offsets[seq + 1] <= c.q_offsets[seq]) return;
    const int n_k = c.kv_lens[seq];
    if (n_k <= 0) return;
    page_size = c.page_size;
    keys.body.last = n_k;
    if (c.q_offsets != nullptr) {
      SequenceMask mask;
      mask.n_q = c.q_offsets[seq + 1] - c.q_offsets[seq], mask.n_k = n_k;
      if (c.mask.spans)
        mask.spans = {c.spans + c.span_offsets[seq],
                      static_cast<size_t>(c.span_offsets[seq + 1] - c.span_offsets[seq])};
      keys = key_ranges(c.mask, mask, 0, mask.n_q);
    }
    if (c.indptr != nullptr && c.indices == nullptr) {
      const int begin = c.indptr[seq];
      if (begin < 0 || begin > c.num_pages - n_k) {
        fault.kind = PageFault::rows, fault.entry = begin;
        fault.value = static_cast<int>(min(int64_t{begin} + n_k, int64_t{INT32_MAX}));
      }
      return;
    }
    const int pages = (n_k - 1) / c.page_size + 1;
    int64_t available = c.table_columns;
    if (c.indptr == nullptr) {
      ids = c.table + seq * c.table_stride;
    } else {
      const int begin = c.indptr[seq], end = c.indptr[seq + 1];
      if (begin < 0 || end < begin || end > c.num_indices) {
        fault.kind = PageFault::indptr, fault.entry = begin, fault.value = end;
        return;
      }
      ids = c.indices + begin;
      available = end - begin;
    }
    count = static_cast<int>(available < pages ? available : pages);
    if (count < pages) fault.kind = PageFault::missing, fault.entry = count, fault.value = pages;
  }

  __device__ bool read(int entry) const {
    const int64_t first = int64_t{entry} * page_size, past = first + page_size;
    const auto meets = [=](const KeyRange& r) { return first < r.last && r.first < past && !r.empty(); };
    return meets(keys.body) || meets(keys.sinks);
  }
};

__device__ bool is_page(const PageCheck& c, int32_t id) {
  return id >= 0 && id < c.num_pages;
}

__device__ unsigned long long key_of(int seq, int entry) {
  return static_cast<unsigned long long>(seq) << 32 | static_cast<unsigned>(entry);
}

/// CTA b checks sequences b, b + grid, ...; the last CTA to finish writes the fault.
__global__ __launch_bounds__(kThreads) void page_check_kernel(const __grid_constant__ PageCheck check,
                                                              PageFault* out) {
  Progress* const progress = reinterpret_cast<Progress*>(out);
  for (int seq = static_cast<int>(blockIdx.x); seq < check.num_seqs; seq += static_cast<int>(gridDim.x)) {
    const Entries entries(check, seq);
    for (int i = static_cast<int>(threadIdx.x); i < entries.count; i += kThreads)
      if (entries.read(i) && !is_page(check, entries.ids[i])) {
        atomicMin(&progress->key, key_of(seq, i));
        break;  // later entries of this thread have larger keys
      }
    if (threadIdx.x == 0 && entries.fault.kind != PageFault::none)
      atomicMin(&progress->key, key_of(seq, entries.count));
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&progress->blocks, 1u) != gridDim.x - 1) return;
  __threadfence();
  const unsigned long long key = atomicMin(&progress->key, ~0ull);
  PageFault fault;
  if (key != ~0ull) {
    const int seq = static_cast<int>(key >> 32), entry = static_cast<int>(key & 0xffffffffu);
    const Entries entries(check, seq);
    if (entry < entries.count) {
      fault.kind = PageFault::id;
      fault.seq = seq, fault.entry = entry, fault.value = entries.ids[entry];
    } else {
      fault = entries.fault;
    }
  }
  *out = fault;
}

/// CTA b checks sequences b, b + grid, ...
__global__ __launch_bounds__(kThreads) void bad_pages_kernel(const __grid_constant__ PageCheck check,
                                                             uint8_t* bad) {
  grid_launch_dependents();
  grid_dependency_wait();
  for (int seq = static_cast<int>(blockIdx.x); seq < check.num_seqs; seq += static_cast<int>(gridDim.x)) {
    const Entries entries(check, seq);
    bool wrong = entries.fault.kind != PageFault::none;
    for (int i = static_cast<int>(threadIdx.x); i < entries.count; i += kThreads)
      wrong = wrong || (entries.read(i) && !is_page(check, entries.ids[i]));
    const int any = __syncthreads_or(wrong);
    if (threadIdx.x == 0) bad[seq] = any != 0;
  }
}

Status check_input(const PageCheck& check, const void* out) {
  if (check.num_seqs < 0 || check.page_size < 1 || check.num_pages < 0 || check.table_columns < 0 ||
      check.num_indices < 0)
    return invalid("page check: sequences, pages and entries must not be negative, pages of at least 1 key");
  const bool no_table = check.indptr == nullptr && check.table_columns > 0 && check.table == nullptr;
  if (out == nullptr || (check.num_seqs > 0 && (check.kv_lens == nullptr || no_table)))
    return invalid(
        "page check: needs kv_lens, a page table or kv_indptr and kv_indices, and a place for the fault");
  return {};
}

}  // namespace

Status launch_bad_pages(const PageCheck& check, uint8_t* bad, CUstream_st* stream) {
  FOVEA_RETURN_IF_ERROR(check_input(check, bad));
  if (check.num_seqs == 0) return {};
  const int blocks = std::min(check.num_seqs, kMaxCtas);
  const cudaError_t code =
      launch_dependent(bad_pages_kernel, {static_cast<unsigned>(blocks), kThreads}, stream, check, bad);
  if (code == cudaSuccess) return {};
  return Error{ErrorCode::internal, std::string("launch of the page check: ") + cudaGetErrorString(code)};
}

Status launch_page_check(const PageCheck& check, PageFault* fault, CUstream_st* stream) {
  FOVEA_RETURN_IF_ERROR(check_input(check, fault));
  const int blocks = std::clamp(check.num_seqs, 1, kMaxCtas);
  // key = ~0, blocks = 0
  cudaError_t code = cudaMemsetAsync(fault, 0xff, 8, stream);
  if (code == cudaSuccess) code = cudaMemsetAsync(reinterpret_cast<char*>(fault) + 8, 0, 8, stream);
  if (code == cudaSuccess) {
    page_check_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(check, fault);
    code = cudaGetLastError();
  }
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // clears the error: reported here, not by the next launch
  return Error{ErrorCode::internal, std::string("launch of the page check: ") + cudaGetErrorString(code)};
}

}  // namespace fovea::cuda
