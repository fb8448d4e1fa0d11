// Selection among the built-in rows for models like those of the documentation, on every class of devices.
#include "attention/select_test_support.h"
#include "builtin/project_backends.h"
#include "device/gpu.h"

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

AttentionSpec gpt_oss() {
  AttentionSpec spec = llama_8b_spec();
  spec.num_heads = 64;
  spec.head_dim = spec.v_head_dim = 64;
  spec.has_sink = true;
  return spec;
}

AttentionSpec deepseek_sparse() {
  AttentionSpec spec = mla_spec();
  spec.use_sparse = true;
  return spec;
}

Selection on(const char* device, const AttentionSpec& spec, const AttentionConfig& config = {}) {
  const auto s = consider(config, {&spec, 1}, *parse_device(device), project_backends());
  EXPECT_TRUE(s.ok()) << s.error().message;
  return s.ok() ? *s : Selection{};
}

/// "PREFILL,DECODE" of the backends that serve or would serve if they were built; "none" where none does.
std::string choice(const char* device, const AttentionSpec& spec, const AttentionConfig& config = {}) {
  const Selection s = on(device, spec, config);
  const auto label = [](const PhaseSelection& p) {
    if (p.backend != nullptr) return p.backend->label();
    return p.if_built == nullptr ? std::string("none") : p.if_built->label();
  };
  return s.kinds.empty() ? "" : label(s.kinds[0].prefill) + "," + label(s.kinds[0].decode);
}

std::string refusal(const char* device, const AttentionSpec& spec, const AttentionConfig& config) {
  const auto s = select(config, spec, *parse_device(device), project_backends());
  return s ? "accepted" : s.error().message;
}

TEST(Builtin, AutomaticChoiceOnACpu) {
  const auto s = select({}, llama_spec(), {}, project_backends());
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(explain(*s),
            "prefill: CPU_ATTN (automatic: first of CPU_ATTN, TORCH_NATIVE, FLEX_ATTENTION (CPU) that serves "
            "this model "
            "on cpu)\n"
            "decode: CPU_ATTN (automatic: first of CPU_ATTN, TORCH_NATIVE, FLEX_ATTENTION (CPU) that serves "
            "this model "
            "on cpu)");
  EXPECT_EQ(s->page_size, 16);
  EXPECT_EQ(choice("cpu", gpt_oss()), "CPU_ATTN,CPU_ATTN");
  EXPECT_EQ(choice("cpu", encoder_spec()), "CPU_ATTN,CPU_ATTN");
}

TEST(Builtin, MlaOnACpuIsAbsorbedInBothPhases) {
  EXPECT_EQ(choice("cpu", mla_spec()), "CPU_MLA,CPU_MLA");
  for (const char* family : {"cpu", "intel_amx"})
    EXPECT_EQ(choice("cpu", mla_spec(), {.backend = family}), "CPU_MLA,CPU_MLA") << family;
  EXPECT_EQ(choice("cpu", mla_spec(), {.backend = "torch_native"}), "TORCH_NATIVE_MLA,TORCH_NATIVE_MLA");
  EXPECT_EQ(choice("cpu", mla_spec(), {.backend = "torch_native,CPU_MLA"}), "TORCH_NATIVE_MLA,CPU_MLA");
  for (const char* decode : {"CPU_MLA", "TORCH_NATIVE_MLA", ""})
    EXPECT_EQ(choice("cpu", mla_spec(), {.backend = decode, .mla_prefill_backend = "CPU_ATTN"}),
              std::string("CPU_ATTN,") + (*decode == '\0' ? "CPU_MLA" : decode));
  AttentionSpec spec = mla_spec();
  spec.mla_v_head_dim = 12;
  EXPECT_THAT(refusal("cpu", spec, {.mla_prefill_backend = "CPU_ATTN"}),
              HasSubstr("head_size not supported"));
  spec = mla_spec();
  spec.mask.causal = false;
  EXPECT_THAT(refusal("cpu", spec, {.mla_prefill_backend = "CPU_ATTN"}),
              HasSubstr("non-causal attention not supported"));
  spec = mla_spec();
  spec.kv_dtype = KvCacheDType::fp8_e4m3;
  spec.page_size = 7;
  spec.needs = {Feature::verify};
  EXPECT_EQ(choice("cpu", spec), "CPU_MLA,CPU_MLA");
  EXPECT_EQ(choice("cpu", deepseek_sparse()), "CPU_MLA_SPARSE,CPU_MLA_SPARSE");
  EXPECT_EQ(choice("cpu", deepseek_sparse(), {.backend = "cpu"}), "CPU_MLA_SPARSE,CPU_MLA_SPARSE");
  EXPECT_EQ(choice("cpu", deepseek_sparse(), {.backend = "torch_native"}),
            "TORCH_NATIVE_MLA_SPARSE,TORCH_NATIVE_MLA_SPARSE");
  EXPECT_THAT(refusal("cpu", deepseek_sparse(), {.backend = "CPU_MLA"}), HasSubstr("sparse not supported"));
  EXPECT_THAT(refusal("cpu", mla_spec(), {.backend = "CPU_MLA_SPARSE"}),
              HasSubstr("non-sparse not supported"));
  EXPECT_THAT(refusal("cpu", mla_spec(), {.backend = "CPU_ATTN"}),
              HasSubstr("from 16 to 512; --attention-backend CPU_MLA: serves it here"));
  EXPECT_THAT(refusal("cpu", llama_spec(), {.backend = "CPU_MLA"}),
              HasSubstr("Reason: ['non-MLA not supported']. Fix: --attention-backend CPU_ATTN"));
  EXPECT_THAT(refusal("cpu", mla_spec(), {.mla_prefill_backend = "FLASH_ATTN"}),
              HasSubstr("compute capability not supported"));
  EXPECT_THAT(refusal("sm90", mla_spec(), {.backend = "CPU_MLA"}), HasSubstr("it needs a cpu device"));
}

TEST(Builtin, FirstChoiceByDevice) {
  for (const char* device : {"sm80", "sm120"})
    EXPECT_EQ(choice(device, llama_8b_spec()), "FLASH_ATTN (FA2),FLASH_ATTN (FA2)") << device;
  EXPECT_EQ(choice("sm90", llama_8b_spec()), "FLASH_ATTN (FA3),FLASH_ATTN (FA3)");
  EXPECT_EQ(choice("sm100", llama_8b_spec()), "FLASHINFER (Native),FLASHINFER (Native)");
  EXPECT_EQ(choice("sm100", gpt_oss()), "FLASHINFER (Native),FLASHINFER (Native)");
  EXPECT_EQ(choice("rocm", llama_8b_spec()), "ROCM_ATTN,ROCM_ATTN");
  EXPECT_EQ(choice("sm80", mla_spec()), "FLASH_ATTN (FA2),FLASHINFER_MLA");
  EXPECT_EQ(choice("sm90", mla_spec()), "FLASH_ATTN (FA3),FLASH_ATTN_MLA");
  EXPECT_EQ(choice("sm100", mla_spec()), "FLASH_ATTN (FA2),FLASHINFER_MLA") << "TRTLLM_RAGGED is not built";
  EXPECT_EQ(choice("sm90", deepseek_sparse()), "FLASHMLA_SPARSE,FLASHMLA_SPARSE");
  for (const char* device : {"sm80", "sm86", "sm89"})
    EXPECT_EQ(choice(device, deepseek_sparse()), "FLASHINFER_MLA_SPARSE,FLASHINFER_MLA_SPARSE") << device;
  EXPECT_EQ(choice("sm90", deepseek_sparse(), {.backend = "flashinfer"}),
            "FLASHINFER_MLA_SPARSE,FLASHINFER_MLA_SPARSE");
}

TEST(Builtin, HeadsThatAreNotAbsorbedArePrefilledByFlashAttention) {
  const AttentionConfig second = {.flash_attn_version = 2};
  EXPECT_EQ(choice("sm90", mla_spec(), second), "FLASH_ATTN (FA2),FLASH_ATTN_MLA");
  EXPECT_EQ(choice("sm90", mla_spec(), {.mla_prefill_backend = "flash_attn"}),
            "FLASH_ATTN (FA3),FLASH_ATTN_MLA");
  EXPECT_THAT(refusal("sm90", mla_spec(), {.mla_prefill_backend = "CUDNN"}),
              HasSubstr("-ac.mla_prefill_backend=FLASH_ATTN: serves it here"));
  AttentionSpec glm = mla_spec();  // GLM-5's heads
  glm.mla_nope_head_dim = 192, glm.mla_v_head_dim = 256;
  EXPECT_EQ(choice("sm90", glm), "FLASH_ATTN (FA3),FLASH_ATTN_MLA");
  AttentionSpec wide = mla_spec();
  wide.mla_v_head_dim = 640;
  EXPECT_THAT(refusal("sm90", wide, {}),
              HasSubstr("head sizes are 192 and 640; the sm80 kernels take up to 512"));
}

/// "VALUE from SOURCE" of a resolved value.
std::string value_of(const Selection& s, std::string_view key) {
  for (const ResolvedValue& value : s.resolved)
    if (value.key == key) return value.value + " from " + value.from;
  return "-";
}

TEST(Builtin, ABuiltVersionStandsInForOneThatIsNotAndSaysSo) {
  const Selection automatic = on("sm100", llama_8b_spec());
  const PhaseSelection& decode = automatic.kinds.at(0).decode;
  EXPECT_EQ(decode.candidates.at(0).backend->label(), "FLASHINFER (TRTLLM)");
  EXPECT_THAT(decode.candidates.at(0).reasons.at(0).text, HasSubstr("not in this build: "));
  EXPECT_EQ(decode.candidates.at(1).backend, decode.backend);
  EXPECT_EQ(decode.backend->label(), "FLASHINFER (Native)");
  EXPECT_EQ(value_of(automatic, "use_trtllm_attention"), "0 from FLASHINFER (TRTLLM) is not in this build");

  for (const char* name : {"FLASHINFER", "fi"}) {
    const Selection named = on("sm100", llama_8b_spec(), {.backend = name});
    const std::string why = " (given: AttentionConfig::backend " + std::string(name) +
                            ", FLASHINFER (TRTLLM) is not in this build)";
    EXPECT_EQ(explain(named), "prefill: FLASHINFER (Native)" + why + "\ndecode: FLASHINFER (Native)" + why);
  }
  EXPECT_THAT(refusal("sm100", llama_8b_spec(), {.backend = "fa4"}), HasSubstr("['not in this build: "));
}

TEST(Builtin, FlashAttentionOnHopperIsVersion3UnlessItIsPinned) {
  const std::string second = "FLASH_ATTN (FA2),FLASH_ATTN (FA2)", third = "FLASH_ATTN (FA3),FLASH_ATTN (FA3)";
  for (const char* name : {"auto", "FLASH_ATTN", "fa", "fa3"})
    EXPECT_EQ(choice("sm90", llama_8b_spec(), {.backend = name}), third) << name;
  EXPECT_EQ(choice("sm90", llama_8b_spec(), {.backend = "fa2"}), second);
  EXPECT_EQ(choice("sm90", llama_8b_spec(), {.flash_attn_version = 2}), second);
  EXPECT_EQ(choice("sm90", llama_8b_spec(), {.backend = "fa", .flash_attn_version = 2}), second);
  AttentionSpec alibi = llama_8b_spec();
  alibi.has_alibi = true;
  EXPECT_EQ(choice("sm90", alibi), second);
  EXPECT_THAT(refusal("sm90", alibi, {.backend = "fa3"}), HasSubstr("ALiBi"));
  EXPECT_EQ(value_of(on("sm90", llama_8b_spec()), "flash_attn_version"),
            "3 from default: 3 on compute capability 9.x (2 with ALiBi), 2 elsewhere");
  EXPECT_THAT(refusal("sm80", llama_8b_spec(), {.backend = "fa3"}),
              HasSubstr("compute capability not supported"));
}

TEST(Builtin, WhichKernelsServeVersion3IsTold) {
  const Selection plain = on("sm90", llama_8b_spec());
  EXPECT_EQ(value_of(plain, "full.prefill.kernels"), "sm90 from Hopper's own instructions");
  EXPECT_EQ(value_of(plain, "full.decode.kernels"),
            "sm90 from Hopper's own instructions; limits of few sequences may take sm80's");
  AttentionSpec spans = llama_8b_spec();
  spans.mask.spans = true;
  EXPECT_EQ(value_of(on("sm90", spans), "full.prefill.kernels"),
            "sm80 from the sm90 prefill kernels have no spans");
  AttentionSpec narrow = llama_8b_spec();
  narrow.kv_dtype = KvCacheDType::fp8_e5m2;
  EXPECT_EQ(value_of(on("sm90", narrow), "full.prefill.kernels"), "sm90 from Hopper's own instructions");
  EXPECT_EQ(value_of(on("sm90", narrow), "full.decode.kernels"),
            "sm80 from the sm90 decode kernels read no KV cache of fp8_e5m2");
  EXPECT_EQ(value_of(on("sm90", llama_8b_spec(), {.backend = "fa2"}), "full.prefill.kernels"), "-")
      << "it has one family";
  EXPECT_THAT(explain_in_full(plain), HasSubstr("  full.decode.kernels = sm90 ("));
}

TEST(Builtin, FamiliesOnAnMlaModel) {
  EXPECT_EQ(choice("sm90", mla_spec(), {.backend = "fa3"}), "FLASH_ATTN (FA3),FLASH_ATTN_MLA");
  EXPECT_EQ(choice("sm90", mla_spec(), {.backend = "triton"}), "FLASH_ATTN (FA3),TRITON_MLA");
  EXPECT_EQ(choice("sm90", mla_spec(), {.backend = "flashmla"}), "FLASH_ATTN (FA3),FLASHMLA");
  EXPECT_EQ(choice("sm100", mla_spec(), {.backend = "flashinfer"}), "FLASH_ATTN (FA2),FLASHINFER_MLA");
  EXPECT_EQ(choice("sm100", mla_spec(), {.backend = "trtllm_mla"}), "FLASHINFER_MLA,TRTLLM_MLA");
}

TEST(Builtin, EverySiblingAndPartnerIsRegisteredAndFit) {
  const BackendRegistry& r = project_backends();
  for (const auto& entry : r.entries()) {
    const BackendInfo& info = *entry.info;
    if (!info.mla_sibling.empty()) {
      ASSERT_NE(r.find(info.mla_sibling), nullptr) << info.label();
      EXPECT_TRUE(r.find(info.mla_sibling)->info->capability.features.has(Feature::mla)) << info.label();
    }
    if (info.prefill_partner.empty()) continue;
    EXPECT_FALSE(info.capability.phases.has(Phase::prefill)) << info.label();
    ASSERT_NE(r.find(info.prefill_partner), nullptr) << info.label();
    EXPECT_TRUE(r.find(info.prefill_partner)->info->capability.phases.has(Phase::prefill)) << info.label();
  }
}

TEST(Builtin, EveryExactNameResolvesToItself) {
  const BackendRegistry& r = project_backends();
  const std::string_view names[] = {
#define FOVEA_NAME(name) #name,
      FOVEA_ATTENTION_BACKENDS(FOVEA_NAME)
#undef FOVEA_NAME
  };
  for (std::string_view name : names) {
    if (name == "CUSTOM") continue;  // registered by users
    ASSERT_NE(r.find(name), nullptr) << name;
    EXPECT_EQ(r.find(name)->info->name, name);
  }
  EXPECT_THAT(refusal("cpu", llama_8b_spec(), {.backend = AttentionBackendEnum::CUSTOM}),
              HasSubstr("must be registered before use"));
}

TEST(Builtin, AWrongDeviceAndARightOneWithoutKernels) {
  EXPECT_THAT(
      refusal("cpu", llama_8b_spec(), {.backend = "fa4"}),
      AllOf(HasSubstr("Selected backend FLASH_ATTN is not valid for this configuration. Reason: ['compute "
                      "capability not supported']"),
            HasSubstr("--attention-backend CPU_ATTN: serves it here"), HasSubstr("This build has: "),
            Not(HasSubstr("not in this build"))));
  EXPECT_THAT(refusal("cpu", mla_spec(), {.backend = "FLASHMLA"}),
              HasSubstr("compute capability not supported"));
  EXPECT_THAT(refusal("rocm", llama_8b_spec(), {.backend = "aiter"}), HasSubstr("['not in this build: "));
  EXPECT_THAT(refusal("sm100", mla_spec(), {.backend = "cutlass_mla"}), HasSubstr("['not in this build: "));
}

TEST(Builtin, MiniSglangsPageSizesAreServed) {
  for (const char* device : {"sm80", "sm90"}) {
    const std::string fa = device == std::string("sm90") ? "FLASH_ATTN (FA3)" : "FLASH_ATTN (FA2)",
                      fi = "FLASHINFER (Native)";
    const std::pair<AttentionConfig, std::string> configs[] = {
        {{.backend = "fi", .page_size = 1}, fi + "," + fi},
        {{.backend = "fa", .page_size = 1}, fa + "," + fa},
        {{.backend = "fa,fi", .page_size = 1}, fa + "," + fi},
        {{.backend = "fa", .page_size = 16}, fa + "," + fa}};
    for (const auto& [config, backends] : configs) {
      EXPECT_EQ(choice(device, llama_8b_spec(), config), backends) << device;
      EXPECT_EQ(on(device, llama_8b_spec(), config).page_size, config.page_size) << device;
    }
  }
  EXPECT_THAT(refusal("sm100", llama_8b_spec(), {.backend = "trtllm", .page_size = 1}),
              HasSubstr("['block_size not supported', "));
}

TEST(Builtin, FlashInfersOwnKernelsOnBlackwellAreForTheAsking) {
  const std::string own = "FLASHINFER (Native),FLASHINFER (Native)";
  EXPECT_EQ(choice("sm100", llama_8b_spec(), {.backend = "FLASHINFER", .use_trtllm_attention = false}), own);
  EXPECT_EQ(choice("sm100", llama_8b_spec(), {.use_trtllm_attention = false}), own);
  for (const char* name : {"FLASHINFER", "fi", "flashinfer"}) {
    EXPECT_EQ(choice("sm100", llama_8b_spec(), {.backend = name}), own) << "TRT-LLM's are not built";
    EXPECT_EQ(choice("sm100", llama_8b_spec(), {.backend = name, .use_trtllm_attention = true}),
              "FLASHINFER (TRTLLM),FLASHINFER (TRTLLM)");
  }
  EXPECT_EQ(choice("sm120", llama_8b_spec(), {.backend = "fi"}), own);
}

TEST(Builtin, WhatABackendLacksComesBeforeItsKernels) {
  EXPECT_THAT(refusal("sm80", gpt_oss(), {.backend = "FLEX_ATTENTION"}),
              HasSubstr("Reason: ['attention sinks not supported', 'not in this build: "));
}

TEST(Builtin, AFixForTheDeviceNamesWhatTheOrderWouldChoose) {
  EXPECT_THAT(refusal("sm90", llama_8b_spec(), {.backend = "trtllm", .page_size = 16}),
              HasSubstr("this one is cuda 9.0; --attention-backend FLASH_ATTN: serves it here."));
  EXPECT_THAT(refusal("sm80", mla_spec(), {.backend = "FLASHMLA"}),
              HasSubstr("this one is cuda 8.0; --attention-backend FLASHINFER_MLA: serves it here."));
}

TEST(Builtin, AFixOfACombinationIsTrueForTheDevice) {
  const auto fixes = [](const char* device, const AttentionSpec& spec, const char* backend) {
    const Selection s = on(device, spec, {.backend = backend});
    std::string all;
    for (const Reason& r : s.kinds.at(0).decode.candidates.at(0).reasons)
      all += r.fix + "\n";
    return all;
  };
  AttentionSpec mixed = llama_8b_spec();
  mixed.kv_dtype = KvCacheDType::float16;
  EXPECT_THAT(fixes("sm90", mixed, "fa2"), HasSubstr("--kv-cache-dtype auto"));
  EXPECT_THAT(fixes("sm80", mla_spec(), "FLASH_ATTN_MLA"),
              HasSubstr("--attention-backend FLASHINFER_MLA: serves it here"));
}

TEST(Builtin, TheErrorOfAnAutomaticChoiceHasEveryAttentionOfAKind) {
  AttentionSpec two[] = {llama_8b_spec(), llama_8b_spec()};
  two[1].head_dim = two[1].v_head_dim = 512;
  const auto s = select({}, two, *parse_device("rocm"), project_backends());
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error().message, AllOf(HasSubstr("with AttentionSelectorConfig(head_size=128, "),
                                       HasSubstr(" and AttentionSelectorConfig(head_size=512, ")));
  EXPECT_THAT(refusal("rocm", llama_8b_spec(), {}), Not(HasSubstr(" and AttentionSelectorConfig")));
}

TEST(Builtin, ASilentDocumentIsNoYes) {
  const Selection wave = on("rocm", gpt_oss(), {.backend = "wave"});
  const PhaseSelection& decode = wave.kinds.at(0).decode;
  EXPECT_THAT(decode.error.message, HasSubstr("Reason: ['attention sinks: not documented', "));
  EXPECT_THAT(decode.unstated, ::testing::ElementsAre("attention sinks"));
  EXPECT_THAT(explain(wave), HasSubstr("WAVE if it were built, although its documentation does not state: "
                                       "attention sinks"));
  AttentionSpec spans = llama_8b_spec();
  spans.mask.spans = true;
  spans.dtype = DType::f32;
  for (std::string_view device : device_names())
    for (const AttentionSpec& spec : {gpt_oss(), spans})
      for (const auto& entry : project_backends().entries()) {
        const Selection s =
            on(std::string(device).c_str(), spec, {.backend = BackendName(std::string(entry.info->name))});
        for (const Candidate& c : s.kinds[0].decode.candidates)
          for (const Reason& r : c.reasons)
            EXPECT_THAT(r.fix, Not(HasSubstr("ASCEND supports it"))) << "not documented";
      }
}

TEST(Builtin, LinearLayersHaveBackendsOfTheirOwn) {
  AttentionSpec linear = llama_8b_spec();
  linear.linear = LinearAttention::gated_delta;
  const std::vector<AttentionSpec> hybrid = {llama_8b_spec(), linear};
  const auto considered = [&](const char* device, const AttentionConfig& config) {
    return consider(config, hybrid, *parse_device(device), project_backends());
  };
  for (const char* given : {"auto", "fa", "linear=GDN_ATTN", "prefill=fa,decode=fa,linear=gdn"}) {
    const auto s = considered("sm90", {.backend = given});
    ASSERT_TRUE(s.ok()) << s.error().message;
    ASSERT_EQ(s->kinds.size(), 2u);
    EXPECT_EQ(s->kinds[0].decode.backend->label(), "FLASH_ATTN (FA3)") << given;
    EXPECT_EQ(s->kinds[1].kind, LayerKind::linear);
    for (const PhaseSelection* phase : {&s->kinds[1].prefill, &s->kinds[1].decode}) {
      EXPECT_EQ(phase->backend, nullptr);
      ASSERT_NE(phase->if_built, nullptr) << given;
      EXPECT_EQ(phase->if_built->name, "GDN_ATTN") << given;
    }
    EXPECT_EQ(s->page_size, 16) << "of the layers with pages";
    EXPECT_FALSE(s->complete());
  }
  const auto other = considered("sm90", {.backend = "linear=LINEAR"});
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(other->kinds[1].decode.error.message,
              HasSubstr("'linear attention (gated delta rule) not supported'"));
  EXPECT_THAT(refusal("sm90", llama_8b_spec(), {.backend = "GDN_ATTN"}),
              HasSubstr("['softmax attention not supported', "));
  EXPECT_THAT(refusal("cpu", linear, {}),
              HasSubstr("CPU_ATTN: ['linear attention (gated delta rule) not supp"));
}

TEST(Builtin, UnknownNamesAreErrorsWhereverTheyStand) {
  const std::string unknown = "Unknown attention backend: 'nope'.";
  EXPECT_THAT(refusal("cpu", encoder_spec(), {.backend = "cpu_attn,nope"}), HasSubstr(unknown));
  EXPECT_THAT(refusal("cpu", encoder_spec(), {.decode_backend = "nope"}), HasSubstr(unknown));
  EXPECT_THAT(refusal("cpu", llama_spec(),
                      {.backend = "nope", .prefill_backend = "cpu_attn", .decode_backend = "cpu_attn"}),
              HasSubstr(unknown));
  EXPECT_THAT(refusal("cpu", llama_spec(), {.mla_prefill_backend = "nope"}),
              HasSubstr("Unknown MLA prefill backend: 'nope'"));
}

TEST(Builtin, NamesAreTakenInAnyLetterCase) {
  EXPECT_EQ(parse_device("SM90")->compute_capability, 90);
  EXPECT_EQ(parse_device("Rocm")->kind, DeviceKind::rocm);
  EXPECT_EQ(parse_layer_kind("SWA"), LayerKind::sliding_window);
  EXPECT_EQ(parse_layer_kind("Linear_Attention"), LayerKind::linear);
  EXPECT_EQ(parse_kv_layout("NHD"), KvLayout::nhd);
  EXPECT_EQ(choice("cpu", llama_spec(), {.backend = "FULL.Prefill=torch_native"}), "TORCH_NATIVE,CPU_ATTN");
}

TEST(Builtin, AFixGoesTogetherWithWhatIsSet) {
  EXPECT_THAT(refusal("sm80", llama_8b_spec(), {.backend = "fa3"}),
              AllOf(HasSubstr("--attention-backend FLASH_ATTN: serves it here"),
                    Not(HasSubstr("-ac.flash_attn_version"))));
  EXPECT_THAT(refusal("sm80", llama_8b_spec(), {.decode_backend = "fa3"}),
              HasSubstr("--decode-attention-backend FLASH_ATTN: serves it here"));
  EXPECT_THAT(refusal("sm80", llama_8b_spec(), {.backend = "prefill=fa2,decode=fa3"}),
              HasSubstr("--attention-backend prefill=fa2,decode=FLASH_ATTN: serves it here"));
  AttentionSpec cpu = llama_spec();
  EXPECT_THAT(refusal("cpu", cpu, {.backend = "fa", .page_size = 7}),
              AllOf(HasSubstr("--attention-backend CPU_ATTN: serves it here"), Not(HasSubstr("--dtype")),
                    Not(HasSubstr("--page-size"))));
  const auto s = consider({.backend = "fi", .page_size = 1}, std::vector{llama_8b_spec()},
                          *parse_device("sm100"), builtin_backends());
  ASSERT_TRUE(s.ok());
  const PhaseSelection& decode = s->kinds[0].decode;
  EXPECT_EQ((decode.backend != nullptr ? decode.backend : decode.if_built)->label(), "FLASHINFER (Native)");
}

TEST(Builtin, NamesOfThreeEngines) {
  const BackendRegistry& r = project_backends();
  const std::pair<const char*, const char*> expected[] = {
      {"torch_native", "TORCH_NATIVE"},
      {"torch_sdpa", "TORCH_NATIVE"},
      {"fa", "FLASH_ATTN"},
      {"fa2", "FLASH_ATTN"},
      {"fa3", "FLASH_ATTN"},
      {"fa4", "FLASH_ATTN"},
      {"flash_attn", "FLASH_ATTN"},
      {"fi", "FLASHINFER"},
      {"flashinfer", "FLASHINFER"},
      {"triton", "TRITON_ATTN"},
      {"flex_attention", "FLEX_ATTENTION"},
      {"trtllm", "TRTLLM_MHA"},
      {"trtllm_mha", "TRTLLM_MHA"},
      {"trtllm_mla", "TRTLLM_MLA"},
      {"flashmla", "FLASHMLA"},
      {"cutlass_mla", "CUTLASS_MLA"},
      {"tree_attn", "TREE_ATTN"},
      {"aiter", "ROCM_AITER_FA"},
      {"wave", "WAVE"},
      {"ascend", "ASCEND"},
  };
  for (const auto& [given, name] : expected) {
    ASSERT_NE(r.find(given), nullptr) << given;
    EXPECT_EQ(r.find(given)->info->name, name);
  }
}

TEST(Builtin, AProgramWithoutCudaNamesWhatItsCudaBackendsNeed) {
  if (cuda_built()) GTEST_SKIP() << "SKIPPED: this program has CUDA";
  const auto s = select({.backend = "fa"}, llama_8b_spec(), *parse_device("sm80"), builtin_backends());
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error().message,
              HasSubstr("['not in this build: this program was built without CUDA; build it with "
                        "FOVEA_BUILD_CUDA=1 ./run.sh']"));
  for (const auto& entry : builtin_backends().entries())
    EXPECT_TRUE(entry.info->capability.device != DeviceKind::cuda || !entry.create) << entry.info->label();
}

/// FlashAttention 3 reads packed pages by Hopper's kernels alone, which don't decode all that they prefill.
TEST(Builtin, PackedPagesAreServedInBothPhasesOrInNone) {
  for (const auto& [head_dim, v_head_dim, kv_dtype, served] :
       {std::tuple{128, 128, KvCacheDType::auto_, true}, std::tuple{64, 64, KvCacheDType::auto_, true},
        std::tuple{192, 128, KvCacheDType::auto_, false},
        std::tuple{128, 128, KvCacheDType::fp8_e4m3, false}}) {
    AttentionSpec spec = llama_8b_spec();
    spec.head_dim = head_dim, spec.v_head_dim = v_head_dim;
    spec.kv_dtype = kv_dtype;
    spec.kv_x_packed = true;
    const Selection s = on("sm90", spec, {.backend = "fa3"});
    for (const Phase phase : {Phase::prefill, Phase::decode})
      EXPECT_EQ(s.kinds.at(0).of(phase).backend != nullptr, served) << head_dim;
  }
}

TEST(Builtin, EveryRefusalHasAFixAndOneLine) {
  for (std::string_view device : device_names())
    for (const AttentionSpec& spec :
         {llama_8b_spec(), gpt_oss(), mla_spec(), deepseek_sparse(), encoder_spec()})
      for (const auto& entry : project_backends().entries()) {
        const Selection s =
            on(std::string(device).c_str(), spec, {.backend = BackendName(std::string(entry.info->name))});
        ASSERT_FALSE(s.kinds.empty());
        for (Phase phase : {Phase::prefill, Phase::decode})
          for (const Candidate& c : s.kinds[0].of(phase).candidates)
            for (const Reason& r : c.reasons) {
              EXPECT_FALSE(r.fix.empty()) << r.text;
              EXPECT_EQ((r.text + r.fix).find('\n'), std::string::npos) << r.text;
            }
      }
}

}  // namespace
}  // namespace fovea
