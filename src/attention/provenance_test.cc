#include "attention/provenance.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

/// "VALUE from FROM" of the first `key`; "-" when there is none.
std::string value_of(const Selection& s, std::string_view key) {
  for (const ResolvedValue& v : s.resolved)
    if (v.key == key) return v.value + " from " + v.from;
  return "-";
}

class ProvenanceOnCpu : public CpuSelectTest {};

TEST_F(ProvenanceOnCpu, EveryValueNamesTheSettingThatDecidedIt) {
  AttentionSpec spec = llama_spec();
  Selection s = considered({.backend = "fast", .sources = {{"backend", "--attn"}}}, {spec});
  EXPECT_EQ(value_of(s, "full.prefill"), "FAST_ATTN from given: --attn fast");
  EXPECT_EQ(value_of(s, "page_size"), "32 from preferred by FAST_ATTN");
  EXPECT_EQ(value_of(s, "dtype"), "float32 from config.json");
  EXPECT_EQ(value_of(s, "kv_cache_dtype"), "auto (float32) from default");
  EXPECT_EQ(value_of(s, "batch_invariant"), "0 from default");
  EXPECT_EQ(value_of(s, "use_non_causal"), "-");
  EXPECT_EQ(value_of(s, "flash_attn_version"), "-");
  plain->capability.invariance = {Invariance::batch};
  spec.kv_dtype = KvCacheDType::bfloat16;
  s = considered({.page_size = 16,
                  .use_non_causal = true,
                  .batch_invariant = true,
                  .sources = {{"page_size", "--block-size"},
                              {"dtype", "--dtype"},
                              {"kv_cache_dtype", "--kv-cache-dtype"},
                              {"batch_invariant", "env VLLM_BATCH_INVARIANT"}}},
                 {spec});
  EXPECT_EQ(value_of(s, "page_size"), "16 from given: --block-size");
  EXPECT_EQ(value_of(s, "dtype"), "float32 from --dtype");
  EXPECT_EQ(value_of(s, "kv_cache_dtype"), "bfloat16 from --kv-cache-dtype");
  EXPECT_EQ(value_of(s, "batch_invariant"), "1 from env VLLM_BATCH_INVARIANT");
  EXPECT_EQ(value_of(s, "use_non_causal"), "1 from API");
}

TEST_F(ProvenanceOnCpu, KindsHaveValuesOfTheirOwn) {
  const Selection s = considered({}, {llama_spec(), window_spec(), encoder_spec()});
  std::vector<std::string> keys;
  for (const ResolvedValue& v : s.resolved)
    keys.push_back(v.key);
  EXPECT_THAT(keys, ElementsAre("full.prefill", "full.decode", "sliding_window.prefill",
                                "sliding_window.decode", "encoder.prefill", "page_size", "dtype",
                                "kv_cache_dtype", "batch_invariant", "provenance"));
}

TEST_F(ProvenanceOnCpu, WhichPhaseComputesWhatFollowsFromTheBackendsOfAllKinds) {
  const std::string both = "any phase from prefill and decode give every position the same bits";
  const std::string apart = "prompts from prefill, answers from decode from ";
  plain->capability.invariance = fast->capability.invariance = {Invariance::batch, Invariance::chunking};
  Selection s = considered({.backend = "plain"});
  EXPECT_TRUE(same_bits_across_phases(s));
  EXPECT_EQ(value_of(s, "provenance"), both);
  s = considered({.backend = "fast,plain"});
  EXPECT_FALSE(same_bits_across_phases(s));
  EXPECT_EQ(value_of(s, "provenance"), apart + "full layers: prefill is FAST_ATTN, decode PLAIN");
  // Kinds may have different backends, as long as each has one for both phases.
  s = considered({.backend = "full=fast,swa=plain"}, {llama_spec(), window_spec()});
  EXPECT_TRUE(same_bits_across_phases(s));
  EXPECT_EQ(value_of(s, "provenance"), both);
  s = considered({.backend = "full.prefill=plain,full.decode=fast,swa=plain"}, {llama_spec(), window_spec()});
  EXPECT_FALSE(same_bits_across_phases(s));
  EXPECT_TRUE(same_bits_across_phases(s.kinds[1]));
  EXPECT_EQ(value_of(s, "provenance"), apart + "full layers: prefill is PLAIN, decode FAST_ATTN");
  plain->capability.invariance = {Invariance::batch};
  s = considered({.backend = "plain"});
  EXPECT_FALSE(same_bits_across_phases(s)) << "one row, but it does not claim the level";
  s = considered({.backend = "plain"}, {encoder_spec()});
  EXPECT_TRUE(same_bits_across_phases(s)) << "an encoder does not decode";
  EXPECT_EQ(value_of(s, "provenance"), "-");
}

TEST_F(ProvenanceOnCpu, WhatIsNotBuiltIsShownWithWhatItWouldTake) {
  device = cuda(90);
  gpu->capability.preferred_page_size = 64;
  const Selection s = considered({.backend = "gpu"});
  EXPECT_EQ(value_of(s, "full.decode"),
            "none (GPU_ATTN is not in this build) from given: AttentionConfig::backend gpu");
  EXPECT_EQ(value_of(s, "page_size"), "64 from preferred by GPU_ATTN");
  EXPECT_EQ(s.page_size, 0);
}

class Provenance : public CudaSelectTest {};

TEST_F(Provenance, FlashAttentionsVersion) {
  EXPECT_EQ(value_of(considered({.backend = "fa"}), "flash_attn_version"),
            "3 from default: 3 on compute capability 9.x (2 with ALiBi), 2 elsewhere");
  EXPECT_EQ(value_of(considered({.backend = "fa2"}), "flash_attn_version"),
            "2 from given: AttentionConfig::backend fa2");
  EXPECT_EQ(value_of(considered({.backend = "fa3"}), "flash_attn_version"),
            "3 from given: AttentionConfig::backend fa3");
  EXPECT_EQ(value_of(considered({.backend = "fa",
                                 .flash_attn_version = 2,
                                 .sources = {{"flash_attn_version", "-ac.flash_attn_version"}}}),
                     "flash_attn_version"),
            "2 from -ac.flash_attn_version");
}

TEST_F(Provenance, TensorCoresFromARatioOf4) {
  AttentionSpec spec = llama_spec();
  const auto cores = [&](AttentionConfig config) {
    config.backend = "fi";
    return value_of(considered(config, {spec}), "flashinfer_use_tensor_cores");
  };
  EXPECT_EQ(cores({}), "1 from default: 4 query heads per KV head, tensor cores from 4 on");
  spec.num_heads = 6;
  EXPECT_EQ(cores({}), "0 from default: 3 query heads per KV head, tensor cores from 4 on");
  EXPECT_EQ(cores({.flashinfer_use_tensor_cores = true,
                   .sources = {{"flashinfer_use_tensor_cores", "env FLASHINFER_USE_TENSOR_CORES"}}}),
            "1 from env FLASHINFER_USE_TENSOR_CORES");
  EXPECT_EQ(value_of(considered({.backend = "fi,fa"}), "flashinfer_use_tensor_cores"), "-")
      << "of decode only";
  EXPECT_EQ(value_of(considered({.backend = "fi"}), "use_trtllm_attention"),
            "0 from default: 1 on compute capability 10.x, 0 elsewhere");
  device = cuda(100);
  EXPECT_EQ(value_of(considered({}), "use_trtllm_attention"),
            "1 from default: 1 on compute capability 10.x, 0 elsewhere");
}

TEST_F(Provenance, TheBackendOfMlaPrefill) {
  EXPECT_EQ(value_of(considered({}, {mla_spec()}), "mla_prefill_backend"),
            "FLASH_ATTN (FA3) from MLA prefill, automatic");
  EXPECT_EQ(value_of(considered({}, {mla_spec()}), "flash_attn_version").substr(0, 2), "3 ");
}

TEST_F(Provenance, SettingsWithNoEffectAreReported) {
  EXPECT_THAT(considered({.backend = "fi", .flash_attn_version = 2}).warnings,
              ElementsAre("AttentionConfig::flash_attn_version has no effect: no phase uses FLASH_ATTN"));
  EXPECT_THAT(
      considered({.backend = "fa",
                  .use_trtllm_attention = false,
                  .flashinfer_use_tensor_cores = true,
                  .mla_prefill_backend = "cudnn",
                  .use_prefill_decode_attention = true})
          .warnings,
      ElementsAre("AttentionConfig::mla_prefill_backend has no effect: this model has no MLA layers",
                  "AttentionConfig::use_trtllm_attention has no effect: no phase uses FLASHINFER",
                  "AttentionConfig::flashinfer_use_tensor_cores has no effect: no decode uses FLASHINFER",
                  "AttentionConfig::use_prefill_decode_attention has no effect: no phase uses ROCM_ATTN"));
  EXPECT_THAT(
      considered({.backend = "fi,fa", .flash_attn_version = 2, .use_trtllm_attention = false}).warnings,
      IsEmpty());
  device = cuda(75);
  EXPECT_THAT(considered({.flash_attn_version = 2}).warnings, IsEmpty())
      << "nothing serves: what it would have done is not known";
}

TEST_F(ProvenanceOnCpu, AnEncoderHasNoCacheAndNoDecode) {
  EXPECT_THAT(
      considered({.decode_backend = "plain", .page_size = 16}, {encoder_spec()}).warnings,
      ElementsAre("decode backend 'plain' of AttentionConfig::decode_backend has no effect: encoder layers "
                  "only prefill",
                  "AttentionConfig::page_size has no effect: encoder layers have no KV cache"));
  EXPECT_THAT(
      considered({.backend = "plain,fast"}, {encoder_spec()}).warnings,
      ElementsAre("decode backend 'fast' of AttentionConfig::backend has no effect: encoder layers only "
                  "prefill"));
}

}  // namespace
}  // namespace fovea
