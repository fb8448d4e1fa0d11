#include "compat/launch/attention_keys.h"
#include "fovea/result.h"

#include <gmock/gmock.h>

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Applied {
  AttentionConfig config;
  std::vector<FlagNote> notes;
  std::string error;
};

Applied apply(const std::vector<AttentionArgument>& arguments, AttentionConfig config = {}) {
  Applied out{std::move(config), {}, {}};
  if (const Status status = apply_attention_arguments(arguments, out.config, out.notes); !status)
    out.error = status.error().message;
  return out;
}

Applied dot(const std::string& path, const std::string& value) {
  return apply({{"-ac", path, value}});
}

Applied whole(const std::string& json) {
  return apply({{"--attention-config", "", json}});
}

TEST(AttentionKeys, EveryActingKeySetsItsField) {
  const auto all = apply({{"-ac", "backend", "fa,fi"},
                          {"-ac", "prefill_backend", "fa"},
                          {"-ac", "decode_backend", "auto"},
                          {"-ac", "backend_per_kind", R"({"swa": "triton"})"},
                          {"-ac", "backend_per_kind.full_attention", "FLASH_ATTN"},
                          {"-ac", "page_size", "64"},
                          {"-ac", "allow_page_override", "true"},
                          {"-ac", "flash_attn_version", "3"},
                          {"-ac", "use_trtllm_attention", "0"},
                          {"-ac", "flashinfer_use_tensor_cores", "1"},
                          {"-ac", "mla_prefill_backend", "FLASH_ATTN"},
                          {"-ac", "use_prefill_decode_attention", "True"},
                          {"-ac", "use_non_causal", "off"},
                          {"-ac", "batch_invariant", "YES"}});
  const AttentionConfig& c = all.config;
  EXPECT_EQ(all.error, "");
  EXPECT_EQ(c.backend, "fa,fi");
  EXPECT_EQ(c.prefill_backend, "fa");
  EXPECT_EQ(c.decode_backend, "auto");
  EXPECT_EQ(c.backend_per_kind.at(LayerKind::sliding_window), "triton");
  EXPECT_EQ(c.backend_per_kind.at(LayerKind::full), "FLASH_ATTN");
  EXPECT_EQ(c.page_size, 64);
  EXPECT_TRUE(c.allow_page_override);
  EXPECT_EQ(c.flash_attn_version, 3);
  EXPECT_EQ(c.use_trtllm_attention, false);
  EXPECT_EQ(c.flashinfer_use_tensor_cores, true);
  EXPECT_EQ(c.mla_prefill_backend, "FLASH_ATTN");
  EXPECT_EQ(c.use_prefill_decode_attention, true);
  EXPECT_EQ(c.use_non_causal, false);
  EXPECT_EQ(c.batch_invariant, true);
  EXPECT_EQ(c.sources.at("flash_attn_version"), "-ac.flash_attn_version");
  EXPECT_THAT(all.notes, IsEmpty());
}

TEST(AttentionKeys, JsonSaysTheSame) {
  const auto all = whole(R"({"backend": "FLASH_ATTN", "flash_attn_version": 2, "use_trtllm_attention": false,
                             "backend_per_kind": {"sliding_window": "TRITON_ATTN"}, "use_non_causal": null})");
  EXPECT_EQ(all.error, "");
  EXPECT_EQ(all.config.backend, "FLASH_ATTN");
  EXPECT_EQ(all.config.flash_attn_version, 2);
  EXPECT_EQ(all.config.use_trtllm_attention, false);
  EXPECT_EQ(all.config.backend_per_kind.at(LayerKind::sliding_window), "TRITON_ATTN");
  EXPECT_EQ(all.config.use_non_causal, std::nullopt);
  EXPECT_EQ(all.config.sources.at("backend"), "--attention-config backend");
  EXPECT_EQ(all.config.sources.contains("use_non_causal"), false);
}

TEST(AttentionKeys, DeprecatedKeysActAndLeaveTheWarningToTheSelection) {
  const auto all = apply({{"-ac", "use_trtllm_ragged_deepseek_prefill", "0"},
                          {"-ac", "disable_flashinfer_prefill", "1"},
                          {"-ac", "use_cudnn_prefill", "1"}});
  EXPECT_EQ(all.error, "");
  EXPECT_EQ(all.config.use_trtllm_ragged_deepseek_prefill, false);
  EXPECT_EQ(all.config.disable_flashinfer_prefill, true);
  EXPECT_EQ(all.config.use_cudnn_prefill, true);
  EXPECT_THAT(all.notes, IsEmpty());
}

TEST(AttentionKeys, KernelsThatAreNotBuiltAreRefusedByName) {
  for (const AttentionKey& key : attention_keys()) {
    if (key.status != KeyStatus::refused) continue;
    const auto one = dot(std::string(key.name), "7");
    ASSERT_EQ(one.notes.size(), 1U) << key.name;
    EXPECT_EQ(one.notes[0].verdict, FlagVerdict::refused);
    EXPECT_EQ(one.notes[0].flag, "-ac." + std::string(key.name) + " 7");
    for (const std::string_view neutral : key.neutral)
      EXPECT_EQ(dot(std::string(key.name), std::string(neutral)).notes.at(0).verdict, FlagVerdict::noted);
  }
}

TEST(AttentionKeys, BadValuesSayWhatIsAllowed) {
  EXPECT_THAT(dot("flash_attn_version", "5").error,
              AllOf(HasSubstr("-ac.flash_attn_version 5"), HasSubstr("from 2 to 4")));
  EXPECT_THAT(dot("page_size", "0").error, HasSubstr("from 1 to"));
  EXPECT_THAT(dot("page_size", "1x").error, HasSubstr("from 1 to"));
  EXPECT_THAT(dot("use_trtllm_attention", "2").error, HasSubstr("0, 1, true, false"));
  EXPECT_THAT(dot("allow_page_override", "").error, HasSubstr("0, 1, true, false"));
  EXPECT_THAT(dot("backend", "").error, HasSubstr("empty"));
  EXPECT_THAT(dot("backend_per_kind", "triton").error, HasSubstr("not a JSON object"));
  EXPECT_THAT(dot("backend_per_kind", R"({"swa": 1})").error, HasSubstr("must be a name"));
  EXPECT_THAT(dot("backend_per_kind.swaa", "x").error,
              AllOf(HasSubstr("Unknown KV cache group kind 'swaa' in backend_per_kind. Valid kinds are: "),
                    HasSubstr("sliding_window")));
  EXPECT_THAT(whole(R"({"backend": ["fa"]})").error, HasSubstr("give a string, a number or a boolean"));
  EXPECT_THAT(whole("[]").error, HasSubstr("not a JSON object"));
  EXPECT_THAT(whole(std::string(200, '{')).error, HasSubstr("deep"));
  EXPECT_THAT(whole(std::string(1 << 17, ' ')).error, HasSubstr("bytes"));
}

TEST(AttentionKeys, UnknownKeysNameTheNearest) {
  EXPECT_THAT(dot("flash_atn_version", "3").error, HasSubstr("did you mean flash_attn_version?"));
  EXPECT_THAT(whole(R"({"bakend": "fa"})").error,
              AllOf(HasSubstr("--attention-config"), HasSubstr("did you mean backend?"),
                    HasSubstr("Allowed are backend, ")));
  EXPECT_THAT(whole(R"({"bakend": null})").error, HasSubstr("did you mean backend?"));
}

TEST(AttentionKeys, FormsDoNotMix) {
  EXPECT_THAT(apply({{"-ac", "backend", "fa"}, {"--attention-config", "page_size", "1"}}).error,
              HasSubstr("two spellings of one flag"));
  EXPECT_THAT(apply({{"-ac", "", "{}"}, {"-ac", "page_size", "1"}}).error, HasSubstr("don't mix"));
  EXPECT_THAT(apply({{"-ac", "", "{}"}, {"-ac", "", "{}"}}).error, HasSubstr("given twice"));
  EXPECT_THAT(apply({{"-ac", "backend", "fa"}, {"-ac", "backend", "fi"}}).error, HasSubstr("given twice"));
  EXPECT_THAT(whole(R"({"backend": "fa", "backend": "fi"})").error, HasSubstr("given twice"));
  EXPECT_THAT(dot("backend_per_kind", R"({"swa": "a", "sliding_window": "b"})").error,
              HasSubstr("given twice"));
}

TEST(AttentionKeys, AFlagOfItsOwnAndTheKeyExcludeEachOther) {
  AttentionConfig config;
  config.sources["backend"] = "--attn";
  config.sources["page_size"] = "--block-size";
  EXPECT_THAT(apply({{"-ac", "backend", "fa"}}, config).error,
              HasSubstr("attention_backend and attention_config.backend are mutually exclusive"));
  EXPECT_THAT(apply({{"-ac", "page_size", "16"}}, config).error,
              AllOf(HasSubstr("--block-size"), HasSubstr("mutually exclusive")));
}

}  // namespace
}  // namespace fovea
