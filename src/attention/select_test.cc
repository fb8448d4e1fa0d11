#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Select : public CpuSelectTest {};

TEST_F(Select, AutomaticTakesTheFirstThatServesEachPhase) {
  const auto s = choose({});
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->kinds[0].prefill.backend, fast);
  EXPECT_EQ(s->kinds[0].decode.backend, fast);
  EXPECT_EQ(s->page_size, 32);
  EXPECT_TRUE(s->complete());
  EXPECT_EQ(
      explain(*s),
      "prefill: FAST_ATTN (automatic: first of FAST_ATTN, PLAIN that serves this model on cpu)\n"
      "decode: FAST_ATTN (automatic: first of FAST_ATTN, PLAIN, DECODER that serves this model on cpu)");
  EXPECT_EQ(explain(*choose({.backend = "AUTO"})), explain(*s));
}

TEST_F(Select, AutomaticSkipsWhatCannotServeAndSaysWhy) {
  const auto s = choose({}, {window_spec()});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, plain);
  ASSERT_EQ(s->kinds[0].prefill.candidates.size(), 3u) << "what is not built and not asked for is none";
  EXPECT_EQ(s->kinds[0].prefill.candidates[0].backend->name, "FAST_ATTN");
  EXPECT_EQ(s->kinds[0].prefill.candidates[0].reasons[0].text, "sliding window not supported");
  EXPECT_THAT(explain(*s),
              HasSubstr("prefill: PLAIN (automatic: the only one that serves this model on cpu)"));
}

TEST_F(Select, NamesAndPairs) {
  const AttentionConfig config = {.backend = "torch_PLAIN", .sources = {{"backend", "--attn"}}};
  EXPECT_EQ(chosen(config), "PLAIN,PLAIN");
  EXPECT_EQ(choose(config)->page_size, 16);
  EXPECT_THAT(explain(*choose(config)), HasSubstr("decode: PLAIN (given: --attn torch_PLAIN)"));
  EXPECT_EQ(choose(config)->kinds[0].prefill.candidates.size(), 1u);
  EXPECT_EQ(chosen({.backend = "fa, decoder"}), "FAST_ATTN,DECODER");
  EXPECT_EQ(chosen({.backend = "plain", .decode_backend = "fast"}), "PLAIN,FAST_ATTN");
  EXPECT_EQ(chosen({.prefill_backend = "plain", .decode_backend = "auto"}), "PLAIN,FAST_ATTN");
  EXPECT_THAT(explain(*choose({.backend = "fa,fast"})),
              HasSubstr("fa; P/D attention backends are the same: FAST_ATTN)"));
}

TEST_F(Select, KindsOfLayersAreChosenForSeparately) {
  const std::vector<AttentionSpec> specs = {window_spec(), llama_spec(), window_spec()};
  EXPECT_EQ(chosen({}, specs, 0), "FAST_ATTN,FAST_ATTN");
  EXPECT_EQ(chosen({}, specs, 1), "PLAIN,PLAIN");
  const auto s = choose({}, specs);
  EXPECT_EQ(s->kinds[0].kind, LayerKind::full);
  EXPECT_THAT(s->kinds[1].specs, ElementsAre(0, 2));
  EXPECT_EQ(&s->of(specs[2]), &s->kinds[1]);
  EXPECT_EQ(s->page_size, 32) << "FAST_ATTN's, which PLAIN takes too";
  EXPECT_EQ(chosen({.backend = "swa=plain,decode=decoder"}, specs, 0), "FAST_ATTN,DECODER");
  EXPECT_EQ(chosen({.backend = "swa=plain,decode=decoder"}, specs, 1), "PLAIN,PLAIN");
}

TEST_F(Select, TheReasonOfOneKindNamesItAndAFlagForIt) {
  EXPECT_EQ(refusal({.backend = "fast"}, {llama_spec(), window_spec()}),
            "Selected backend FAST_ATTN is not valid for this configuration. Reason: ['sliding window not "
            "supported']. Layers: sliding_window. Fix: -ac.backend_per_kind.sliding_window=PLAIN: serves it "
            "here.");
}

TEST_F(Select, EncoderLayersOnlyPrefill) {
  const auto s = choose({}, {encoder_spec()});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].decode.backend, plain);
  EXPECT_EQ(explain(*s), "prefill: PLAIN (automatic: the only one that serves this model on cpu)");
  EXPECT_THAT(refusal({.backend = "decoder"}, {encoder_spec()}), HasSubstr("'prefill not supported'"));
}

TEST_F(Select, ADecodeOnlyBackendNamedAloneTakesItsPartner) {
  EXPECT_EQ(
      refusal({.backend = "decoder"}),
      "Selected backend DECODER is not valid for this configuration. Reason: ['prefill not supported']. "
      "Fix: --prefill-attention-backend FAST_ATTN: serves it here.");
  decoder->prefill_partner = "PLAIN";
  EXPECT_EQ(chosen({.backend = "decoder"}), "PLAIN,DECODER");
  EXPECT_EQ(chosen({.backend = "auto", .decode_backend = "decoder"}), "PLAIN,DECODER");
  EXPECT_EQ(chosen({.backend = "fast", .decode_backend = "decoder"}), "FAST_ATTN,DECODER");
}

TEST_F(Select, ANamedBackendThatCannotServeIsAnErrorWithEveryReason) {
  AttentionSpec spec = llama_spec();
  spec.head_dim = spec.v_head_dim = 300;
  spec.dtype = DType::f16;
  spec.has_sink = true;
  plain->capability.head_dims = plain->capability.v_head_dims = IntSet::any();
  EXPECT_EQ(
      refusal({.backend = "fast", .page_size = 40}, {spec}),
      "Selected backend FAST_ATTN is not valid for this configuration. Reason: ['head_size not supported', "
      "'dtype not supported', 'block_size not supported', 'attention sinks not supported']. Fix: the model "
      "has 300; FAST_ATTN takes multiples of 8 from 16 to 256; --attention-backend PLAIN --dtype bfloat16: "
      "serves it here.");
}

TEST_F(Select, AnAbsentBackendIsRefusedAndOthersNamed) {
  EXPECT_EQ(refusal({.backend = "gpu"}),
            "Selected backend GPU_ATTN is not valid for this configuration. Reason: ['compute capability not "
            "supported']. Fix: it needs a cuda device of compute capability 9.0 or later, this one is cpu; "
            "--attention-backend FAST_ATTN: serves it here. This build has: FAST_ATTN, PLAIN, DECODER.");
  device = cuda(90);
  EXPECT_EQ(
      refusal({.backend = "gpu"}),
      "Selected backend GPU_ATTN is not valid for this configuration. Reason: ['not in this build: its CUDA "
      "kernels are not written yet']. Fix: FAST_ATTN serves it on cpu. This build has: FAST_ATTN, PLAIN, "
      "DECODER.");
  EXPECT_THAT(refusal({.prefill_backend = "decoder"}), HasSubstr("'prefill not supported']"));
}

TEST_F(Select, NothingValidListsEveryBackend) {
  AttentionSpec spec = window_spec();
  spec.dtype = DType::f16;
  EXPECT_EQ(
      refusal({}, {spec}),
      "No valid attention backend found for cpu with AttentionSelectorConfig(head_size=64, dtype=float16, "
      "kv_cache_dtype=auto, block_size=None, use_mla=False, has_sink=False, use_sparse=False, "
      "use_mm_prefix=False, use_per_head_quant_scales=False, attn_type=decoder, has_sliding_window=True, "
      "use_non_causal=False, use_batch_invariant=False, use_kv_connector=False, use_pcp=False, "
      "use_adaptive_verification=False, use_dcp=False). Reasons: {FAST_ATTN: ['dtype not supported', "
      "'sliding window not supported'], PLAIN: ['dtype not supported'], DECODER: ['dtype not supported', "
      "'sliding window not supported', 'prefill not supported']}. Fix for PLAIN: --dtype bfloat16: it takes "
      "float32, bfloat16.");
  device = cuda(90);
  EXPECT_THAT(refusal({}, {spec}), HasSubstr("No valid attention backend found for cuda 9.0 with"));
}

TEST_F(Select, MessagesAreOneLine) {
  AttentionSpec spec = llama_spec();
  spec.dtype = DType::f16;
  for (const std::string& message : {refusal({}, {spec}), refusal({.backend = "gpu"}),
                                     refusal({.backend = "x"}), refusal({.page_size = 0})})
    EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST_F(Select, ConsiderAnswersWhereSelectRefuses) {
  device = cuda(90);
  const Selection s = considered({.backend = "gpu"});
  const PhaseSelection& decode = s.kinds[0].decode;
  EXPECT_EQ(decode.backend, nullptr);
  EXPECT_EQ(decode.if_built, gpu);
  EXPECT_THAT(decode.error.message, HasSubstr("Selected backend GPU_ATTN is not valid"));
  EXPECT_EQ(s.page_size, 0);
  EXPECT_FALSE(s.complete());
  AttentionSpec spec = window_spec();
  EXPECT_EQ(considered({.backend = "gpu"}, {spec}).kinds[0].decode.if_built, nullptr)
      << "its kernels are not all that lacks";
}

TEST_F(Select, ASettingIsAskedOfEveryBackend) {
  EXPECT_THAT(refusal({.backend = "fast", .use_non_causal = true}),
              HasSubstr("['non-causal attention not supported']"));
  EXPECT_EQ(chosen({.use_non_causal = true}), "PLAIN,PLAIN");
  EXPECT_EQ(chosen({.use_non_causal = false}), "FAST_ATTN,FAST_ATTN");
  EXPECT_THAT(refusal({.backend = "fast", .batch_invariant = true}),
              HasSubstr("['batch invariance not supported']"));
  plain->capability.invariance = {Invariance::batch};
  EXPECT_EQ(chosen({.batch_invariant = true}), "PLAIN,PLAIN");
  EXPECT_EQ(chosen({.batch_invariant = false}), "FAST_ATTN,FAST_ATTN");
}

TEST_F(Select, ASpecThatMeansNothingIsRefused) {
  AttentionSpec spec = llama_spec();
  spec.num_heads = 5;
  EXPECT_THAT(refusal({}, {spec}), HasSubstr("must be a positive multiple of num_kv_heads 2"));
  spec = llama_spec();
  spec.scale = 0;
  EXPECT_THAT(refusal({}, {spec}), HasSubstr("scale"));
  spec = llama_spec();
  spec.mask.packed = true;
  EXPECT_THAT(refusal({}, {spec}), HasSubstr("packed mask replaces the causal one"));
  EXPECT_FALSE(choose({}, {}).ok());
  EXPECT_THAT(refusal({.flash_attn_version = 5}),
              HasSubstr("flash_attn_version is 5; FlashAttention has the versions"));
}

class SelectOnCuda : public CudaSelectTest {};

TEST_F(SelectOnCuda, AutomaticOrderIsTheDevices) {
  EXPECT_EQ(chosen({}), "FLASH_ATTN (FA3),FLASH_ATTN (FA3)");
  device = cuda(80);
  EXPECT_EQ(chosen({}), "FLASH_ATTN (FA2),FLASH_ATTN (FA2)");
  device = cuda(100);
  EXPECT_EQ(chosen({}), "FLASHINFER (TRTLLM),FLASHINFER (TRTLLM)");
}

TEST_F(SelectOnCuda, OtherVersionsThatAreBuiltComeAfterThePriorities) {
  std::vector<std::string> order;
  Selection s = considered({});
  for (const Candidate& c : s.kinds[0].prefill.candidates)
    order.push_back(c.backend->label());
  ASSERT_GE(order.size(), 4u);
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 5),
              ElementsAre("FLASH_ATTN (FA3)", "FLASHINFER (Native)", "FLASHINFER (TRTLLM)",
                          "FLASHINFER (XQA)", "FLASH_ATTN (FA2)"));
  s = considered({.flash_attn_version = 3});
  for (const Candidate& c : s.kinds[0].prefill.candidates)
    EXPECT_NE(c.backend->label(), "FLASH_ATTN (FA2)") << "the user asked for another";
}

TEST_F(SelectOnCuda, AVersionForAnotherDeviceNamesTheOneForThis) {
  EXPECT_EQ(
      refusal({.backend = "fa4"}),
      "Selected backend FLASH_ATTN is not valid for this configuration. Reason: ['compute capability not "
      "supported']. Fix: it needs a cuda device of compute capability 10.0 or later, this one is cuda "
      "9.0; --attention-backend fa2: FA2 is for this device; --attention-backend FLASH_ATTN: serves it "
      "here.");
  device = cuda(80);
  EXPECT_THAT(
      refusal({.backend = "FLASHINFER", .use_trtllm_attention = true}),
      HasSubstr("Reason: ['compute capability not supported']. Fix: it needs a cuda device of compute "
                "capability 10.0 to 10.9, this one is cuda 8.0; --attention-backend FLASHINFER "
                "-ac.use_trtllm_attention=0: Native is for this device"));
}

TEST_F(SelectOnCuda, AnMlaFamilysNameOnAModelWithoutMlaIsRefused) {
  EXPECT_THAT(refusal({.backend = "FLASH_ATTN_MLA"}), HasSubstr("'non-MLA not supported'"));
  EXPECT_THAT(
      refusal({.backend = "FLASH_ATTN"}, {mla_spec()}),
      HasSubstr("Reason: ['MLA not supported']. Fix: --attention-backend FLASH_ATTN_MLA: serves it here"));
  EXPECT_THAT(
      explain(*choose({.backend = "fa3"}, {mla_spec()})),
      HasSubstr("decode: FLASH_ATTN_MLA (given: AttentionConfig::backend fa3, on an MLA model that is "
                "FLASH_ATTN_MLA)"));
}

}  // namespace
}  // namespace fovea
