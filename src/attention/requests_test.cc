#include "attention/requests.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

class RequestsTest : public CpuSelectTest {
 protected:
  /// The requested "prefill/decode" of `kind`, "-" = automatic; or the error.
  std::string asked(const AttentionConfig& config, LayerKind kind = LayerKind::full) {
    const auto r = Requests::read(config, kinds, registry.get());
    if (!r) return r.error().message;
    const auto name = [&](Phase phase) {
      const std::string& given = r->of(kind, phase).name;
      return given.empty() ? std::string("-") : given;
    };
    return name(Phase::prefill) + "/" + name(Phase::decode);
  }
  std::vector<LayerKind> kinds = {LayerKind::full, LayerKind::sliding_window};
};
constexpr LayerKind kWindow = LayerKind::sliding_window;

TEST_F(RequestsTest, NamesAutoAndPairs) {
  EXPECT_EQ(asked({}), "-/-");
  EXPECT_EQ(asked({.backend = "Auto"}), "-/-");
  EXPECT_EQ(asked({.backend = " fa "}), "fa/fa");
  EXPECT_EQ(asked({.backend = "fa, plain"}), "fa/plain");
  EXPECT_EQ(asked({.backend = "fa", .decode_backend = "plain"}), "fa/plain");
  EXPECT_EQ(asked({.backend = "fa", .decode_backend = "auto"}), "fa/-");
  EXPECT_EQ(asked({.decode_backend = "plain"}), "-/plain");
  EXPECT_EQ(asked({.backend = "fa,plain", .decode_backend = "torch_plain"}), "fa/torch_plain")
      << "the same backend under another name";
  EXPECT_EQ(asked({.backend = AttentionBackendEnum::FLASH_ATTN}), "FLASH_ATTN/FLASH_ATTN");
}

TEST_F(RequestsTest, BadPairs) {
  EXPECT_EQ(asked({.backend = "fa,fa,fa"}),
            "attention backend 'fa,fa,fa' has more than one comma; a pair is 'PREFILL,DECODE'");
  EXPECT_THAT(asked({.backend = "fa,"}), HasSubstr("has no decode half"));
  EXPECT_THAT(asked({.backend = " ,fa"}), HasSubstr("has no prefill half"));
  EXPECT_THAT(asked({.backend = "auto,fa"}), HasSubstr("'auto' in a pair"));
  EXPECT_THAT(asked({.backend = "fa,auto"}), HasSubstr("'auto' in a pair"));
  EXPECT_THAT(asked({.prefill_backend = "fa,plain"}), HasSubstr("must be one name"));
  EXPECT_THAT(asked({.decode_backend = "swa=fa"}), HasSubstr("must be one name"));
}

TEST_F(RequestsTest, ThePhasesFlagMustNotContradictAPair) {
  EXPECT_EQ(asked({.backend = "fa,plain",
                   .prefill_backend = "plain",
                   .sources = {{"backend", "--attn"}, {"prefill_backend", "--prefill-attention-backend"}}}),
            "--prefill-attention-backend 'plain' contradicts --attn 'fa,plain'; give only one of them");
  EXPECT_THAT(asked({.backend = "decode=fa", .decode_backend = "plain"}), HasSubstr("contradicts"));
  EXPECT_EQ(asked({.backend = "decode=fa", .prefill_backend = "plain"}), "plain/fa");
}

TEST_F(RequestsTest, EqualHalvesCollapseWithANote) {
  const auto r = Requests::read({.backend = "fa,FAST_ATTN"}, kinds, registry.get());
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->of(LayerKind::full, Phase::decode).note, "P/D attention backends are the same: FAST_ATTN");
  EXPECT_FALSE(r->of(LayerKind::full, Phase::decode).of_phase);
}

TEST_F(RequestsTest, ListsOfPhasesAndKinds) {
  const AttentionConfig list = {.backend = "prefill=fa, decode=decoder,swa=plain"};
  EXPECT_EQ(asked(list), "fa/decoder");
  EXPECT_EQ(asked(list, kWindow), "plain/plain");
  EXPECT_EQ(asked({.backend = "swa.decode=plain,swa=fa"}, kWindow), "fa/plain");
  EXPECT_EQ(asked({.backend = "decode=fa,sliding_window.prefill=plain"}, kWindow), "plain/fa");
  EXPECT_EQ(asked({.backend = "decode=fa,swa=auto"}, kWindow), "-/-");
}

TEST_F(RequestsTest, BackendPerKindWinsForItsLayers) {
  AttentionConfig config = {.backend = "fa", .backend_per_kind = {{kWindow, "plain"}}};
  EXPECT_EQ(asked(config), "fa/fa");
  EXPECT_EQ(asked(config, kWindow), "plain/plain");
  config.decode_backend = "decoder";
  EXPECT_EQ(asked(config), "fa/decoder");
  EXPECT_EQ(asked(config, kWindow), "plain/plain");
  config.backend_per_kind[kWindow] = "fa,plain";
  EXPECT_EQ(asked(config, kWindow), "fa/plain");
  config.backend_per_kind[kWindow] = AttentionBackendEnum::CPU_ATTN;
  EXPECT_EQ(asked(config, kWindow), "CPU_ATTN/CPU_ATTN");
  config.backend_per_kind[kWindow] = "auto";
  EXPECT_EQ(asked(config, kWindow), "-/-");
}

TEST_F(RequestsTest, ListsThatMeanNothing) {
  EXPECT_THAT(asked({.backend = "fa,decode=plain"}), HasSubstr("mixes KEY=NAME with 'fa'"));
  EXPECT_THAT(asked({.backend = "prefill=fa,prefill=fa"}), HasSubstr("has prefill twice"));
  EXPECT_THAT(asked({.backend = "swa=fa,sliding_window=fa"}), HasSubstr("has sliding_window twice"));
  EXPECT_THAT(asked({.backend = "swa="}), HasSubstr("one name after one '='"));
  EXPECT_THAT(asked({.backend = "swa=fa=fi"}), HasSubstr("one name after one '='"));
  EXPECT_EQ(asked({.backend = "sw=fa"}),
            "Unknown KV cache group kind 'sw' in AttentionConfig::backend. Valid kinds are: full, "
            "sliding_window, chunked_local, mla, sparse_mla, cross, encoder, linear");
  EXPECT_THAT(asked({.backend = "swa.verify=fa"}), HasSubstr("use KIND.prefill or KIND.decode"));
  EXPECT_THAT(asked({.backend_per_kind = {{kWindow, "prefill=fa"}}}),
              HasSubstr("must be a name, auto or a pair"));
}

TEST_F(RequestsTest, KeysOfThingsThatDoNotRunAreRefusedByName) {
  EXPECT_THAT(asked({.backend = "verify=fi"}), HasSubstr("speculative decoding is not supported"));
  EXPECT_THAT(asked({.backend = "draft=fa"}), HasSubstr("no draft model"));
  EXPECT_THAT(asked({.backend = "prefill=fa,vit=triton"}), HasSubstr("no vision tower"));
}

TEST_F(RequestsTest, AKindThatTheModelLacksIsAnError) {
  EXPECT_EQ(asked({.backend = "mla=fa", .sources = {{"backend", "--attn"}}}),
            "--attn names a backend for mla layers, but this model has none; its layer kinds are: full, "
            "sliding_window");
  EXPECT_THAT(asked({.backend_per_kind = {{LayerKind::cross, "fa"}}}), HasSubstr("for cross layers"));
}

TEST_F(RequestsTest, AKindIsSetInOnePlace) {
  EXPECT_THAT(asked({.backend = "swa=fa", .backend_per_kind = {{kWindow, "plain"}}}),
              HasSubstr("contradicts"));
  EXPECT_THAT(asked({.backend = "swa.decode=fa", .backend_per_kind = {{kWindow, "plain"}}}),
              HasSubstr("'sliding_window=plain' contradicts AttentionConfig::backend 'swa.decode=fa'"));
  EXPECT_EQ(asked({.backend = "swa=fa", .backend_per_kind = {{kWindow, "fast"}}}, kWindow), "fast/fast");
}

}  // namespace
}  // namespace fovea
