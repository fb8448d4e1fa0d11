#include "attention/validate.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> texts(const BackendInfo& info, const AttentionSpec& spec, DeviceInfo device = {},
                               Phase phase = Phase::decode) {
  std::vector<std::string> out;
  for (const Reason& r : validate(info, spec, device, phase)) {
    EXPECT_FALSE(r.fix.empty()) << r.text;
    out.push_back(r.text);
  }
  return out;
}

std::string fix_of(const BackendInfo& info, const AttentionSpec& spec, DeviceInfo device = {}) {
  const auto reasons = validate(info, spec, device, Phase::decode);
  EXPECT_EQ(reasons.size(), 1u);
  return reasons.empty() ? "" : reasons.front().fix;
}

BackendInfo nothing_at_all() {
  BackendInfo none = backend_named("NONE", {});
  none.capability.page_sizes = {16};
  none.capability.device = DeviceKind::cuda;
  none.capability.gqa_ratios = {1};
  none.supports_combination = [](const AttentionSpec&, const DeviceInfo&) -> std::optional<Reason> {
    return Reason{"its own words", "its own fix"};
  };
  return none;
}

AttentionSpec all_at_once() {
  AttentionSpec spec = llama_spec();
  spec.page_size = 17;
  spec.mask = {.causal = false, .window_left = 3, .chunk = 5, .sink_tokens = 1, .spans = true, .tree = true};
  spec.use_mla = spec.use_sparse = spec.has_sink = spec.has_alibi = spec.fp64_accumulate = true;
  spec.kv_x_packed = true;
  spec.head_dim = 66;
  spec.softcap = 3;
  for (unsigned f = 0; f < static_cast<unsigned>(Feature::count_); ++f)
    spec.needs.insert(static_cast<Feature>(f));
  return spec;
}

TEST(Validate, EveryReasonInTheOrderOfVllm) {
  const std::vector<std::string> reasons = texts(nothing_at_all(), all_at_once());
  EXPECT_THAT(
      reasons,
      ElementsAre("head_size not supported", "dtype not supported", "kv_cache_dtype not supported",
                  "block_size not supported", "partial multimodal token full attention not supported",
                  "MLA not supported", "attention sinks not supported", "sparse not supported",
                  "per-head quant scales not supported", "compute capability not supported",
                  "attention type decoder not supported", "sliding window not supported",
                  "non-causal attention not supported", "non-causal MLA attention with DCP not supported",
                  "batch invariance not supported", "KV connector not supported", "PCP not supported",
                  "DCP not supported",
                  "device-cpu query lens mismatch not supported, this is needed for adaptive verification",
                  "GQA ratio 4 not supported", "chunked-local attention not supported",
                  "StreamingLLM sink tokens not supported", "logit soft cap not supported",
                  "ALiBi not supported", "speculative verification not supported", "tree mask not supported",
                  "KV cache layout x_packed not supported",
                  "KV cache layout x_packed needs a head_size that is a multiple of 4",
                  "KV sharing between layers not supported", "chunked prefix not supported",
                  "quantised output not supported", "LSE output not supported",
                  "fp64 accumulation not supported", "decode not supported",
                  "ALiBi with a logit soft cap not supported", "its own words"));
}

TEST(Validate, WhatADocumentLeavesUnsaidIsNoReason) {
  BackendInfo info = nothing_at_all();
  for (unsigned f = 0; f < static_cast<unsigned>(Feature::count_); ++f)
    info.capability.unstated.insert(static_cast<Feature>(f));
  EXPECT_THAT(
      texts(info, all_at_once()),
      ElementsAre("head_size not supported", "dtype not supported", "kv_cache_dtype not supported",
                  "block_size not supported", "compute capability not supported",
                  "attention type decoder not supported", "GQA ratio 4 not supported",
                  "KV cache layout x_packed needs a head_size that is a multiple of 4",
                  "decode not supported", "ALiBi with a logit soft cap not supported", "its own words"));
}

TEST(Validate, AnAbsentBackendIsCheckedAndSaysSoLastWhereItsDeviceIs) {
  BackendInfo info = nothing_at_all();
  info.absent = "no kernels yet";
  AttentionSpec spec = llama_spec();
  EXPECT_EQ(texts(info, spec).back(), "its own words") << "on the wrong device";
  EXPECT_EQ(texts(info, spec, cuda(90)).back(), "not in this build: no kernels yet");
  info.capability = plain_capability();
  info.supports_combination = nullptr;
  EXPECT_THAT(texts(info, spec), ElementsAre("not in this build: no kernels yet"));
}

TEST(Validate, KindsOfModels) {
  BackendInfo mla = backend_named("X", plain_capability());
  mla.capability.features = {Feature::mla, Feature::sparse};
  EXPECT_THAT(texts(mla, llama_spec()), ElementsAre("non-MLA not supported", "non-sparse not supported"));
}

TEST(Validate, AutoKvDtypeIsTheModels) {
  BackendInfo info = backend_named("X", plain_capability());
  info.capability.kv_dtypes = {KvCacheDType::bfloat16};
  AttentionSpec spec = llama_spec();
  EXPECT_THAT(texts(info, spec), ElementsAre("kv_cache_dtype not supported"));
  spec.dtype = DType::bf16;
  EXPECT_THAT(texts(info, spec), IsEmpty());
  spec.kv_dtype = KvCacheDType::fp8_e4m3;
  EXPECT_THAT(texts(info, spec), ElementsAre("kv_cache_dtype not supported"));
}

TEST(Validate, AttentionTypesAndCausality) {
  const BackendInfo info = backend_named("X", plain_capability());
  AttentionSpec spec = llama_spec();
  for (const auto& [type, text] :
       {std::pair{AttentionType::encoder, "attention type encoder not supported"},
        std::pair{AttentionType::encoder_only, "attention type encoder_only not supported"},
        std::pair{AttentionType::encoder_decoder, "attention type encoder_decoder not supported"}}) {
    spec.type = type;
    spec.mask.causal = false;
    EXPECT_THAT(texts(info, spec), ElementsAre(text));
  }
  spec.type = AttentionType::decoder;
  EXPECT_THAT(texts(info, spec), ElementsAre("non-causal attention not supported"));
  spec.mask.packed = true;
  EXPECT_THAT(texts(info, spec), ElementsAre("packed custom mask not supported"));
  spec = llama_spec();
  spec.mask.window_right = 0;  // implied by causal
  EXPECT_THAT(texts(info, spec), IsEmpty());
}

TEST(Validate, NonCausalMlaWithDcpNeedsBothAndTheirCombination) {
  BackendInfo info = backend_named("X", plain_capability());
  info.capability.features = {Feature::mla, Feature::non_causal, Feature::dcp};
  AttentionSpec spec = llama_spec();
  spec.use_mla = true;
  spec.mask.causal = false;
  EXPECT_THAT(texts(info, spec), IsEmpty());
  spec.needs = {Feature::dcp};
  EXPECT_THAT(texts(info, spec), ElementsAre("non-causal MLA attention with DCP not supported"));
  info.capability.features.insert(Feature::non_causal_dcp);
  EXPECT_THAT(texts(info, spec), IsEmpty());
}

TEST(Validate, BatchInvarianceIsALevelNotAFeature) {
  BackendInfo info = backend_named("X", plain_capability());
  AttentionSpec spec = llama_spec();
  spec.needs = {Feature::batch_invariance};
  EXPECT_THAT(texts(info, spec), ElementsAre("batch invariance not supported"));
  info.capability.invariance = {Invariance::batch};
  EXPECT_THAT(texts(info, spec), IsEmpty());
}

TEST(Validate, GqaRatios) {
  BackendInfo info = backend_named("X", plain_capability());
  info.capability.gqa_ratios = {1, 8};
  EXPECT_THAT(texts(info, llama_spec()), ElementsAre("GQA ratio 4 not supported"));
  EXPECT_EQ(fix_of(info, llama_spec()), "X takes 1, 8 query heads per KV head");
}

TEST(Validate, ComputeCapabilityBounds) {
  BackendInfo info = backend_named("X", plain_capability());
  info.capability.device = DeviceKind::cuda;
  info.capability.min_compute_capability = 90;
  info.capability.max_compute_capability = 99;
  EXPECT_THAT(texts(info, llama_spec(), cuda(90)), IsEmpty());
  EXPECT_THAT(texts(info, llama_spec(), cuda(89)), ElementsAre("compute capability not supported"));
  EXPECT_THAT(texts(info, llama_spec(), cuda(100)), ElementsAre("compute capability not supported"));
  EXPECT_EQ(fix_of(info, llama_spec(), cuda(80)),
            "it needs a cuda device of compute capability 9.0 to 9.9, this one is cuda 8.0");
}

TEST(Validate, FixesNameTheNearestValue) {
  BackendInfo info = backend_named("X", plain_capability());
  info.capability.dtypes = {DType::f16, DType::bf16};
  EXPECT_EQ(fix_of(info, llama_spec()), "--dtype bfloat16: it takes float16, bfloat16");
  info.capability.dtypes = {DType::f32};
  info.capability.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::fp8_e4m3};
  AttentionSpec spec = llama_spec();
  spec.kv_dtype = KvCacheDType::fp8_e5m2;
  EXPECT_EQ(fix_of(info, spec), "--kv-cache-dtype fp8_e4m3: it takes auto, fp8_e4m3");
  spec.kv_dtype = KvCacheDType::nvfp4;
  EXPECT_EQ(fix_of(info, spec), "--kv-cache-dtype auto: it takes auto, fp8_e4m3");
  spec.kv_dtype = KvCacheDType::auto_;
  spec.page_size = 1500;
  info.capability.page_sizes = {16, 32, 64};
  EXPECT_EQ(fix_of(info, spec), "--page-size 64: it takes 16, 32, 64");
  info.capability.page_sizes = IntSet::multiples_of(16);
  EXPECT_EQ(fix_of(info, spec), "--page-size 1504: it takes multiples of 16");
}

TEST(Validate, ReasonsOfSeveralSpecsKeepTheOrder) {
  const BackendInfo info = backend_named("X", plain_capability());
  AttentionSpec first = llama_spec(), second = llama_spec();
  first.softcap = 3;
  second.head_dim = second.v_head_dim = 999;
  second.softcap = 3;
  std::vector<std::string> out;
  for (const Finding& f : find_reasons(info, std::vector{first, second}, {}, Phase::decode))
    out.push_back(f.reason.text);
  EXPECT_THAT(out, ElementsAre("head_size not supported", "logit soft cap not supported"));
}

}  // namespace
}  // namespace fovea
