#include "attention/batch_check.h"

#include <cmath>
#include <limits>
#include <string>

#include "attention/kv_view.h"
#include "fovea/attention.h"
#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/reference/visibility.h"

namespace fovea {
namespace {

std::string str(int64_t v) {
  return std::to_string(v);
}

/// Checks offsets [B + 1]: non-decreasing, within [0, size].
template <class T>
Status check_offsets(std::span<const T> offsets, size_t seqs, size_t size, const char* name) {
  if (offsets.size() != seqs + 1)
    return invalid(std::string(name) + " has " + str(static_cast<int64_t>(offsets.size())) +
                   " entries; a batch of " + str(static_cast<int64_t>(seqs)) + " needs one more than that");
  for (size_t b = 0; b < seqs; ++b)
    if (offsets[b] > offsets[b + 1]) return invalid(std::string(name) + " decreases after entry " + str(b));
  if (offsets.front() < 0 || static_cast<uint64_t>(offsets.back()) > size)
    return invalid(std::string(name) + " points outside its array of " + str(size) + " entries");
  return {};
}

Status check_masks(const MaskSpec& mask, const BatchMeta& meta) {
  const size_t seqs = meta.kv_lens.size();
  if (mask.spans)
    FOVEA_RETURN_IF_ERROR(check_offsets(meta.span_offsets, seqs, meta.spans.size(), "span_offsets"));
  if (mask.tree) {
    if (meta.tree_size < 1)
      return invalid("tree_size is " + str(meta.tree_size) + "; a tree needs 1 or more");
    if (meta.tree_bias.size() < static_cast<size_t>(int64_t{meta.tree_size} * meta.tree_size))
      return invalid("tree_bias has " + str(meta.tree_bias.size()) + " entries; tree_size " +
                     str(meta.tree_size) + " needs its square");
  }
  if (!mask.packed) return {};
  FOVEA_RETURN_IF_ERROR(check_offsets(meta.packed_offsets, seqs, meta.packed_mask.size(), "packed_offsets"));
  for (size_t b = 0; b < seqs; ++b) {
    const int64_t bits = int64_t{meta.q_offsets[b + 1] - meta.q_offsets[b]} * meta.kv_lens[b];
    if (meta.packed_offsets[b + 1] - meta.packed_offsets[b] < (bits + 7) / 8)
      return invalid("packed_mask of sequence " + str(b) + " is shorter than its " + str(bits) + " bits");
  }
  return {};
}

int64_t pages_of(int64_t n_k, int page_size) {
  return (n_k + page_size - 1) / page_size;
}

/// Checks that the padded table has room for every sequence's pages.
Status check_page_table(const BatchMeta& meta, int page_size) {
  const auto entries = static_cast<int64_t>(meta.page_table.size());
  const int64_t stride = meta.page_table_stride;
  if (stride < 0) return invalid("page_table_stride is " + str(stride) + "; it must be 0 or more");
  for (size_t b = 0; b < meta.kv_lens.size(); ++b) {
    const int64_t pages = pages_of(meta.kv_lens[b], page_size);
    if (pages == 0) continue;
    // A stride beyond the table is refused before it is multiplied; sequence 0 does not need the stride.
    if (pages > stride || (b > 0 && stride > entries) || static_cast<int64_t>(b) * stride + pages > entries)
      return invalid("the page table has no room for the " + str(pages) + " pages of sequence " + str(b));
  }
  return {};
}

/// Checks that the lists of pages are inside kv_indices, and long enough.
Status check_page_lists(const BatchMeta& meta, int page_size) {
  if (!meta.page_table.empty()) return invalid("both a page table and kv_indptr are given; give one of them");
  FOVEA_RETURN_IF_ERROR(
      check_offsets(meta.kv_indptr, meta.kv_lens.size(), meta.kv_indices.size(), "kv_indptr"));
  for (size_t b = 0; b < meta.kv_lens.size(); ++b) {
    const int64_t pages = pages_of(meta.kv_lens[b], page_size);
    const int64_t listed = int64_t{meta.kv_indptr[b + 1]} - meta.kv_indptr[b];
    if (listed < pages)
      return invalid("kv_indptr lists " + str(listed) + " pages for sequence " + str(b) + "; its " +
                     str(meta.kv_lens[b]) + " keys need " + str(pages));
  }
  return {};
}

/// Checks every page id that the step reads; BatchMeta::num_pages must be given.
Status check_page_ids(const MaskSpec& mask, const BatchMeta& meta, int page_size) {
  for (int b = 0; b < meta.num_seqs(); ++b) {
    const SequenceMask seq = sequence_mask(mask, meta, b);
    if (seq.n_q == 0 || seq.n_k == 0) continue;
    const int32_t* ids = meta.pages(b);
    const KeyRanges seen = key_ranges(mask, seq, 0, seq.n_q);
    for (const KeyRange& keys : {seen.sinks, seen.body})
      for (int64_t i = keys.first / page_size; !keys.empty() && i * page_size < keys.last; ++i)
        if (ids[i] < 0 || ids[i] >= meta.num_pages)
          return invalid("page " + str(i) + " of sequence " + str(b) + " is " + str(ids[i]) +
                         "; the cache has pages 0 to " + str(meta.num_pages - 1));
  }
  return {};
}

/// The absorbed form, which is the only one that plan() gets with use_mla.
Status check_latent(const AttentionSpec& spec) {
  if (!spec.use_mla) return {};
  if (spec.num_kv_heads != 1)
    return invalid("MLA with " + str(spec.num_kv_heads) +
                   " KV heads; its heads share one record per token: use 1, or without absorption use_mla = "
                   "false");
  if (spec.use_sparse && spec.sparse_topk < 1)
    return invalid("sparse MLA with sparse_topk = " + str(spec.sparse_topk) +
                   "; give the number of keys that AttentionArgs::chosen lists for each row, at least 1");
  if (spec.v_head_dim > spec.head_dim)
    return invalid("MLA with V of " + str(spec.v_head_dim) + " elements in records of " + str(spec.head_dim) +
                   "; V is the beginning of a record");
  return {};
}

/// V is the beginning of K's records.
Status check_latent_view(const KvView& kv) {
  const bool same = kv.v == kv.k && kv.v_page_stride == kv.k_page_stride &&
                    kv.v_slot_stride == kv.k_slot_stride && kv.v_scale == kv.k_scale &&
                    kv.v_scales == kv.k_scales && kv.form == KvForm::strided;
  if (same) return {};
  return invalid(
      "MLA reads V from K's records: KvView::v, its strides, scale and scales must be those of k, "
      "and its form strided");
}

/// Records of bytes.
Status check_ds_mla_view(const KvView& kv, const AttentionSpec& spec) {
  const int rope = spec.head_dim - spec.v_head_dim;
  if (!spec.use_mla || !is_ds_mla(spec.v_head_dim, rope))
    return invalid(
        "a cache of fp8_ds_mla holds records of MLA whose latent is a multiple of 128 elements, not " +
        str(spec.v_head_dim));
  const int64_t bytes = ds_mla_bytes(spec.v_head_dim, rope);
  if (kv.k_slot_stride < bytes)
    return invalid("the cache of fp8_ds_mla has records " + str(kv.k_slot_stride) +
                   " bytes apart; a latent of " + str(spec.v_head_dim) + " and a part with RoPE of " +
                   str(rope) + " elements take " + str(bytes));
  return {};
}

}  // namespace

std::optional<Reason> check_records(const AttentionSpec& spec, const DeviceInfo&) {
  if (spec.kv_dtype != KvCacheDType::fp8_ds_mla ||
      is_ds_mla(spec.v_head_dim, spec.head_dim - spec.v_head_dim))
    return std::nullopt;
  return Reason{"fp8_ds_mla records with a latent of " + str(spec.v_head_dim) + " elements not supported",
                "--kv-cache-dtype auto: a scale covers 128 elements of the latent"};
}

Status check_spec(const AttentionSpec& spec) {
  if (spec.num_heads < 1 || spec.num_kv_heads < 1 || spec.num_heads % spec.num_kv_heads != 0)
    return invalid("num_heads " + str(spec.num_heads) + " must be a positive multiple of num_kv_heads " +
                   str(spec.num_kv_heads));
  if (spec.head_dim < 1 || spec.v_head_dim < 1)
    return invalid("head sizes " + str(spec.head_dim) + " (QK) and " + str(spec.v_head_dim) +
                   " (V) must be positive");
  if (!(spec.scale != 0.0f) || !std::isfinite(spec.scale))
    return invalid("attention scale " + std::to_string(spec.scale) +
                   " must be finite and not 0; it has no default (1 / sqrt(head size) is usual)");
  if (!(spec.softcap >= 0.0f) || !std::isfinite(spec.softcap))
    return invalid("softcap " + std::to_string(spec.softcap) + " must be 0 (off) or a positive number");
  const MaskSpec& mask = spec.mask;
  if (mask.window_left < -1 || mask.window_right < -1 || mask.chunk < 0 || mask.sink_tokens < 0)
    return invalid("windows must be -1 (unbounded) or more; chunk and sink_tokens 0 (off) or more");
  if (mask.packed && mask.causal) return invalid("a packed mask replaces the causal one: set causal = false");
  if (spec.kv_x_packed && spec.kv_shuffle)
    return invalid("kv_x_packed and kv_shuffle are both set; a cache has one layout");
  if (spec.page_size < 0) return invalid("page size " + str(spec.page_size) + " must be positive");
  return {};
}

Status check_limits(const AttentionLimits& limits) {
  if (limits.max_seqs < 0 || limits.max_tokens < 0 || limits.max_kv_tokens < 0 || limits.max_kv_len < 0)
    return invalid("attention limits must not be negative");
  return {};
}

Status check_supported(const BackendInfo& info, const AttentionSpec& spec) {
  FOVEA_RETURN_IF_ERROR(check_spec(spec));
  DeviceInfo device;
  device.kind = info.capability.device;
  device.compute_capability = info.capability.min_compute_capability;
  device.shared_bytes = std::numeric_limits<int>::max();  // no limit here: plan() checks the actual device
  const Phase phase = info.capability.phases.has(Phase::decode) ? Phase::decode : Phase::prefill;
  std::string text;
  for (const Reason& reason : validate(info, spec, device, phase))
    text += (text.empty() ? "" : "; ") + reason.text + " (" + reason.fix + ")";
  if (text.empty()) return check_latent(spec);
  return unsupported(std::string(info.name) + ": " + text);
}

int page_size_of(const BackendInfo& info, const AttentionSpec& spec) {
  return spec.page_size > 0 ? spec.page_size : info.capability.preferred_page_size;
}

Status check_batch(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                   int page_size) {
  const size_t seqs = meta.kv_lens.size();
  if (seqs == 0 && meta.q_offsets.empty()) return {};
  FOVEA_RETURN_IF_ERROR(
      check_offsets(meta.q_offsets, seqs, static_cast<size_t>(limits.max_tokens), "q_offsets"));
  if (meta.q_offsets.front() != 0) return invalid("q_offsets must begin with 0");
  if (seqs > static_cast<size_t>(limits.max_seqs))
    return invalid("a step of " + str(seqs) + " sequences exceeds the limit of " + str(limits.max_seqs));
  int64_t kv_tokens = 0;
  for (size_t b = 0; b < seqs; ++b) {
    const int64_t n_k = meta.kv_lens[b];
    if (n_k < 0 || n_k > limits.max_kv_len)
      return invalid("sequence " + str(b) + " has " + str(n_k) + " keys; the limit is " +
                     str(limits.max_kv_len));
    kv_tokens += n_k;
  }
  if (kv_tokens > limits.max_kv_tokens)
    return invalid("a step with " + str(kv_tokens) + " keys exceeds the limit of " +
                   str(limits.max_kv_tokens));
  FOVEA_RETURN_IF_ERROR(meta.kv_indptr.empty() ? check_page_table(meta, page_size)
                                               : check_page_lists(meta, page_size));
  FOVEA_RETURN_IF_ERROR(check_masks(spec.mask, meta));
  return meta.num_pages > 0 ? check_page_ids(spec.mask, meta, page_size) : Status();
}

Status check_args(const AttentionArgs& args, const AttentionSpec& spec, int page_size) {
  const KvView& kv = args.kv;
  if (kv.page_size != page_size)
    return invalid("the cache has pages of " + str(kv.page_size) + " tokens; the step was planned for " +
                   str(page_size));
  if (size_of(kv.dtype) == 0)
    return invalid("the cache's dtype is " + std::string(to_string(kv.dtype)) +
                   "; name the one that is stored");
  const bool per_head = is_fp8(kv.dtype) && spec.needs.has(Feature::per_head_scales);
  const bool scaled = has_token_scales(kv.dtype) || per_head;
  if (scaled != (kv.k_scales != nullptr) || scaled != (kv.v_scales != nullptr))
    return invalid("a cache of " + std::string(to_string(kv.dtype)) +
                   (per_head ? " with per-head scales" : "") +
                   (scaled ? " needs k_scales and v_scales" : " has no k_scales and v_scales"));
  if (spec.use_mla) FOVEA_RETURN_IF_ERROR(check_latent_view(kv));
  if (kv.dtype == KvCacheDType::fp8_ds_mla) FOVEA_RETURN_IF_ERROR(check_ds_mla_view(kv, spec));
  if (kv.form == KvForm::x_packed) {
    const bool shuffled = kv.v_chunk_stride != 0;
    if (!(shuffled ? spec.kv_shuffle : spec.kv_x_packed))
      return invalid(shuffled ? "the cache is shuffled, but AttentionSpec::kv_shuffle is not set"
                              : "the cache is x-packed, but AttentionSpec::kv_x_packed is not set");
    const KvLayout layout = shuffled ? KvLayout::shuffle : KvLayout::x_packed;
    if (const Status fits = check_layout(layout, kv.dtype, kv.page_size, spec.head_dim); !fits)
      return invalid(fits.error().message);
  }
  if (spec.use_sparse && (args.chosen == nullptr || args.chosen_row_stride < spec.sparse_topk))
    return invalid(args.chosen == nullptr
                       ? "sparse attention without AttentionArgs::chosen, the keys that each row sees"
                       : "AttentionArgs::chosen has rows " + str(args.chosen_row_stride) +
                             " entries apart; each has sparse_topk = " + str(spec.sparse_topk));
  if (spec.has_sink && args.sinks == nullptr)
    return invalid("the spec has sinks; AttentionArgs::sinks is null");
  if (spec.has_alibi && args.alibi_slopes == nullptr)
    return invalid("the spec has ALiBi; AttentionArgs::alibi_slopes is null");
  return {};
}

}  // namespace fovea
