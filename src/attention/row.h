#pragma once
// Common parts of rows: sets of dtypes, reasons for absence, and columns that a document does not mention.
#include <string_view>

#include "fovea/capability.h"

namespace fovea::rows {

inline constexpr std::string_view kNoCuda = "its CUDA kernels are not written yet";
inline constexpr std::string_view kNoBlackwell =
    "its Blackwell kernels (compute capability 10.x and later) are not written yet";
inline constexpr std::string_view kNoRocm = "it has no kernels for AMD GPUs";
inline constexpr std::string_view kNoAscend = "it has no kernels for Ascend NPUs";
inline constexpr std::string_view kNoXpu = "it has no kernels for Intel GPUs";
inline constexpr std::string_view kNoLinear =
    "its kernels are called directly (fovea/linear_attention.h), and the engine has no such layers yet";

using Dtypes = EnumSet<DType>;
inline constexpr Dtypes kHalf = {DType::f16, DType::bf16};
inline constexpr Dtypes kBf16 = {DType::bf16};
inline constexpr Dtypes kFloats = {DType::f16, DType::bf16, DType::f32};

using KvDtypes = EnumSet<KvCacheDType>;
inline constexpr KvDtypes kKvAuto = {KvCacheDType::auto_};
inline constexpr KvDtypes kKvBf16 = {KvCacheDType::auto_, KvCacheDType::bfloat16};
inline constexpr KvDtypes kKvHalf = kKvBf16 | KvDtypes{KvCacheDType::float16};
inline constexpr KvDtypes kE4m3 = {KvCacheDType::fp8_e4m3};
inline constexpr KvDtypes kFp8s = {KvCacheDType::fp8_e4m3, KvCacheDType::fp8_e5m2};

inline constexpr EnumSet<AttentionType> kDecoder = {AttentionType::decoder};
inline constexpr EnumSet<AttentionType> kAllTypes = {AttentionType::decoder, AttentionType::encoder,
                                                     AttentionType::encoder_only,
                                                     AttentionType::encoder_decoder};
inline constexpr EnumSet<Phase> kBothPhases = {Phase::prefill, Phase::decode};

/// Columns that none of vLLM's tables has.
inline constexpr FeatureSet kNotInVllm = {Feature::window,
                                          Feature::chunk,
                                          Feature::softcap,
                                          Feature::sink_tokens,
                                          Feature::alibi,
                                          Feature::packed_mask,
                                          Feature::verify,
                                          Feature::tree_mask,
                                          Feature::chunked_prefix,
                                          Feature::non_causal_dcp,
                                          Feature::pcp,
                                          Feature::lse,
                                          Feature::native_page,
                                          Feature::kv_x_packed,
                                          Feature::kv_shuffle,
                                          Feature::kv_sharing,
                                          Feature::kv_connector,
                                          Feature::per_head_scales,
                                          Feature::output_quant,
                                          Feature::batch_invariance,
                                          Feature::adaptive_verification,
                                          Feature::fp64_accumulate};
/// SGLang's tables have native pages, both kinds of speculative decoding, windows, MLA and chunked prefixes.
inline constexpr FeatureSet kNotInSglang =
    kNotInVllm.without({Feature::native_page, Feature::verify, Feature::tree_mask, Feature::window,
                        Feature::chunked_prefix}) |
    FeatureSet{Feature::sink, Feature::spans, Feature::non_causal, Feature::dcp, Feature::sparse};

/// Sets common defaults: V's head sizes are those of Q, both phases.
constexpr Capability with_defaults(Capability c) {
  if (c.v_head_dims.empty()) c.v_head_dims = c.head_dims;
  if (c.phases.empty()) c.phases = kBothPhases;
  c.unstated = c.unstated.without(c.features);
  if (!c.invariance.empty()) c.unstated = c.unstated.without({Feature::batch_invariance});
  return c;
}

/// Marks `features` as refused in a place of the document outside its table.
constexpr Capability refuses(FeatureSet features, Capability c) {
  c.unstated = c.unstated.without(features);
  return c;
}

/// A row of vLLM's tables; `c.unstated` are columns that this row alone lacks.
constexpr Capability vllm(Capability c) {
  c.unstated = c.unstated | kNotInVllm;
  return with_defaults(c);
}

/// A row of SGLang's tables, which don't mention attention types: decoder is the default.
constexpr Capability sglang(Capability c) {
  c.unstated = c.unstated | kNotInSglang;
  if (c.types.empty()) c.types = kDecoder;
  if (c.dtypes.empty()) c.dtypes = kHalf;
  return with_defaults(c);
}

}  // namespace fovea::rows
