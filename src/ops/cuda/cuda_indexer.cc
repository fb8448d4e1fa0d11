#include "ops/cuda/cuda_indexer.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/index/index.h"
#include "ops/cuda/cuda_params.h"
#include "ops/gpu_indexer.h"

namespace fovea {
namespace {

/// Offsets in the scratch of choose_keys(): the codes of queries, their weights, the scores of a pass.
struct IndexScratch {
  int64_t stride, weights, scores, end;

  IndexScratch(int64_t heads, int64_t dim, int64_t rows, int64_t max_keys)
      : stride(round_up(std::max<int64_t>(max_keys, 1), 4)) {
    weights = round_up(rows * heads * dim, kScratchPart);
    scores = weights + round_up(rows * heads * static_cast<int64_t>(sizeof(float)), kScratchPart);
    end = scores + cuda::index_pass_rows(rows, stride) * stride * static_cast<int64_t>(sizeof(float));
  }
};

}  // namespace

Status cuda_choose_keys(Ops& ops, const IndexInput& in, const Tensor& chosen, Stream& stream) {
  const int64_t rows = in.q.size(0), heads = in.q.size(1), dim = in.q.size(2);
  if (rows == 0) return {};
  static_assert(cuda::kIndexDim == kGpuIndexDim && cuda::kMostIndexHeads == kGpuIndexHeads);
  if (dim != cuda::kIndexDim || heads > cuda::kMostIndexHeads)
    return unsupported("an indexer of " + std::to_string(heads) + " heads of " + std::to_string(dim) +
                       " elements; on a GPU up to " + std::to_string(cuda::kMostIndexHeads) + " of " +
                       std::to_string(cuda::kIndexDim) + " are supported");
  FOVEA_CHECK(in.q.stride(1) == dim && chosen.contiguous());
  FOVEA_RETURN_IF_ERROR(ops.norm(in.norm, in.key, in.key, stream));
  const bool codes = in.keys.dtype == KvCacheDType::fp8_e4m3;
  const IndexScratch parts(heads, dim, rows, in.max_keys);
  std::byte* const memory = scratch_begin(in.scratch);
  cuda::IndexRows p;
  p.tokens = static_cast<int>(rows);
  p.heads = static_cast<int>(heads);
  p.dtype = ops.activations();
  p.q = in.q.data;
  p.q_row_stride = in.q.stride(0);
  p.key = in.key.data;
  p.key_row_stride = in.key.stride(0);
  p.weights = in.weights.data;
  p.weights_row_stride = in.weights.stride(0);
  p.scale = in.scale;
  p.cos = in.rope.cos.as<const float>();
  p.sin = in.rope.sin.as<const float>();
  p.pairs = static_cast<int>(in.rope.cos.size(1));
  p.interleaved = in.rope.interleaved;
  p.keys = in.keys;
  p.slots = in.slots.as<const int64_t>();
  p.num_slots = in.keys.num_pages * in.keys.page_size;
  if (codes) p.codes = reinterpret_cast<uint8_t*>(memory);
  p.weights_out = reinterpret_cast<float*>(memory + parts.weights);
  FOVEA_RETURN_IF_ERROR(cuda::launch_index_rows(p, stream.cuda()));
  cuda::IndexQueries q;
  q.heads = p.heads;
  q.topk = static_cast<int>(chosen.size(1));
  q.dtype = ops.activations();
  q.q_row_stride = codes ? heads * dim : in.q.stride(0);
  q.keys = in.keys;
  q.batch = *in.batch;
  q.max_keys = in.max_keys;
  const int64_t pass = cuda::index_pass_rows(rows, parts.stride);
  auto* const scores = reinterpret_cast<float*>(memory + parts.scores);
  for (int64_t first = 0; first < rows; first += pass) {
    q.first = static_cast<int>(first);
    q.rows = static_cast<int>(std::min(pass, rows - first));
    q.q = codes ? static_cast<const void*>(p.codes + first * heads * dim)
                : column_of(in.q, first * in.q.stride(0));
    q.weights = p.weights_out + first * heads;
    FOVEA_RETURN_IF_ERROR(cuda::launch_index_scores(q, scores, parts.stride, stream.cuda()));
    FOVEA_RETURN_IF_ERROR(cuda::launch_choose_largest(
        q, scores, parts.stride, chosen.as<int32_t>() + first * chosen.size(1), stream.cuda()));
  }
  return {};
}

int64_t cuda_index_scratch(int64_t heads, int64_t dim, int64_t max_rows, int64_t max_keys) {
  return IndexScratch(heads, dim, max_rows, max_keys).end + kScratchPart;
}

}  // namespace fovea
