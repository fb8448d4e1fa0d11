#include "attention/mla_prefill.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MlaPrefillChoice : public CudaSelectTest {};

TEST_F(MlaPrefillChoice, IsNotAbsorbed) {
  AttentionSpec spec = mla_spec();
  spec.page_size = 64;
  spec.kv_dtype = KvCacheDType::fp8_e4m3;
  spec.needs = {Feature::dcp, Feature::chunked_prefix};
  const AttentionSpec prefill = mla_prefill_spec(spec);
  EXPECT_EQ(prefill.head_dim, 192);
  EXPECT_EQ(prefill.v_head_dim, 128);
  EXPECT_EQ(prefill.num_kv_heads, 128);
  EXPECT_EQ(prefill.page_size, 0);
  EXPECT_EQ(prefill.kv_dtype, KvCacheDType::auto_);
  EXPECT_EQ(prefill.needs, FeatureSet{Feature::chunked_prefix});
}

TEST_F(MlaPrefillChoice, HasARegistryOfItsOwn) {
  EXPECT_EQ(chosen({}, {mla_spec()}), "FLASH_ATTN (FA3),FLASH_ATTN_MLA");
  device = cuda(100);
  EXPECT_EQ(chosen({}, {mla_spec()}), "TRTLLM_RAGGED,FLASHINFER_MLA");
  AttentionSpec other_dims = mla_spec();
  other_dims.mla_nope_head_dim = 64;
  EXPECT_EQ(chosen({}, {other_dims}), "FLASH_ATTN (FA2),FLASHINFER_MLA");
  const Selection s = considered({}, {other_dims});
  std::vector<std::string> refused;
  for (const Candidate& c : s.kinds[0].prefill.candidates)
    refused.push_back(c.backend->label() + ": " + quoted_list(c.reasons));
  EXPECT_THAT(refused, ElementsAre("TRTLLM_RAGGED: ['head_size not supported']",
                                   "FLASHINFER: ['off unless requested']", "CUDNN: ['off unless requested']",
                                   "FLASH_ATTN (FA2): []"));
  EXPECT_EQ(s.kinds[0].prefill.candidates[1].reasons[0].fix, "-ac.mla_prefill_backend=FLASHINFER");
  EXPECT_THAT(s.kinds[0].prefill.candidates[0].reasons[0].fix,
              HasSubstr("-ac.mla_prefill_backend=FLASH_ATTN: serves it here"));
}

TEST_F(MlaPrefillChoice, IsChosenByName) {
  device = cuda(100);
  for (const char* name : {"CUDNN", "cudnn", "cuDNN"})
    EXPECT_EQ(chosen({.mla_prefill_backend = name}, {mla_spec()}), "CUDNN,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.mla_prefill_backend = "trtllm-ragged"}, {mla_spec()}), "TRTLLM_RAGGED,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.mla_prefill_backend = "auto"}, {mla_spec()}), "TRTLLM_RAGGED,FLASHINFER_MLA");
  EXPECT_EQ(refusal({.mla_prefill_backend = "x"}, {mla_spec()}),
            "Unknown MLA prefill backend: 'x' (AttentionConfig::mla_prefill_backend x). Valid options are: "
            "auto, TRTLLM_RAGGED, FLASHINFER, CUDNN, FLASH_ATTN.");
}

TEST_F(MlaPrefillChoice, AnInvalidChoiceIsAnErrorNotAWarning) {
  EXPECT_EQ(refusal({.mla_prefill_backend = "CUDNN"}, {mla_spec()}).substr(0, 113),
            "Selected MLA prefill backend CUDNN is not valid for this configuration. Reason: ['compute "
            "capability not supporte");
}

TEST_F(MlaPrefillChoice, AFixNamesAnotherBackendThanTheGivenOne) {
  EXPECT_THAT(refusal({.mla_prefill_backend = "CUDNN"}, {mla_spec()}),
              HasSubstr("-ac.mla_prefill_backend=FLASH_ATTN: serves it here"));
}

TEST_F(MlaPrefillChoice, DeprecatedSwitchesAreAliasesAndWarn) {
  device = cuda(100);
  EXPECT_EQ(chosen({.use_cudnn_prefill = true}, {mla_spec()}), "CUDNN,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.disable_flashinfer_prefill = false}, {mla_spec()}), "FLASHINFER,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.use_trtllm_ragged_deepseek_prefill = true}, {mla_spec()}),
            "TRTLLM_RAGGED,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.use_trtllm_ragged_deepseek_prefill = false}, {mla_spec()}),
            "FLASH_ATTN (FA2),FLASHINFER_MLA");
  EXPECT_EQ(chosen({.disable_flashinfer_prefill = true, .use_cudnn_prefill = false}, {mla_spec()}),
            "TRTLLM_RAGGED,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.mla_prefill_backend = "cudnn", .use_cudnn_prefill = true}, {mla_spec()}),
            "CUDNN,FLASHINFER_MLA");
  EXPECT_EQ(chosen({.mla_prefill_backend = "cudnn", .disable_flashinfer_prefill = true}, {mla_spec()}),
            "CUDNN,FLASHINFER_MLA");
  const Selection s = considered({.use_cudnn_prefill = true}, {mla_spec()});
  EXPECT_THAT(s.warnings, ElementsAre("AttentionConfig::use_cudnn_prefill is deprecated: name the backend "
                                      "with -ac.mla_prefill_backend (CUDNN, ...)"));
}

TEST_F(MlaPrefillChoice, SwitchesThatContradict) {
  device = cuda(100);
  EXPECT_EQ(refusal({.disable_flashinfer_prefill = false, .use_cudnn_prefill = true}, {mla_spec()}),
            "AttentionConfig::use_cudnn_prefill=1 contradicts AttentionConfig::disable_flashinfer_prefill=0; "
            "give mla_prefill_backend alone");
  EXPECT_THAT(refusal({.mla_prefill_backend = "cudnn", .use_cudnn_prefill = false}, {mla_spec()}),
              HasSubstr("contradicts"));
  EXPECT_THAT(refusal({.mla_prefill_backend = "flash_attn", .use_cudnn_prefill = true}, {mla_spec()}),
              HasSubstr("contradicts"));
  EXPECT_THAT(refusal({.prefill_backend = "FLASHINFER_MLA", .mla_prefill_backend = "cudnn"}, {mla_spec()}),
              HasSubstr("both name the prefill of MLA layers"));
}

TEST_F(MlaPrefillChoice, ThePartnerPrefillsForABackendThatOnlyDecodes) {
  device = cuda(100);
  for (const AttentionConfig& config :
       {AttentionConfig{.backend = "trtllm_mla"}, AttentionConfig{.decode_backend = "TRTLLM_MLA"}}) {
    const auto s = choose(config, {mla_spec()});
    ASSERT_TRUE(s.ok()) << s.error().message;
    EXPECT_EQ(s->kinds[0].prefill.backend->name, "FLASHINFER_MLA");
    EXPECT_EQ(s->kinds[0].prefill.why, "prefills for TRTLLM_MLA, which only decodes");
    EXPECT_EQ(s->kinds[0].decode.backend->name, "TRTLLM_MLA");
    EXPECT_EQ(s->page_size, 64);
  }
  EXPECT_EQ(chosen({.backend = "TRTLLM_MLA", .mla_prefill_backend = "cudnn"}, {mla_spec()}),
            "CUDNN,TRTLLM_MLA")
      << "the user's word goes before the partner";
  EXPECT_EQ(chosen({.backend = "fi,trtllm_mla"}, {mla_spec()}), "FLASHINFER_MLA,TRTLLM_MLA");
  device = cuda(90);
  EXPECT_THAT(refusal({.backend = "trtllm_mla"}, {mla_spec()}),
              HasSubstr("Selected backend TRTLLM_MLA is not valid for this configuration. Reason: ['compute "
                        "capability not supported']"));
}

TEST_F(MlaPrefillChoice, APartnerIsTheVersionThatPrefillsHere) {
  EXPECT_EQ(chosen({.backend = "FLASHINFER", .use_trtllm_attention = true}),
            "FLASHINFER (Native),FLASHINFER (XQA)");
}

TEST_F(MlaPrefillChoice, SparseLayersPrefillByThemselves) {
  BackendInfo info = backend_named("SPARSE", capability("SPARSE_MLA", 90, 0));
  info.capability.features.insert(Feature::sparse);
  registry.add(info);
  AttentionSpec spec = mla_spec();
  spec.use_sparse = true;
  EXPECT_EQ(chosen({}, {spec}), "SPARSE,SPARSE");
}

}  // namespace
}  // namespace fovea
