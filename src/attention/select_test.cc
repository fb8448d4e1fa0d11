#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

AttentionSpec llama() {
  AttentionSpec spec;
  spec.num_heads = 8;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 64;
  spec.scale = 0.125f;
  return spec;
}

constexpr Capability all_cpu() {
  Capability c;
  c.dtypes = {DType::f32, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::float32, KvCacheDType::bfloat16};
  c.page_sizes = IntSet::range(1, 1024);
  c.head_dims = c.v_head_dims = IntSet::range(16, 256, 8);
  c.types = {AttentionType::decoder};
  c.phases = {Phase::prefill, Phase::decode};
  return c;
}

BackendInfo named(std::string_view name, Capability c, std::vector<std::string_view> aliases = {}) {
  BackendInfo info;
  info.name = name;
  info.aliases = std::move(aliases);
  info.capability = c;
  return info;
}

std::unique_ptr<AttentionBackend> nothing() {
  return nullptr;
}

/// FAST (pages of 32, no window), PLAIN (anything), DECODER (decode only, pages of 64), GPU (absent).
struct Fixture : ::testing::Test {
  Fixture() {
    fast.capability.page_sizes = IntSet::range(32, 1024, 32);
    fast.capability.preferred_page_size = 32;
    plain.capability.features = {Feature::window, Feature::sink, Feature::non_causal};
    decoder.capability.phases = {Phase::decode};
    decoder.capability.page_sizes = {64};
    decoder.capability.preferred_page_size = 64;
    gpu.capability.device = DeviceKind::cuda;
    gpu.capability.min_compute_capability = 90;
    gpu.absent = "its CUDA kernels are not written yet";
    registry.add(fast, nothing);
    registry.add(plain, nothing);
    registry.add(decoder, nothing);
    registry.add(gpu, nullptr);
  }
  Result<Selection> choose(AttentionConfig config, const AttentionSpec& spec = llama()) {
    return select(config, spec, {}, registry);
  }
  std::string refusal(AttentionConfig config, const AttentionSpec& spec = llama()) {
    const auto s = choose(std::move(config), spec);
    return s ? "accepted" : s.error().message;
  }
  BackendInfo fast = named("FAST_ATTN", all_cpu(), {"fast", "fa"});
  BackendInfo plain = named("PLAIN", all_cpu(), {"torch_plain"});
  BackendInfo decoder = named("DECODER", all_cpu());
  BackendInfo gpu = named("GPU_ATTN", all_cpu(), {"gpu"});
  BackendRegistry registry;
};
using Registry = Fixture;
using Select = Fixture;

TEST_F(Registry, FindsNamesInAnyCaseAndAliases) {
  for (const char* name : {"FAST_ATTN", "fast_attn", "Fast_Attn", "fa", "FAST"})
    EXPECT_EQ(registry.find(name)->info, &fast) << name;
  for (const char* name : {"", "FAST-ATTN", "FASTATTN", "auto", "f"})
    EXPECT_EQ(registry.find(name), nullptr) << name;
}

TEST_F(Registry, NearestKnowsTypos) {
  EXPECT_EQ(registry.nearest("FAST_ATN"), "FAST_ATTN");
  EXPECT_EQ(registry.nearest("torch-plain"), "torch_plain");
  EXPECT_EQ(registry.nearest("something else"), "");
}

TEST_F(Select, AutomaticTakesTheFirstThatServesEachPhase) {
  const auto s = choose({});
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->kinds[0].prefill.backend, &fast);
  EXPECT_EQ(s->kinds[0].decode.backend, &fast);
  EXPECT_EQ(s->page_size, 32);
  EXPECT_EQ(
      explain(*s),
      "prefill: FAST_ATTN (automatic: first of FAST_ATTN, PLAIN that serves this model on cpu)\n"
      "decode: FAST_ATTN (automatic: first of FAST_ATTN, PLAIN, DECODER that serves this model on cpu)");
  EXPECT_EQ(explain(*choose({.backend = "AUTO"})), explain(*s));
}

TEST_F(Select, AutomaticSkipsWhatCannotServeAndSaysWhy) {
  AttentionSpec spec = llama();
  spec.mask.window_left = 10;
  const auto s = choose({}, spec);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, &plain);
  ASSERT_EQ(s->kinds[0].prefill.candidates.size(), 3u);
  EXPECT_EQ(s->kinds[0].prefill.candidates[0].backend->name, "FAST_ATTN");
  EXPECT_EQ(s->kinds[0].prefill.candidates[0].reasons[0].text, "sliding window not supported");
  EXPECT_THAT(explain(*s),
              HasSubstr("prefill: PLAIN (automatic: the only one that serves this model on cpu)"));
}

TEST_F(Select, NamesAndPairs) {
  auto s = choose({.backend = "torch_PLAIN"});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, &plain);
  EXPECT_EQ(s->kinds[0].decode.backend, &plain);
  EXPECT_EQ(s->page_size, 16);
  EXPECT_THAT(explain(*s), HasSubstr("decode: PLAIN (given: --attention-backend torch_PLAIN)"));

  s = choose({.backend = "fa, decoder"});
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->kinds[0].prefill.backend, &fast);
  EXPECT_EQ(s->kinds[0].decode.backend, &decoder);
  EXPECT_EQ(s->page_size, 64) << "FAST_ATTN prefers 32, which DECODER can't";

  s = choose({.backend = "plain", .decode_backend = "fast"});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, &plain);
  EXPECT_EQ(s->kinds[0].decode.backend, &fast);
  EXPECT_EQ(s->page_size, 32) << "PLAIN prefers 16, which FAST_ATTN can't";

  s = choose({.prefill_backend = "plain", .decode_backend = "auto"});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, &plain);
  EXPECT_EQ(s->kinds[0].decode.backend, &fast);

  s = choose({.backend = "fa,plain", .decode_backend = "torch_plain"});
  EXPECT_TRUE(s.ok()) << "the same backend under another name";
}

TEST_F(Select, BadPairs) {
  EXPECT_THAT(refusal({.backend = "fa,fa,fa"}), HasSubstr("more than one comma"));
  EXPECT_THAT(refusal({.backend = "fa,"}), HasSubstr("lacks its decode half"));
  EXPECT_THAT(refusal({.backend = " ,fa"}), HasSubstr("lacks its prefill half"));
  EXPECT_THAT(refusal({.backend = "auto,fa"}), HasSubstr("'auto' in a pair"));
  EXPECT_THAT(refusal({.backend = "fa,plain", .prefill_backend = "plain"}), HasSubstr("contradicts"));
  EXPECT_THAT(refusal({.prefill_backend = "fa,plain"}), HasSubstr("must be one name"));
}

TEST_F(Select, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(refusal({.backend = "FAST_ATN"}),
            "Unknown attention backend: 'FAST_ATN'. Valid options are: auto, FAST_ATTN, PLAIN, DECODER, "
            "GPU_ATTN. Did you mean 'FAST_ATTN'?");
  EXPECT_THAT(refusal({.backend = "nothing_like_it"}), Not(HasSubstr("Did you mean")));
  EXPECT_THAT(refusal({.backend = "fa,plein"}), HasSubstr("Did you mean 'PLAIN'?"));
}

TEST_F(Select, ANamedBackendThatCannotServeIsAnErrorWithEveryReason) {
  AttentionSpec spec = llama();
  spec.head_dim = spec.v_head_dim = 300;
  spec.dtype = DType::f16;
  spec.has_sink = true;
  EXPECT_EQ(
      refusal({.backend = "fast", .page_size = 40}, spec),
      "Selected backend FAST_ATTN is not valid for this configuration. Reason: ['head_size not supported', "
      "'dtype not supported', 'block_size not supported', 'attention sinks not supported']. Fix: the model "
      "has 300 (QK) and 300 (V); FAST_ATTN takes multiples of 8 from 16 to 256 and multiples of 8 from 16 "
      "to 256; --attention-backend auto: picks one that can; --dtype float32|bfloat16; --page-size 32: it "
      "takes multiples of 32 from 32 to 1024; --attention-backend auto: picks one that can.");
}

TEST_F(Select, AnAbsentBackendIsRefusedAndOthersNamed) {
  EXPECT_EQ(
      refusal({.backend = "gpu"}),
      "Selected backend GPU_ATTN is not valid for this configuration. Reason: ['compute capability not "
      "supported', 'not in this build: its CUDA kernels are not written yet']. Fix: it needs a cuda device "
      "of compute capability 9.0 or later, this one is cpu; --attention-backend auto: picks one that can. "
      "This build has: FAST_ATTN, PLAIN, DECODER.");
  EXPECT_THAT(refusal({.prefill_backend = "decoder"}), HasSubstr("['prefill not supported']"));
}

TEST_F(Select, NothingValidListsEveryBackend) {
  AttentionSpec spec = llama();
  spec.dtype = DType::f16;
  EXPECT_EQ(
      refusal({}, spec),
      "No valid attention backend found for cpu with AttentionSelectorConfig(head_size=64, dtype=float16, "
      "kv_cache_dtype=auto, block_size=None, attn_type=decoder). Reasons: {FAST_ATTN: ['dtype not "
      "supported'], PLAIN: ['dtype not supported'], DECODER: ['dtype not supported', 'prefill not "
      "supported'], GPU_ATTN: ['compute capability not supported', 'not in this build: its CUDA kernels "
      "are not written yet']}. Fix for FAST_ATTN: --dtype float32|bfloat16.");
}

TEST_F(Select, AGivenPageSizeIsAConstraintNeverChanged) {
  auto s = choose({.page_size = 16});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, &plain);
  EXPECT_EQ(s->page_size, 16);
  EXPECT_EQ(s->page_size_why, "given: --page-size");
  EXPECT_THAT(refusal({.backend = "fa", .page_size = 16}),
              HasSubstr("--page-size 32: it takes multiples of 32"));
  EXPECT_THAT(refusal({.page_size = 0}), HasSubstr("--page-size 0 must be 1 or more"));
  AttentionSpec spec = llama();
  spec.page_size = 48;
  EXPECT_EQ(choose({}, spec)->page_size, 48);
}

TEST_F(Select, NoCommonPageSize) {
  BackendInfo odd = named("ODD", all_cpu());
  odd.capability.page_sizes = {3, 3, 1};
  odd.capability.preferred_page_size = 3;
  registry.add(odd, nothing);
  EXPECT_THAT(refusal({.backend = "odd,fast"}), HasSubstr("No page size suits both ODD and FAST_ATTN"));
}

TEST_F(Select, MessagesAreOneLine) {
  AttentionSpec spec = llama();
  spec.dtype = DType::f16;
  for (const std::string& message :
       {refusal({}, spec), refusal({.backend = "gpu"}), refusal({.backend = "x"})})
    EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST_F(Select, ASpecThatMeansNothingIsRefused) {
  AttentionSpec spec = llama();
  spec.num_heads = 5;
  EXPECT_THAT(refusal({}, spec), HasSubstr("must be a positive multiple of num_kv_heads 2"));
  spec = llama();
  spec.scale = 0;
  EXPECT_THAT(refusal({}, spec), HasSubstr("scale"));
  spec = llama();
  spec.mask.packed = true;
  EXPECT_THAT(refusal({}, spec), HasSubstr("packed mask replaces the causal one"));
}

std::vector<std::string> texts(const BackendInfo& info, const AttentionSpec& spec, DeviceInfo device = {},
                               Phase phase = Phase::decode) {
  std::vector<std::string> out;
  for (const Reason& r : validate(info, spec, device, phase)) {
    EXPECT_FALSE(r.fix.empty()) << r.text;
    out.push_back(r.text);
  }
  return out;
}

TEST(Validate, EveryReasonInTheOrderOfVllm) {
  BackendInfo none = named("NONE", {});
  none.capability.page_sizes = {16, 16, 1};
  none.capability.device = DeviceKind::cuda;
  none.supports_combination = [](const AttentionSpec&, const DeviceInfo&) -> std::optional<Reason> {
    return Reason{"its own words", "its own fix"};
  };
  AttentionSpec spec = llama();
  spec.page_size = 17;
  spec.mask = {.causal = false, .window_left = 3, .chunk = 5, .sink_tokens = 1, .spans = true, .tree = true};
  spec.use_mla = spec.use_sparse = spec.has_sink = spec.has_alibi = spec.fp64_accumulate = true;
  spec.softcap = 3;
  EXPECT_THAT(texts(none, spec),
              ElementsAre("head_size not supported", "dtype not supported", "kv_cache_dtype not supported",
                          "block_size not supported", "partial multimodal token full attention not supported",
                          "MLA not supported", "attention sinks not supported", "sparse not supported",
                          "compute capability not supported", "attention type decoder not supported",
                          "sliding window not supported", "non-causal attention not supported",
                          "chunked-local attention not supported", "StreamingLLM sink tokens not supported",
                          "logit soft cap not supported", "ALiBi not supported", "tree mask not supported",
                          "fp64 accumulation not supported", "decode not supported",
                          "ALiBi with a logit soft cap not supported", "its own words"));
}

TEST(Validate, KindsOfModels) {
  BackendInfo mla = named("X", all_cpu());
  mla.capability.features = {Feature::mla, Feature::sparse};
  EXPECT_THAT(texts(mla, llama()), ElementsAre("non-MLA not supported", "non-sparse not supported"));
}

TEST(Validate, AutoKvDtypeIsTheModels) {
  BackendInfo info = named("X", all_cpu());
  info.capability.kv_dtypes = {KvCacheDType::bfloat16};
  AttentionSpec spec = llama();
  EXPECT_THAT(texts(info, spec), ElementsAre("kv_cache_dtype not supported"));
  spec.dtype = DType::bf16;
  EXPECT_THAT(texts(info, spec), IsEmpty());
  spec.kv_dtype = KvCacheDType::fp8_e4m3;
  EXPECT_THAT(texts(info, spec), ElementsAre("kv_cache_dtype not supported"));
}

TEST(Validate, AttentionTypesAndCausality) {
  const BackendInfo info = named("X", all_cpu());
  AttentionSpec spec = llama();
  spec.type = AttentionType::encoder_decoder;
  spec.mask.causal = false;
  EXPECT_THAT(texts(info, spec), ElementsAre("attention type encoder_decoder not supported"));
  spec.type = AttentionType::decoder;
  EXPECT_THAT(texts(info, spec), ElementsAre("non-causal attention not supported"));
  spec.mask.packed = true;
  EXPECT_THAT(texts(info, spec), ElementsAre("packed custom mask not supported"));
  spec = llama();
  spec.mask.window_right = 0;  // says nothing more than causal does
  EXPECT_THAT(texts(info, spec), IsEmpty());
}

TEST(Validate, ComputeCapabilityBounds) {
  BackendInfo info = named("X", all_cpu());
  info.capability.device = DeviceKind::cuda;
  info.capability.min_compute_capability = 90;
  info.capability.max_compute_capability = 99;
  const auto cuda = [](int cc) { return DeviceInfo{DeviceKind::cuda, cc, ""}; };
  EXPECT_THAT(texts(info, llama(), cuda(90)), IsEmpty());
  EXPECT_THAT(texts(info, llama(), cuda(89)), ElementsAre("compute capability not supported"));
  EXPECT_THAT(texts(info, llama(), cuda(100)), ElementsAre("compute capability not supported"));
  EXPECT_EQ(validate(info, llama(), cuda(80), Phase::decode)[0].fix,
            "it needs a cuda device of compute capability 9.0 to 9.9, this one is cuda 8.0");
}

TEST(Builtin, AutomaticChoiceOnACpu) {
  const auto s = select({}, llama(), {}, builtin_backends());
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(explain(*s),
            "prefill: CPU_ATTN (automatic: first of CPU_ATTN, TORCH_NATIVE that serves this model on cpu)\n"
            "decode: CPU_ATTN (automatic: first of CPU_ATTN, TORCH_NATIVE that serves this model on cpu)");
  EXPECT_EQ(s->page_size, 16);
}

TEST(Builtin, NamesOfThreeEngines) {
  const BackendRegistry& r = builtin_backends();
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
  AttentionConfig config;
  config.backend = "fa3";
  const auto s = select(config, llama(), {}, r);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.error().message, HasSubstr("compute capability not supported"));
  EXPECT_THAT(s.error().message, HasSubstr("This build has: "));
}

}  // namespace
}  // namespace fovea
