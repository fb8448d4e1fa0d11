#include "attention/phased.h"

#include <algorithm>
#include <chrono>

#include "attention/mla_prefill.h"
#include "base/check.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

constexpr size_t kAlign = 64;  // alignment of Workspace

size_t align_up(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// Entries [first, first + count), or an empty span when there are fewer: the backend refuses that.
template <class T>
std::span<const T> part_of(std::span<const T> all, size_t first, size_t count) {
  return first + count <= all.size() ? all.subspan(first, count) : std::span<const T>();
}

/// Sequences [first, last) of `meta`, without q_offsets.
BatchMeta slice(const BatchMeta& meta, int first, int last) {
  const size_t begin = static_cast<size_t>(first), n = static_cast<size_t>(last - first);
  BatchMeta part = meta;
  part.q_offsets = {};
  part.kv_lens = part_of(meta.kv_lens, begin, n);
  const size_t stride = static_cast<size_t>(std::max<int64_t>(meta.page_table_stride, 0));
  const bool inside = begin == 0 || stride <= meta.page_table.size() / begin;
  part.page_table = inside ? meta.page_table.subspan(begin * stride) : std::span<const int32_t>();
  if (!meta.kv_indptr.empty()) {
    part.kv_indptr = part_of(meta.kv_indptr, begin, n + 1);
    if (part.kv_indptr.empty()) part.kv_indptr = meta.kv_indptr.first(1);  // too short: refused, not ignored
  }
  part.span_offsets = part_of(meta.span_offsets, begin, n + 1);
  part.packed_offsets = part_of(meta.packed_offsets, begin, n + 1);
  return part;
}

/// The minimum work of sequences [first, last); zero if the host does not have their lengths.
AttentionWork work_of(const AttentionSpec& spec, const PhaseSplit& split, int first, int last) {
  const size_t begin = static_cast<size_t>(first), n = static_cast<size_t>(last - first);
  BatchMeta part;
  part.q_offsets = part_of(split.host_q_offsets, begin, n + 1);
  part.kv_lens = part_of(split.host_kv_lens, begin, n);
  if (part.q_offsets.empty() || part.kv_lens.empty()) return {};
  part.tokens = part.q_offsets.back() - part.q_offsets.front();
  return attention_work(spec, part);
}

/// The tensors from query row `row` on, which is the first of a block if there are blocks.
AttentionArgs rows_from(const AttentionArgs& args, const AttentionSpec& spec, int64_t row) {
  const int64_t size = static_cast<int64_t>(size_of(spec.dtype));
  AttentionArgs part = args;
  part.q = static_cast<const std::byte*>(args.q) + args.q_offset(row, 0, spec.head_dim) * size;
  part.out = static_cast<std::byte*>(args.out) + args.out_offset(row, 0, spec.v_head_dim) * size;
  if (args.lse != nullptr) part.lse = args.lse + row * spec.num_heads;
  if (spec.use_sparse) part.chosen = args.chosen + row * args.chosen_row_stride;
  return part;
}

/// Runs `forward` and counts it.
template <class Forward>
Status counted(PhasedAttention::Use& use, const AttentionWork& work, const Forward& forward) {
  const auto start = std::chrono::steady_clock::now();
  FOVEA_RETURN_IF_ERROR(forward());
  use.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  use.work += work;
  ++use.calls;
  return {};
}

}  // namespace

Result<PhasedAttention> PhasedAttention::create(const KindSelection& selection,
                                                const BackendRegistry& registry) {
  const auto make = [&](const PhaseSelection& phase) -> Result<std::unique_ptr<AttentionBackend>> {
    const BackendRegistry::Entry* entry = registry.find(*phase.backend);
    for (const BackendRegistry::Entry& prefill : registry.mla_prefill())
      if (prefill.info == phase.backend) entry = &prefill;
    if (entry == nullptr || !entry->create)
      return unsupported("attention backend " + std::string(phase.backend->name) + " is not in this build");
    return entry->create();
  };
  FOVEA_TRY(prefill, make(selection.prefill));
  if (same_bits_across_phases(selection)) return PhasedAttention(std::move(prefill));
  FOVEA_TRY(decode, make(selection.decode));
  PhasedAttention both(std::move(prefill), std::move(decode));
  if (is_mla_prefill(*selection.prefill.backend, registry)) both.expanded_.emplace(*both.prefill_);
  return both;
}

PhasedAttention::PhasedAttention(std::unique_ptr<AttentionBackend> prefill,
                                 std::unique_ptr<AttentionBackend> decode)
    : prefill_(std::move(prefill)), decode_(std::move(decode)) {
  FOVEA_CHECK(prefill_ != nullptr);
}

Result<size_t> PhasedAttention::prefill_workspace_bytes(const AttentionSpec& spec,
                                                        const AttentionLimits& limits) const {
  return expanded_ ? expanded_->workspace_bytes(spec, limits) : prefill_->workspace_bytes(spec, limits);
}

Result<size_t> PhasedAttention::decode_workspace_offset(const AttentionSpec& spec,
                                                        const AttentionLimits& limits) const {
  if (!decode_) return size_t{0};
  FOVEA_TRY(bytes, prefill_workspace_bytes(spec, limits));
  return align_up(bytes);
}

Result<size_t> PhasedAttention::workspace_bytes(const AttentionSpec& spec,
                                                const AttentionLimits& limits) const {
  if (!decode_) return prefill_->workspace_bytes(spec, limits);
  FOVEA_TRY(offset, decode_workspace_offset(spec, limits));
  FOVEA_TRY(bytes, decode_->workspace_bytes(spec, limits));
  return offset + align_up(bytes);
}

Status PhasedAttention::plan(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                             const PhaseSplit& split, Workspace workspace, Stream& stream) {
  const int seqs = meta.num_seqs(), decodes = split.num_decodes;
  FOVEA_CHECK(0 <= decodes && decodes <= seqs);
  extend_plan_.reset();
  decode_plan_.reset();
  if (expanded_) expanded_->clear();
  decode_rows_ = 0;
  spec_ = spec;
  if (!meta.q_offsets.empty() || seqs > 0)
    if (meta.q_offsets.size() != static_cast<size_t>(seqs) + 1)
      return invalid("q_offsets has " + std::to_string(meta.q_offsets.size()) + " entries; a batch of " +
                     std::to_string(seqs) + " needs one more than that");
  const bool mixed = decodes > 0 && decodes < seqs;
  if (mixed && !decode_) {
    FOVEA_TRY(plan, prefill_->plan(spec, limits, meta, workspace, stream));
    extend_plan_ = std::move(plan);
    work(Phase::prefill) = work_of(spec, split, 0, seqs);
    return {};
  }
  if (mixed && split.prefill_offsets.size() != static_cast<size_t>(seqs - decodes) + 1)
    return invalid("prefill_offsets has " + std::to_string(split.prefill_offsets.size()) + " entries; " +
                   std::to_string(seqs - decodes) + " prefills need one more than that");
  FOVEA_TRY(offset, decode_workspace_offset(spec, limits));
  if (workspace.size() < offset)
    return invalid("the attention workspace has " + std::to_string(workspace.size()) +
                   " bytes; the prefill backend alone needs " + std::to_string(offset));
  if (decodes > 0) {
    BatchMeta part = slice(meta, 0, decodes);
    part.phase = Phase::decode;
    part.q_offsets = part_of(meta.q_offsets, 0, static_cast<size_t>(decodes) + 1);
    if (mixed && meta.tokens >= 0) part.tokens = split.decode_rows;
    FOVEA_TRY(plan, decode_backend().plan(spec, limits, part, workspace.subspan(offset), stream));
    decode_plan_ = std::move(plan);
    work(Phase::decode) = work_of(spec, split, 0, decodes);
  }
  if (decodes < seqs) {
    BatchMeta part = slice(meta, decodes, seqs);
    part.q_offsets = mixed ? split.prefill_offsets : meta.q_offsets;
    if (mixed) decode_rows_ = split.decode_rows;
    if (mixed && meta.tokens >= 0) part.tokens = meta.tokens - split.decode_rows;
    work(Phase::prefill) = work_of(expanded_ ? unabsorbed_spec(spec) : spec, split, decodes, seqs);
    if (expanded_) return expanded_->plan(spec, limits, part, decode_rows_, workspace.first(offset), stream);
    FOVEA_TRY(plan,
              prefill_->plan(spec, limits, part, decode_ ? workspace.first(offset) : workspace, stream));
    extend_plan_ = std::move(plan);
  }
  return {};
}

Status PhasedAttention::forward(const AttentionArgs& args, Stream& stream) {
  for (const int block : {args.q_block_rows, args.out_block_rows})
    if (block != 0 && decode_rows_ % block != 0)
      return invalid("AttentionArgs has blocks of " + std::to_string(block) +
                     " rows, and prefill begins inside one, at row " + std::to_string(decode_rows_) +
                     ": give rows at one distance");
  const auto use = [this](Phase phase) -> Use& { return use_[static_cast<size_t>(phase)]; };
  if (decode_plan_)
    FOVEA_RETURN_IF_ERROR(counted(use(Phase::decode), work(Phase::decode), [&] {
      return decode_backend().forward_decode(*decode_plan_, args, stream);
    }));
  if (!extend_plan_) return {};
  return counted(use(Phase::prefill), work(Phase::prefill), [&] {
    return prefill_->forward_extend(*extend_plan_,
                                    decode_rows_ > 0 ? rows_from(args, spec_, decode_rows_) : args, stream);
  });
}

Status PhasedAttention::attend(const ExpandedPrefill::Block& block, const AttentionArgs& args,
                               const ExpandedPrefill::Scratch& scratch, Stream& stream) {
  FOVEA_CHECK(expanded_);
  // The work is that of the layer, of which the first block is a part.
  const AttentionWork all = &block == &expanded_->blocks().front() ? work(Phase::prefill) : AttentionWork();
  return counted(use_[static_cast<size_t>(Phase::prefill)], all,
                 [&] { return expanded_->attend(block, args, scratch, stream); });
}

Result<size_t> PhasedAttention::init_graph_state(Phase phase, const AttentionSpec& spec,
                                                 const AttentionLimits& limits) {
  return backend(phase).init_graph_state(spec, limits);
}

Result<Phase> PhasedAttention::phase_to_capture(const BatchMeta& meta, const PhaseSplit& split) const {
  const int seqs = meta.num_seqs();
  FOVEA_CHECK(0 <= split.num_decodes && split.num_decodes <= seqs);
  if (seqs > 0 && split.num_decodes == seqs) return Phase::decode;
  if (split.num_decodes > 0 && decode_)
    return unsupported("a step of " + std::to_string(split.num_decodes) + " decodes and " +
                       std::to_string(seqs - split.num_decodes) +
                       " prefills can't be captured, because a backend of its own serves each; capture steps "
                       "of one phase");
  return Phase::prefill;
}

Result<CapturedAttention> PhasedAttention::plan_for_capture(const AttentionSpec& spec,
                                                            const AttentionLimits& limits,
                                                            const BatchMeta& meta, const PhaseSplit& split,
                                                            Workspace workspace, Stream& stream) {
  FOVEA_TRY(phase, phase_to_capture(meta, split));
  BatchMeta step = meta;
  step.phase = phase;
  FOVEA_TRY(plan, backend(phase).plan_for_capture(spec, limits, step, workspace, stream));
  return CapturedAttention{phase, std::move(plan)};
}

Status PhasedAttention::plan_for_replay(CapturedAttention& captured, const BatchMeta& meta,
                                        const PhaseSplit& split, Stream& stream) {
  FOVEA_TRY(phase, phase_to_capture(meta, split));
  if (phase != captured.phase)
    return invalid("a step of the " + std::string(to_string(phase)) +
                   " phase can't be replayed with a graph captured for the " +
                   std::string(to_string(captured.phase)) + " phase");
  BatchMeta step = meta;
  step.phase = phase;
  return backend(phase).plan_for_replay(*captured.plan, step, stream);
}

Status PhasedAttention::forward(const CapturedAttention& captured, const AttentionArgs& args,
                                Stream& stream) {
  if (captured.phase == Phase::decode) return decode_backend().forward_decode(*captured.plan, args, stream);
  return prefill_->forward_extend(*captured.plan, args, stream);
}

}  // namespace fovea
