#include "attention/expanded_prefill.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "attention/merge.h"
#include "attention/mla_prefill.h"
#include "base/check.h"
#include "device/stream.h"
#include "kernels/cpu/for_rows.h"

namespace fovea {
namespace {

AttentionSpec part_spec(const AttentionSpec& spec, bool causal) {
  AttentionSpec part = unabsorbed_spec(spec);
  part.mask.causal = causal;
  part.needs.insert(Feature::lse);
  return part;
}

/// Each part is of one sequence and one block.
AttentionLimits part_limits(const AttentionLimits& limits) {
  AttentionLimits part = limits;
  part.max_seqs = 1;
  part.max_kv_tokens = part.max_kv_len = ExpandedPrefill::kKeys;
  return part;
}

}  // namespace

ExpandedPrefill::ExpandedPrefill(AttentionBackend& backend) : backend_(&backend), indices_(kKeys) {
  std::iota(indices_.begin(), indices_.end(), 0);
}

Result<size_t> ExpandedPrefill::workspace_bytes(const AttentionSpec& spec,
                                                const AttentionLimits& limits) const {
  size_t most = 0;
  for (const bool causal : {true, false}) {
    FOVEA_TRY(bytes, backend_->workspace_bytes(part_spec(spec, causal), part_limits(limits)));
    most = std::max(most, bytes);
  }
  return most;  // parts are computed one after another
}

Status ExpandedPrefill::plan_rows(Rows& rows, const AttentionSpec& spec, const AttentionLimits& limits,
                                  int keys, Workspace workspace, Stream& stream) const {
  if (rows.count == 0) return {};
  rows.q_offsets = {0, static_cast<int32_t>(rows.count)};
  rows.kv_indptr = {0, keys};
  rows.kv_lens = {keys};
  BatchMeta meta;
  meta.tokens = static_cast<int>(rows.count);
  meta.q_offsets = rows.q_offsets;
  meta.kv_lens = rows.kv_lens;
  meta.kv_indptr = rows.kv_indptr;
  meta.kv_indices = std::span(indices_).first(static_cast<size_t>(keys));
  FOVEA_TRY(plan, backend_->plan(spec, limits, meta, workspace, stream));
  rows.plan = std::move(plan);
  return {};
}

Status ExpandedPrefill::plan(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                             int64_t first_row, Workspace workspace, Stream& stream) {
  FOVEA_CHECK(spec.dtype == DType::f32 && spec.mask.causal && !meta.page_table.empty());
  blocks_.clear();
  first_row_ = first_row;
  const AttentionSpec own = part_spec(spec, true), before = part_spec(spec, false);
  const AttentionLimits part = part_limits(limits);
  spec_ = own;
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const auto seq = static_cast<size_t>(b);
    const int64_t row = meta.q_offsets[seq], end_row = meta.q_offsets[seq + 1], end = meta.kv_lens[seq];
    const int64_t first = end - (end_row - row);  // position of the first row
    FOVEA_CHECK(first >= 0);
    if (row == end_row) continue;
    for (int64_t key = 0; key < end; key += kKeys) {
      const int64_t last = std::min<int64_t>(key + kKeys, end);
      Block& block = blocks_.emplace_back();
      block.starts = key == 0;
      for (int64_t p = key; p < last; ++p)
        block.slots.push_back(int64_t{meta.pages(b)[p / spec.page_size]} * spec.page_size +
                              p % spec.page_size);
      // Rows of positions [at, to).
      const auto set = [&](Rows& rows, int64_t at, int64_t to) {
        if (at >= to) return;
        rows.first = first_row + row + at - first;
        rows.count = to - at;
      };
      set(block.rows[0], std::max(first, key), last);
      set(block.rows[1], std::max(first, last), end);
      const int keys = static_cast<int>(last - key);
      FOVEA_RETURN_IF_ERROR(plan_rows(block.rows[0], own, part, keys, workspace, stream));
      FOVEA_RETURN_IF_ERROR(plan_rows(block.rows[1], before, part, keys, workspace, stream));
    }
  }
  return {};
}

Status ExpandedPrefill::attend(const Block& block, const AttentionArgs& args, const Scratch& scratch,
                               Stream& stream) const {
  const int64_t heads = spec_.num_heads, dv = spec_.v_head_dim, width = heads * dv;
  FOVEA_CHECK(args.out_row_stride == width && args.lse != nullptr);
  for (const Rows& rows : block.rows) {
    if (rows.count == 0) continue;
    AttentionArgs part = args;
    part.q = static_cast<const float*>(args.q) + args.q_offset(rows.first, 0, spec_.head_dim);
    float* out = static_cast<float*>(args.out) + rows.first * width;
    float* lse = args.lse + rows.first * heads;
    part.out = block.starts ? out : scratch.out;
    part.lse = block.starts ? lse : scratch.lse;
    FOVEA_RETURN_IF_ERROR(backend_->forward_extend(*rows.plan, part, stream));
    if (block.starts) continue;
    for_row_ranges(rows.count * heads, rows.count * width, stream.pool(), [&](int64_t begin, int64_t end) {
      const PartialState parts[] = {{out + begin * dv, lse + begin},
                                    {scratch.out + begin * dv, scratch.lse + begin}};
      merge_states(parts, end - begin, static_cast<int>(dv), out + begin * dv, lse + begin);
    });
  }
  return {};
}

}  // namespace fovea
