#include "backends/cuda/kernel_choice.h"

#include <algorithm>
#include <string>

namespace fovea::cuda {
namespace {

sm80::KernelKind kind_of(KernelUse use) {
  switch (use) {
    case KernelUse::decode: return sm80::KernelKind::decode;
    case KernelUse::extend: return sm80::KernelKind::extend;
    case KernelUse::extend_small: break;
  }
  return sm80::KernelKind::extend_small;
}

/// Query rows that fit a tile, under all query heads of a KV head. Sequences of more are not split: each of
/// their tiles would double what the workspace holds of partial results.
int tokens_of_tile(const AttentionSpec& spec, int tile_rows) {
  return std::max(1, tile_rows / (spec.num_heads / spec.num_kv_heads));
}

/// Verifying drafts takes a few rows of every sequence each step, so these are split as well.
int decode_split_tokens(const AttentionSpec& spec, int tile_rows) {
  constexpr int kDraftTokens = 16;
  const bool drafts = spec.mask.tree || spec.needs.has(Feature::verify) || spec.needs.has(Feature::tree_mask);
  return std::max(tokens_of_tile(spec, tile_rows), drafts ? kDraftTokens : 1);
}

Result<sm80::KernelInfo> choose_sm80(const AttentionSpec& spec, KernelUse use) {
  FOVEA_TRY(kv, kv_type(spec));
  if (spec.dtype == DType::f32) return unsupported("the sm80 kernels take 16-bit queries; float32 is given");
  sm80::Problem problem;
  problem.q = spec.dtype == DType::f16 ? sm80::QueryType::f16 : sm80::QueryType::bf16;
  problem.kv = kv;
  problem.head_dim = spec.head_dim;
  problem.v_head_dim = spec.v_head_dim;
  problem.general = needs_general_kernel(spec);
  return sm80::select(problem, kind_of(use));
}

Result<sm80::KernelInfo> choose_of(Family family, const AttentionSpec& spec, KernelUse use) {
  switch (family) {
    case Family::sm80: return choose_sm80(spec, use);
  }
  return Error{ErrorCode::internal, "a family of CUDA kernels that does not exist"};
}

}  // namespace

Result<KvType> kv_type(const AttentionSpec& spec) {
  const KvCacheDType stored = resolve(spec.kv_dtype, spec.dtype);
  if (stored == resolve(KvCacheDType::auto_, spec.dtype)) return KvType::same;
  switch (stored) {
    case KvCacheDType::fp8_e4m3: return KvType::e4m3;
    case KvCacheDType::fp8_e5m2: return KvType::e5m2;
    case KvCacheDType::int8_per_token_head: return KvType::int8;
    default:
      return unsupported("a KV cache of " + std::string(to_string(stored)) + " beside queries of " +
                         std::string(to_string(spec.dtype)) +
                         "; CUDA kernels read the queries' type, fp8_e4m3, fp8_e5m2 and int8_per_token_head");
  }
}

bool needs_general_kernel(const AttentionSpec& spec) {
  const MaskSpec& mask = spec.mask;
  return mask.window_left >= 0 || (mask.window_right >= 0 && !mask.causal) || mask.chunk > 0 || mask.spans ||
         mask.packed || mask.tree || spec.softcap > 0.0f || spec.has_alibi || spec.scale < 0.0f;
}

Result<KernelChoice> choose_kernel(Family family, const AttentionSpec& spec, KernelUse use) {
  FOVEA_TRY(kernel, choose_of(family, spec, use));
  if (use == KernelUse::decode) return KernelChoice{family, kernel, decode_split_tokens(spec, kernel.rows)};
  // Of both sizes of tiles alike: they give the same bits.
  FOVEA_TRY(large, choose_of(family, spec, KernelUse::extend));
  return KernelChoice{family, kernel, tokens_of_tile(spec, large.rows)};
}

}  // namespace fovea::cuda
