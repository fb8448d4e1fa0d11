#include "backends/cuda/kernel_choice.h"

#include <algorithm>
#include <string>

#include "attention/kv_view.h"
#include "backends/cuda/step_layout.h"
#include "fovea/attention.h"
#include "fovea/result.h"
#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/mla/select.h"
#include "kernels/cuda/portable/select.h"
#include "kernels/cuda/simt/select.h"
#include "kernels/cuda/sm90/select.h"
#include "kernels/cuda/sm90/x_packed.h"

namespace fovea::cuda {
namespace {

KernelKind kind_of(KernelUse use) {
  switch (use) {
    case KernelUse::decode: return KernelKind::decode;
    case KernelUse::extend: return KernelKind::extend;
    case KernelUse::extend_small: break;
  }
  return KernelKind::extend_small;
}

QueryType query_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return QueryType::f16;
    case DType::bf16: return QueryType::bf16;
    case DType::f32: break;
  }
  return QueryType::f32;
}

int group_of(const AttentionSpec& spec) {
  return spec.num_heads / spec.num_kv_heads;
}

bool few_sequences(const AttentionSpec& spec, const AttentionLimits& limits) {
  if (limits.tune_for != TuneFor::limits) return limits.tune_for == TuneFor::few_sequences;
  const int64_t splits = (int64_t{limits.max_kv_len} + kFewSplitKeys - 1) / kFewSplitKeys;
  return int64_t{limits.max_seqs} * spec.num_kv_heads <= kFewSplits / std::max<int64_t>(splits, 1);
}

Result<sm90::Problem> hopper_problem(const AttentionSpec& spec) {
  FOVEA_TRY(kv, kv_type(spec));
  sm90::Problem p{query_type(spec.dtype), kv, spec.head_dim, spec.v_head_dim, spec.mask};
  p.softcap = spec.softcap > 0.0f;
  p.alibi = spec.has_alibi;
  p.per_head_scales = is_fp8(resolve(spec.kv_dtype, spec.dtype)) && spec.needs.has(Feature::per_head_scales);
  p.negative_scale = spec.scale < 0.0f;
  return p;
}

Result<KernelInfo> select_hopper(const AttentionSpec& spec, KernelKind kind) {
  FOVEA_TRY(problem, hopper_problem(spec));
  FOVEA_TRY(kernel, sm90::select(problem, kind));
  if (is_x_packed(spec)) FOVEA_RETURN_IF_ERROR(sm90::check_x_packed(kernel, spec.page_size));
  return kernel;
}

Result<KernelInfo> select_hopper(const AttentionSpec& spec, Phase phase) {
  return select_hopper(spec, phase == Phase::decode ? KernelKind::decode : KernelKind::extend);
}

/// `limits`: null for the question whether there is a kernel.
Result<KernelInfo> select_mla(mla::Hardware hardware, const AttentionSpec& spec, KernelKind kind,
                              const AttentionLimits* limits) {
  FOVEA_TRY(kv, kv_type(spec));
  mla::Problem p;
  p.q = query_type(spec.dtype);
  p.kv = kv;
  p.head_dim = spec.head_dim;
  p.v_head_dim = spec.v_head_dim;
  p.kv_heads = spec.num_kv_heads;
  p.group = group_of(spec);
  p.mask = spec.mask;
  p.other_scores =
      spec.softcap > 0.0f || spec.has_alibi || spec.has_sink || spec.needs.has(Feature::per_head_scales);
  p.negative_scale = spec.scale < 0.0f;
  p.topk = spec.use_sparse ? spec.sparse_topk : 0;
  p.ds_mla = resolve(spec.kv_dtype, spec.dtype) == KvCacheDType::fp8_ds_mla;
  if (limits != nullptr && limits->tune_for != TuneFor::many_sequences) {
    const int64_t seqs = limits->tune_for == TuneFor::few_sequences ? 1 : std::max(limits->max_seqs, 1);
    p.row_tiles = seqs * ((p.group + mla::kRowTile - 1) / mla::kRowTile);
    if (limits->tune_for == TuneFor::limits) p.mean_keys = limits->max_kv_tokens / seqs;
  }
  return mla::select(p, hardware, kind);
}

Result<KernelInfo> select(Family family, const AttentionSpec& spec, KernelUse use,
                          const AttentionLimits& limits, int shared_bytes = kAnySharedBytes) {
  FOVEA_TRY(kv, kv_type(spec));
  const QueryType q = query_type(spec.dtype);
  const int d = spec.head_dim, dv = spec.v_head_dim;
  if (is_x_packed(spec) && family != Family::sm90 && family != Family::portable)
    return unsupported("the " + std::string(to_string(family)) + " kernels read no pages in the layout " +
                       std::string(to_string(layout_of(spec))));
  switch (family) {
    case Family::sm80:
      return sm80::select(
          {q, kv, d, dv, needs_general_kernel(spec), few_sequences(spec, limits), shared_bytes},
          kind_of(use));
    case Family::sm90: return select_hopper(spec, kind_of(use));
    case Family::mla_sm80: return select_mla(mla::Hardware::sm80, spec, kind_of(use), &limits);
    case Family::mla_sm90: return select_mla(mla::Hardware::sm90, spec, kind_of(use), &limits);
    case Family::mla_sparse_sm80: return select_mla(mla::Hardware::sm80, spec, kind_of(use), &limits);
    case Family::mla_sparse_sm90: return select_mla(mla::Hardware::sm90, spec, kind_of(use), &limits);
    case Family::portable: return portable::select({q, kv, d, dv}, kind_of(use));
    case Family::simt: {
      simt::Problem problem{q, kv, d, dv, group_of(spec), spec.mask, shared_bytes};
      if (use != KernelUse::decode) break;
      return simt::select(problem);
    }
  }
  return Error{ErrorCode::internal, "a use that a family of CUDA kernels does not have"};
}

/// For few sequences sm80's kernel for them is faster: on an H200 1.66 times a plain read of 8K keys, against
/// 1.94 for sm90.
bool takes_few_of_sm80(Family family, const AttentionSpec& spec, KernelUse use,
                       const AttentionLimits& limits) {
  if (family != Family::sm90 || use != KernelUse::decode || !few_sequences(spec, limits)) return false;
  const auto narrow = select(Family::sm80, spec, use, limits);
  return narrow.ok() && narrow->fused_combine;  // only kernels for few sequences combine
}

constexpr int kDraftTokens = 16;

/// Draft verification has a few rows per sequence, which decode kernels split like one row. For other kernels
/// splitting pays off only where the device would be idle: at most one tile of the kernel for large steps.
int most_split_tokens(const AttentionSpec& spec, KernelUse use, const KernelInfo& large) {
  return use == KernelUse::decode ? kDraftTokens : std::max(1, large.rows / group_of(spec));
}

/// Independent of the limits. Decode: 1, which keeps partial results small. Else as most_split_tokens(), as
/// long as the partial results of a split are at most a sixteenth of the bytes of its keys and values.
int constant_split_tokens(const AttentionSpec& spec, KernelUse use, const KernelInfo& large) {
  if (use == KernelUse::decode) return 1;
  const int64_t row_bytes = int64_t{4} * (large.v_head_dim + 2);
  const int64_t split_bytes = int64_t{large.split_keys} * (spec.head_dim + spec.v_head_dim) *
                              static_cast<int64_t>(size_of(resolve(spec.kv_dtype, spec.dtype)));
  const int64_t rows = std::min<int64_t>(large.rows, split_bytes / (16 * row_bytes));
  return static_cast<int>(std::max<int64_t>(1, rows / group_of(spec)));
}

}  // namespace

std::string_view to_string(Family family) {
  switch (family) {
    case Family::sm80: return "sm80";
    case Family::simt: return "simt";
    case Family::portable: return "portable";
    case Family::sm90: return "sm90";
    case Family::mla_sm80: return "mla_sm80";
    case Family::mla_sm90: return "mla_sm90";
    case Family::mla_sparse_sm80: return "mla_sparse_sm80";
    case Family::mla_sparse_sm90: return "mla_sparse_sm90";
  }
  return "?";
}

Family always_sm80(const AttentionSpec&, Phase) {
  return Family::sm80;
}

Family always_portable(const AttentionSpec&, Phase) {
  return Family::portable;
}

Family simt_where_it_can(const AttentionSpec& spec, Phase phase) {
  const MaskSpec& mask = spec.mask;
  const bool can = phase == Phase::decode && !mask.spans && !mask.packed && !mask.tree;
  return can ? Family::simt : Family::sm80;
}

Family sm80_or_simt(const AttentionSpec& spec, Phase phase) {
  return group_of(spec) < simt::kTensorCoreGroup ? simt_where_it_can(spec, phase) : Family::sm80;
}

Family sm90_or_sm80(const AttentionSpec& spec, Phase phase) {
  return select_hopper(spec, phase).ok() ? Family::sm90 : Family::sm80;
}

Family always_mla_sm80(const AttentionSpec&, Phase) {
  return Family::mla_sm80;
}

Family always_mla_sparse_sm80(const AttentionSpec&, Phase) {
  return Family::mla_sparse_sm80;
}

Family mla_sparse_sm90_or_sm80(const AttentionSpec& spec, Phase) {
  return select_mla(mla::Hardware::sm90, spec, KernelKind::decode, nullptr).ok() ? Family::mla_sparse_sm90
                                                                                 : Family::mla_sparse_sm80;
}

Family mla_sm90_or_sm80(const AttentionSpec& spec, Phase) {
  return select_mla(mla::Hardware::sm90, spec, KernelKind::decode, nullptr).ok() ? Family::mla_sm90
                                                                                 : Family::mla_sm80;
}

FamilyOf family_of(const BackendInfo& info, std::optional<bool> tensor_cores) {
  if (info.name == "FLASH_ATTN") return info.version == "FA3" ? sm90_or_sm80 : always_sm80;
  const bool hopper = info.capability.min_compute_capability == 90;
  if (info.capability.features.has(Feature::sparse))
    return hopper ? mla_sparse_sm90_or_sm80 : always_mla_sparse_sm80;
  if (info.capability.features.has(Feature::mla)) return hopper ? mla_sm90_or_sm80 : always_mla_sm80;
  if (info.name == "TRITON_ATTN") return always_portable;
  if (info.name != "FLASHINFER" || tensor_cores.value_or(false)) return always_sm80;
  return tensor_cores ? simt_where_it_can : sm80_or_simt;
}

FamilyReason explain_family(const BackendInfo& info, const AttentionSpec& spec, Phase phase) {
  const FamilyOf families = family_of(info);
  FamilyReason out{families(spec, phase), {}};
  if (families == mla_sm90_or_sm80 || families == mla_sparse_sm90_or_sm80) {
    const auto hopper = select_mla(mla::Hardware::sm90, spec, KernelKind::decode, nullptr);
    out.why = hopper.ok() ? "Hopper's own instructions" : hopper.error().message;
  }
  if (families != sm90_or_sm80) return out;
  const auto hopper = select_hopper(spec, phase);
  out.why = !hopper.ok()             ? hopper.error().message
            : phase == Phase::decode ? "Hopper's own instructions; limits of few sequences may take sm80's"
                                     : "Hopper's own instructions";
  return out;
}

Result<KvType> kv_type(const AttentionSpec& spec) {
  const KvCacheDType stored = resolve(spec.kv_dtype, spec.dtype);
  if (stored == resolve(KvCacheDType::auto_, spec.dtype)) return KvType::same;
  switch (stored) {
    case KvCacheDType::float32: return KvType::f32;
    case KvCacheDType::float16: return KvType::f16;
    case KvCacheDType::bfloat16: return KvType::bf16;
    case KvCacheDType::fp8_ds_mla:
    case KvCacheDType::fp8_e4m3: return KvType::e4m3;
    case KvCacheDType::fp8_e5m2: return KvType::e5m2;
    case KvCacheDType::int8_per_token_head: return KvType::int8;
    default: return unsupported("no CUDA kernel reads a KV cache of " + std::string(to_string(stored)));
  }
}

bool needs_general_kernel(const AttentionSpec& spec) {
  const MaskSpec& mask = spec.mask;
  return mask.window_left >= 0 || (mask.window_right >= 0 && !mask.causal) || mask.chunk > 0 || mask.spans ||
         mask.packed || mask.tree || spec.softcap > 0.0f || spec.has_alibi || spec.scale < 0.0f;
}

Result<KernelChoice> choose_kernel(Family of_row, const AttentionSpec& spec, KernelUse use,
                                   const AttentionLimits& limits, int shared_bytes) {
  const Family family = takes_few_of_sm80(of_row, spec, use, limits) ? Family::sm80 : of_row;
  // All tile sizes split the same sequences (as the largest tiles do), so that they give the same bits.
  FOVEA_TRY(large, select(family, spec, use == KernelUse::extend_small ? KernelUse::extend : use, limits));
  KernelChoice choice{family, large, most_split_tokens(spec, use, large)};
  if (limits.tune_for != TuneFor::limits) choice.max_split_tokens = constant_split_tokens(spec, use, large);
  while (limits.tune_for == TuneFor::limits && choice.max_split_tokens > 1 &&
         partial_bytes(spec, choice, limits) > kMostPartialBytes)
    choice.max_split_tokens /= 2;
  if (use != KernelUse::decode && (!limits.split_prefill || spec.use_sparse)) choice.max_split_tokens = 0;
  // One CTA adds a row's chunks as several do.
  if (use == KernelUse::decode && family == Family::sm90) choice.draft_tokens = kDraftTokens;
  FOVEA_TRY(kernel, select(family, spec, use, limits, shared_bytes));
  choice.kernel = kernel;
  return choice;
}

KernelUse extend_use(const AttentionSpec& spec, const BatchMeta& meta, const KernelChoice& large,
                     int multiprocessors) {
  const int64_t packed = int64_t{meta.tokens} * group_of(spec);
  const int64_t tiles = packed / large.kernel.rows + std::min(meta.num_seqs(), meta.tokens);
  return tiles * spec.num_kv_heads < int64_t{2} * multiprocessors ? KernelUse::extend_small
                                                                  : KernelUse::extend;
}

}  // namespace fovea::cuda
