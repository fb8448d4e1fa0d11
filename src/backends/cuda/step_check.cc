#include "backends/cuda/step_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "fovea/result.h"

namespace fovea::cuda {
namespace {

constexpr int64_t kLoadBytes = 16;

std::string str(int64_t x) {
  return std::to_string(x);
}

/// Checks an array of offsets: one more entry than sequences.
template <class T>
Status check_offsets(std::span<const T> offsets, size_t seqs, const char* name) {
  if (offsets.size() == seqs + 1) return {};
  return invalid("BatchMeta::" + std::string(name) + " has " + str(static_cast<int64_t>(offsets.size())) +
                 " entries; a step of " + str(static_cast<int64_t>(seqs)) +
                 " sequences needs one more than that");
}

Status check_pages(const BatchMeta& meta, int page_size) {
  const size_t seqs = meta.kv_lens.size();
  if (meta.kv_indptr.empty()) {
    const auto entries = static_cast<int64_t>(meta.page_table.size());
    const int64_t stride = meta.page_table_stride, rows = static_cast<int64_t>(seqs);
    if (stride < 0)
      return invalid("BatchMeta::page_table_stride is " + str(stride) + "; it must be 0 or more");
    if (stride > 0 && entries / stride < rows)
      return invalid("BatchMeta::page_table has " + str(entries) + " entries; " + str(rows) +
                     " sequences with a page_table_stride of " + str(stride) + " need " + str(rows) + " x " +
                     str(stride));
    return {};
  }
  if (!meta.page_table.empty()) return invalid("both a page table and kv_indptr are given; give one of them");
  FOVEA_RETURN_IF_ERROR(check_offsets(meta.kv_indptr, seqs, "kv_indptr"));
  if (is_ragged(meta) && page_size != 1)
    return invalid(
        "kv_indptr without kv_indices means rows of a ragged tensor, which has a page size of 1; "
        "the page size is " +
        str(page_size) + ": give kv_indices, or set AttentionSpec::page_size = 1");
  return {};
}

Status check_masks(const MaskSpec& mask, const BatchMeta& meta) {
  const size_t seqs = meta.kv_lens.size();
  if (mask.spans) FOVEA_RETURN_IF_ERROR(check_offsets(meta.span_offsets, seqs, "span_offsets"));
  if (mask.packed) FOVEA_RETURN_IF_ERROR(check_offsets(meta.packed_offsets, seqs, "packed_offsets"));
  if (!mask.tree) return {};
  if (meta.tree_size < 1)
    return invalid("BatchMeta::tree_size is " + str(meta.tree_size) + "; a tree needs 1 or more");
  const int64_t square = int64_t{meta.tree_size} * meta.tree_size;
  if (static_cast<int64_t>(meta.tree_bias.size()) < square)
    return invalid("BatchMeta::tree_bias has " + str(static_cast<int64_t>(meta.tree_bias.size())) +
                   " entries; a tree_size of " + str(meta.tree_size) + " needs " + str(square));
  return {};
}

/// Checks an address, and strides in elements of `bytes` bytes.
Status check_alignment(const char* name, const void* data, size_t bytes,
                       std::initializer_list<int64_t> strides) {
  if (reinterpret_cast<uintptr_t>(data) % kLoadBytes != 0)
    return invalid("AttentionArgs::" + std::string(name) +
                   " is not aligned to 16 bytes, which kernels load at once");
  for (const int64_t stride : strides)
    if (stride % (kLoadBytes / static_cast<int64_t>(bytes)) != 0)
      return invalid("AttentionArgs::" + std::string(name) + " has a stride of " + str(stride) +
                     " elements; kernels load 16 bytes at once: it must be a multiple of " +
                     str(kLoadBytes / static_cast<int64_t>(bytes)));
  return {};
}

/// Checks the strides of K and V for kernels that load 16 bytes at once.
Status check_cache(const KvView& kv) {
  const size_t bytes = size_of(kv.dtype);
  const bool packed = kv.form == KvForm::x_packed;
  FOVEA_RETURN_IF_ERROR(check_alignment(
      "kv.k", kv.k, bytes,
      {kv.k_page_stride, kv.k_head_stride, kv.k_slot_stride, packed ? kv.k_chunk_stride : 0}));
  if (packed && (kv.k_chunk_stride <= 0 || kv.v_dim_stride <= 0 || kv.v_chunk_stride < 0))
    return invalid("AttentionArgs::kv is x-packed with strides of " + str(kv.k_chunk_stride) +
                   " between chunks of K, " + str(kv.v_dim_stride) + " between dims of V and " +
                   str(kv.v_chunk_stride) + " between its chunks; the first two must be above 0");
  if (packed && kv.v_slot_stride != 1)
    return invalid("AttentionArgs::kv.v has slots " + str(kv.v_slot_stride) +
                   " elements apart; kernels load x slots at once: they must be adjacent");
  return check_alignment("kv.v", kv.v, bytes,
                         {kv.v_page_stride, kv.v_head_stride, packed ? kv.v_dim_stride : kv.v_slot_stride,
                          packed ? kv.v_chunk_stride : 0});
}

/// Strides of the rows of Q or O, from AttentionArgs.
struct Rows {
  const char* name;
  const void* data;
  int64_t row_stride, head_stride;
  int block_rows;
  int64_t block_stride;
  int heads, dim;
};

Status check_rows(const Rows& r) {
  const std::string name = "AttentionArgs::" + std::string(r.name);
  if (r.data == nullptr) return invalid(name + " is null");
  for (const int64_t stride : {r.row_stride, r.head_stride, r.block_stride})
    if (stride < 0)
      return invalid(name + " has a stride of " + str(stride) + " elements; it must be 0 or more");
  if (r.head_stride > INT32_MAX)
    return invalid(name + " has a head stride of " + str(r.head_stride) +
                   " elements; kernels count below 2^31");
  if (r.block_rows < 0)
    return invalid(name + " has blocks of " + str(r.block_rows) + " rows; it must be 0 or more");
  return {};
}

/// Checks that elements do not overlap: in ascending order, each stride is at least the extent of the
/// dimensions with smaller strides.
Status check_apart(const Rows& r, int tokens) {
  const int64_t in_block = r.block_rows == 0 ? tokens : std::min(r.block_rows, tokens);
  const int64_t blocks = in_block == 0 ? 0 : (tokens + in_block - 1) / in_block;
  std::array<std::pair<int64_t, int64_t>, 3> dims = {// stride, size
                                                     std::pair(r.head_stride, int64_t{r.heads}),
                                                     {r.row_stride, in_block},
                                                     {r.block_stride, blocks}};
  std::ranges::sort(dims);
  constexpr int64_t kMostElements = (int64_t{1} << 35) - 16;  // offsets are 32-bit counts of 16-byte words
  int64_t span = r.dim, far = 0;
  for (const auto& [stride, size] : dims) {
    if (size <= 1) continue;
    if (stride < span)
      return invalid("AttentionArgs::" + std::string(r.name) + " has a row stride of " + str(r.row_stride) +
                     " and a head stride of " + str(r.head_stride) + " elements, so elements of its " +
                     str(r.heads) + " heads of " + str(r.dim) + " overlap; output elements must not overlap");
    if (__builtin_mul_overflow(size - 1, stride, &far) || __builtin_add_overflow(span, far, &span) ||
        span > kMostElements)
      return invalid("AttentionArgs::" + std::string(r.name) + " spans more than " + str(kMostElements) +
                     " elements, beyond the kernels' index range: use a smaller step");
  }
  return {};
}

}  // namespace

bool is_ragged(const BatchMeta& meta) {
  return !meta.kv_indptr.empty() && meta.kv_indices.data() == nullptr;
}

Status check_step(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                  int page_size) {
  const auto seqs = static_cast<int64_t>(meta.kv_lens.size());
  if (meta.tokens < 0)
    return invalid(
        "BatchMeta::tokens is not given; it is required on a GPU, where the host can't read q_offsets");
  if (seqs > limits.max_seqs)
    return invalid("a step of " + str(seqs) + " sequences exceeds the limit of " + str(limits.max_seqs));
  if (meta.tokens > limits.max_tokens)
    return invalid("a step of " + str(meta.tokens) + " query rows exceeds the limit of " +
                   str(limits.max_tokens));
  if (seqs == 0 && meta.tokens == 0) return {};
  FOVEA_RETURN_IF_ERROR(check_offsets(meta.q_offsets, meta.kv_lens.size(), "q_offsets"));
  FOVEA_RETURN_IF_ERROR(check_pages(meta, page_size));
  return check_masks(spec.mask, meta);
}

AttentionLimits step_limits(const MaskSpec& mask, const AttentionLimits& limits, const BatchMeta& meta,
                            int page_size) {
  AttentionLimits out = limits;
  out.max_seqs = meta.num_seqs();
  out.max_tokens = meta.tokens;
  if (mask.packed && meta.packed_mask.data() == nullptr) out.max_kv_len = 0;
  if (is_ragged(meta)) return out;
  // Lists of pages have different lengths; a sequence has at most all entries.
  const int64_t pages =
      meta.kv_indptr.empty() ? meta.page_table_stride : static_cast<int64_t>(meta.kv_indices.size());
  if (pages < limits.max_kv_len)  // the product can't overflow
    out.max_kv_len = static_cast<int>(std::min<int64_t>(out.max_kv_len, pages * page_size));
  return out;
}

Status check_layer(const AttentionSpec& spec, const AttentionArgs& args, int tokens, bool whole_loads) {
  const KvView& kv = args.kv;
  const KvCacheDType planned = resolve(spec.kv_dtype, spec.dtype);
  if (kv.dtype != planned)
    return invalid("the cache has dtype " + std::string(to_string(kv.dtype)) + "; the step was planned for " +
                   std::string(to_string(planned)));
  const Rows q{"q",
               args.q,
               args.q_row_stride,
               args.q_head_stride == AttentionArgs::kDense ? spec.head_dim : args.q_head_stride,
               args.q_block_rows,
               args.q_block_stride,
               spec.num_heads,
               spec.head_dim};
  const Rows out{"out",
                 args.out,
                 args.out_row_stride,
                 args.out_head_stride == AttentionArgs::kDense ? spec.v_head_dim : args.out_head_stride,
                 args.out_block_rows,
                 args.out_block_stride,
                 spec.num_heads,
                 spec.v_head_dim};
  FOVEA_RETURN_IF_ERROR(check_rows(q));
  FOVEA_RETURN_IF_ERROR(check_rows(out));
  FOVEA_RETURN_IF_ERROR(check_apart(out, tokens));
  if (kv.k == nullptr || kv.v == nullptr)
    return invalid(std::string("AttentionArgs::kv.") + (kv.k == nullptr ? "k" : "v") + " is null");
  if (!(kv.k_scale > 0.0f) || !std::isfinite(kv.k_scale) || !std::isfinite(kv.v_scale))
    return invalid("the cache's k_scale is " + std::to_string(kv.k_scale) + " and its v_scale " +
                   std::to_string(kv.v_scale) + "; they must be finite, and k_scale positive");
  for (const int64_t stride : {kv.k_page_stride, kv.k_head_stride, kv.k_slot_stride, kv.v_page_stride,
                               kv.v_head_stride, kv.v_slot_stride})
    if (stride < 0)
      return invalid("AttentionArgs::kv has a stride of " + str(stride) +
                     " elements; strides must be 0 (an expanded view) or more");
  if (!whole_loads) return {};
  const size_t row = size_of(spec.dtype);
  for (const Rows* rows : {&q, &out})
    FOVEA_RETURN_IF_ERROR(check_alignment(rows->name, rows->data, row,
                                          {rows->row_stride, rows->head_stride, rows->block_stride}));
  return check_cache(kv);
}

}  // namespace fovea::cuda
