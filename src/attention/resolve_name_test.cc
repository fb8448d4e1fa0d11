#include "attention/resolve_name.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ResolveName : public CudaSelectTest {
 protected:
  /// The label of the row that a name means here; or the error.
  std::string meaning(const std::string& name, const AttentionSpec& spec = llama_spec()) {
    const SelectionContext context = {config, registry.get(), device, kind_of(spec), true, {&spec, 1}};
    const auto named = resolve_name(name, context);
    return named ? named->version.row->label() : named.error().message;
  }
  AttentionConfig config;
};

TEST_F(ResolveName, FlashAttentionIsVersion3OnHopperAnd2Elsewhere) {
  for (const char* name : {"FLASH_ATTN", "flash_attn", "fa"}) {
    device = cuda(90);
    EXPECT_EQ(meaning(name), "FLASH_ATTN (FA3)");
    for (int cc : {75, 80, 89, 100, 120}) {
      device = cuda(cc);
      EXPECT_EQ(meaning(name), "FLASH_ATTN (FA2)") << cc;
    }
    device = {};
    EXPECT_EQ(meaning(name), "FLASH_ATTN (FA2)");
  }
}

TEST_F(ResolveName, AnotherVersionIsPinnedByNameOrFlag) {
  EXPECT_EQ(meaning("fa2"), "FLASH_ATTN (FA2)");
  EXPECT_EQ(meaning("FA4"), "FLASH_ATTN (FA4)");
  device = cuda(80);
  EXPECT_EQ(meaning("fa3"), "FLASH_ATTN (FA3)");
  config.flash_attn_version = 4;
  EXPECT_EQ(meaning("fa"), "FLASH_ATTN (FA4)");
  EXPECT_EQ(meaning("fa4"), "FLASH_ATTN (FA4)");
  config.sources["flash_attn_version"] = "-ac.flash_attn_version";
  EXPECT_EQ(meaning("fa3"),
            "attention backend 'fa3' contradicts -ac.flash_attn_version 4; give only one of them");
}

TEST_F(ResolveName, AlibiTakesVersion2OnHopperUnlessPinned) {
  AttentionSpec spec = llama_spec();
  spec.has_alibi = true;
  EXPECT_EQ(meaning("fa", spec), "FLASH_ATTN (FA2)");
  EXPECT_EQ(meaning("fa3", spec), "FLASH_ATTN (FA3)");
}

TEST_F(ResolveName, AVersionThatABackendLacksIsAReason) {
  TestRegistry two;
  for (std::string_view version : {"FA2", "FA3"}) {
    BackendInfo info = backend_named("FLASH_ATTN", plain_capability());
    info.version = version;
    two.add(info);
  }
  const AttentionSpec spec = llama_spec();
  config.flash_attn_version = 4;
  const auto named =
      resolve_name("FLASH_ATTN", {config, two.get(), device, LayerKind::full, true, {&spec, 1}});
  ASSERT_TRUE(named.ok() && named->version.reason);
  EXPECT_EQ(named->version.reason->text, "FlashAttention version 4 not supported");
  EXPECT_EQ(named->version.reason->fix, "-ac.flash_attn_version=2|3: the versions of FLASH_ATTN");
}

TEST_F(ResolveName, FlashInferTakesTheKernelsOfTheDeviceOrTheFlag) {
  EXPECT_EQ(meaning("fi"), "FLASHINFER (Native)");
  device = cuda(100);
  EXPECT_EQ(meaning("FLASHINFER"), "FLASHINFER (TRTLLM)");
  config.use_trtllm_attention = false;
  EXPECT_EQ(meaning("FLASHINFER"), "FLASHINFER (Native)");
  config.use_trtllm_attention = true;
  device = cuda(90);
  EXPECT_EQ(meaning("FLASHINFER"), "FLASHINFER (XQA)");
  device = cuda(80);
  EXPECT_EQ(meaning("FLASHINFER"), "FLASHINFER (TRTLLM)") << "to be refused for its compute capability";
}

TEST_F(ResolveName, FamiliesMeanTheirMlaBackendOnAnMlaModelAndExactNamesNever) {
  for (const char* name : {"fa", "fa2", "fa3", "FA3"})
    EXPECT_EQ(meaning(name, mla_spec()), "FLASH_ATTN_MLA") << name;
  for (const char* name : {"fi", "flashinfer"})
    EXPECT_EQ(meaning(name, mla_spec()), "FLASHINFER_MLA") << name;
  EXPECT_EQ(meaning("FLASH_ATTN", mla_spec()), "FLASH_ATTN (FA3)");
  EXPECT_EQ(meaning("flash_attn", mla_spec()), "FLASH_ATTN (FA3)");
  EXPECT_EQ(meaning("FLASHINFER", mla_spec()), "FLASHINFER (Native)");
  EXPECT_EQ(meaning("FlashInfer", mla_spec()), "FLASHINFER (Native)");
  EXPECT_EQ(meaning("trtllm_mla", mla_spec()), "TRTLLM_MLA");
}

TEST_F(ResolveName, UnknownNamesGetTheOptionsAndTheNearest) {
  EXPECT_EQ(meaning("FLASH_ATN"),
            "Unknown attention backend: 'FLASH_ATN'. Valid options are: auto, FLASHINFER, FLASH_ATTN, "
            "FLASH_ATTN_MLA, FLASHINFER_MLA, TRTLLM_MLA. Did you mean 'FLASH_ATTN'?");
  for (const char* name : {"flash-attn", "FlashAttn", "flashattn"})
    EXPECT_THAT(meaning(name), HasSubstr("Did you mean 'FLASH_ATTN'?")) << name;
  EXPECT_THAT(meaning("flash-infer"), HasSubstr("Did you mean 'FLASHINFER'?"));
  EXPECT_THAT(meaning("nothing_like_it"), Not(HasSubstr("Did you mean")));
}

TEST_F(ResolveName, CustomMustBeRegistered) {
  EXPECT_THAT(meaning("custom"), HasSubstr("Backend CUSTOM must be registered before use. Use "));
  registry.add(backend_named("CUSTOM", plain_capability()));
  EXPECT_EQ(meaning("custom"), "CUSTOM");
}

TEST_F(ResolveName, SameBackend) {
  const auto same = [&](const char* a, const char* b) { return same_backend(a, b, registry.get()); };
  EXPECT_TRUE(same("fa", "FLASH_ATTN"));
  EXPECT_TRUE(same("", "auto"));
  EXPECT_TRUE(same("x", "X")) << "unknown, but spelt alike";
  EXPECT_FALSE(same("x", "y"));
  EXPECT_FALSE(same("fa", "auto"));
  EXPECT_FALSE(same("fa3", "fa4"));
  EXPECT_FALSE(same("fa", "fi"));
}

}  // namespace
}  // namespace fovea
