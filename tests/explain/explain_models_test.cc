// What the selection chooses for published models on every class of device, from config.json alone: the
// backend that the documents' order and rows give to each phase of each kind of layers, whether or not this
// build has its kernels, and why the others are refused.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builtin/project_backends.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/attention_shapes.h"
#include "model/config.h"
#include "model/model.h"

namespace fovea {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr const char* kDevices[] = {"cpu", "sm75", "sm80", "sm89", "sm90", "sm100", "sm120", "rocm", "npu"};

AttentionShapes shapes_of(const std::string& model) {
  const auto shapes =
      read_attention_shapes(std::string(FOVEA_SOURCE_DIR) + "/tests/configs/" + model + "/config.json");
  EXPECT_TRUE(shapes.ok()) << shapes.error().message;
  return shapes ? *shapes : AttentionShapes{};
}

Selection consider_model(const std::string& model, const std::string& device,
                         const AttentionConfig& config = {}) {
  const auto target = parse_device(device);
  EXPECT_TRUE(target.ok()) << device;
  const AttentionShapes shapes = shapes_of(model);
  auto selection = consider(config, shapes.specs, *target, project_backends());
  EXPECT_TRUE(selection.ok()) << model << " on " << device << ": " << selection.error().message;
  return selection ? *std::move(selection) : Selection{};
}

bool only_kernels_missing(const Candidate& candidate) {
  return std::ranges::all_of(candidate.reasons, [](const Reason& r) {
    return r.text.starts_with("not in this build: ") || r.text.ends_with(": not documented");
  });
}

/// What the documents choose: the first candidate that is excluded only by kernels missing from this build or
/// by what its documentation does not state.
std::string choice(const PhaseSelection& phase) {
  const auto first = std::ranges::find_if(phase.candidates, only_kernels_missing);
  return first == phase.candidates.end() ? "none" : first->backend->label();
}

const KindSelection* kind_in(const Selection& selection, LayerKind kind) {
  const auto at = std::ranges::find(selection.kinds, kind, &KindSelection::kind);
  return at == selection.kinds.end() ? nullptr : &*at;
}

/// "prefill / decode", or one name for both.
std::string choices(const Selection& selection, LayerKind kind) {
  const KindSelection* found = kind_in(selection, kind);
  if (!found) return "no such kind";
  const std::string prefill = choice(found->prefill), decode = choice(found->decode);
  return prefill == decode ? decode : prefill + " / " + decode;
}

std::vector<std::string> reasons_against(const PhaseSelection& phase, const std::string& label) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : phase.candidates)
    if (candidate.backend->label() == label)
      for (const Reason& reason : candidate.reasons) {
        EXPECT_FALSE(reason.fix.empty()) << label << ": " << reason.text;
        texts.push_back(reason.text);
      }
  return texts;
}

struct Expected {
  std::string model;
  LayerKind kind;
  std::vector<std::string> choices;  ///< [kDevices]
};

const std::string kFa2 = "FLASH_ATTN (FA2)", kFa3 = "FLASH_ATTN (FA3)", kFlex = "FLEX_ATTENTION",
                  kNative = "FLASHINFER (Native)", kTrtllm = "FLASHINFER (TRTLLM)",
                  kTritonRocm = "TRITON_ATTN (ROCm)";

/// Expected from vLLM's tables and lists, and for built backends from what their kernels do. FlashAttention 2
/// and FlashInfer's own kernels are built, need 8.0 and have every mask, as has FlashAttention 3 on 9.0;
/// TRT-LLM's are for 10.x and have no spans; SM 12.x has the list of SM 8.x and 9.x; before 8.0 only
/// FlexAttention is left, without sinks. MLA prefill on Blackwell is TRT-LLM's.
const std::vector<Expected>& expectations() {
  using enum LayerKind;
  static const std::vector<std::string> ordinary = {"CPU_ATTN", kFlex, kFa2,        kFa2,    kFa3,
                                                    kTrtllm,    kFa2,  "ROCM_ATTN", "ASCEND"};
  static const std::vector<std::string> sinks = {"CPU_ATTN", "none", kFa2,        kFa2,    kFa3,
                                                 kTrtllm,    kFa2,   kTritonRocm, "ASCEND"};
  static const std::vector<std::string> spans = {"CPU_ATTN", kFlex, kFa2,        kFa2,    kFa3,
                                                 kNative,    kFa2,  kTritonRocm, "ASCEND"};
  // SGLang's table excludes windows on Ascend.
  const auto windowed = [](std::vector<std::string> choices) {
    choices.back() = "none";
    return choices;
  };
  // Encoder and cross attention: TRT-LLM has neither, and of vLLM's ROCm rows only Triton's has them.
  static const std::vector<std::string> encoders = {"CPU_ATTN", "none", kFa2,        kFa2,  kFa3,
                                                    kNative,    kFa2,   kTritonRocm, "none"};
  static const std::vector<Expected> all = {
      {"llama-3.1-8b", full, ordinary},
      {"llama-3-8b", full, ordinary},
      {"qwen3-0.6b", full, ordinary},
      {"deepseek-v3",
       mla,
       {"CPU_MLA", "none", "FLASH_ATTN (FA2) / FLASHINFER_MLA", "FLASH_ATTN (FA2) / FLASHINFER_MLA",
        "FLASH_ATTN (FA3) / FLASH_ATTN_MLA", "TRTLLM_RAGGED / FLASHINFER_MLA",
        "FLASH_ATTN (FA2) / TRITON_MLA", "ROCM_AITER_MLA", "ASCEND"}},
      {"gpt-oss-20b", full, sinks},
      {"gpt-oss-20b", sliding_window, windowed(sinks)},
      {"gemma-3-4b", full, spans},
      {"gemma-3-4b", sliding_window, windowed(spans)},
      {"gemma-3-1b", full, ordinary},
      {"gemma-3-1b", sliding_window, windowed(ordinary)},
      {"qwen3-next-80b",
       linear,
       {"none", "GDN_ATTN", "GDN_ATTN", "GDN_ATTN", "GDN_ATTN", "GDN_ATTN", "GDN_ATTN", "none", "none"}},
      {"whisper-large-v3", full, ordinary},
      {"whisper-large-v3", cross, encoders},
      {"whisper-large-v3", encoder, encoders},
  };
  return all;
}

/// The config.json files of tests/configs, by folder name.
std::map<std::string, nlohmann::json> configs() {
  std::map<std::string, nlohmann::json> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(FOVEA_SOURCE_DIR) + "/tests/configs"))
    if (entry.is_directory())
      out[entry.path().filename()] = nlohmann::json::parse(std::ifstream(entry.path() / "config.json"));
  return out;
}

/// Expects that `shapes` counts exactly the layers that the engine builds for `config`.
void expect_engine_layers(const AttentionShapes& shapes, const ModelConfig& config) {
  std::vector<AttentionSpec> engine = attention_specs(config);
  for (AttentionSpec& spec : engine)
    spec.dtype = config.dtype;
  int shown = 0;
  for (size_t i = 0; i < shapes.specs.size(); ++i) {
    EXPECT_EQ(shapes.layers[i], std::ranges::count(engine, shapes.specs[i])) << "kind " << i;
    shown += shapes.layers[i];
  }
  EXPECT_EQ(static_cast<size_t>(shown), engine.size());
  EXPECT_EQ(shapes.other_layers, 0);
}

TEST(ExplainModels, ShowsTheLayersThatTheEngineRuns) {
  std::vector<std::string> run;
  for (const auto& [model, json] : configs()) {
    SCOPED_TRACE(model);
    const auto config = parse_model_config(json.dump(), "", "/m");
    const AttentionShapes shapes = shapes_of(model);
    EXPECT_EQ(shapes.runnable, config.ok());
    if (!config) continue;
    run.push_back(model);
    expect_engine_layers(shapes, *config);
  }
  EXPECT_THAT(
      run, UnorderedElementsAre("deepseek-r1", "deepseek-v3", "deepseek-v3.2", "gemma-3-1b", "gpt-oss-20b",
                                "kimi-k2", "llama-3-8b", "llama-3.1-8b", "qwen3-0.6b", "whisper-large-v3"));
}

// Absent keys have the family's defaults, and a setting that the engine refuses doesn't change the layers.
TEST(ExplainModels, ARefusedSettingLeavesTheLayersAsTheEngineReadsThem) {
  for (const auto& [model, json] : configs())
    for (const char* absent : {"", "head_dim", "num_key_value_heads", "sliding_window", "layer_types",
                               "sliding_window_pattern", "query_pre_attn_scalar"}) {
      SCOPED_TRACE(model + " without " + absent);
      nlohmann::json patched = json;
      patched.erase(absent);
      const auto config = parse_model_config(patched.dump(), "", "/m");
      if (!config) continue;
      if (config->ropes.empty())
        patched["scale_embedding"] = true;
      else if (config->mla)  // whose scale of scores depends on rope_scaling
        patched["scoring_func"] = "tanh";
      else
        patched["rope_scaling"] = {{"type", "dynamic"}};
      const auto shapes = parse_attention_shapes(patched.dump(), "/m/config.json");
      ASSERT_TRUE(shapes.ok()) << shapes.error().message;
      EXPECT_FALSE(shapes->runnable);
      expect_engine_layers(*shapes, *config);
    }
}

TEST(ExplainModels, TheChoiceOnEveryDevice) {
  for (const Expected& expected : expectations())
    for (size_t d = 0; d < std::size(kDevices); ++d)
      EXPECT_EQ(choices(consider_model(expected.model, kDevices[d]), expected.kind), expected.choices[d])
          << expected.model << ", " << to_string(expected.kind) << " layers, on " << kDevices[d];
}

TEST(ExplainModels, WhatThisBuildLacksIsNeverChosen) {
  for (const Expected& expected : expectations())
    for (const char* device : kDevices) {
      const Selection selection = consider_model(expected.model, device);
      const KindSelection* kind = kind_in(selection, expected.kind);
      ASSERT_NE(kind, nullptr);
      for (const Phase phase : {Phase::prefill, Phase::decode}) {
        const PhaseSelection& s = kind->of(phase);
        SCOPED_TRACE(expected.model + " on " + device + ", " + std::string(to_string(phase)));
        EXPECT_FALSE(s.why.empty());
        EXPECT_FALSE(s.candidates.empty());
        if (s.backend != nullptr) {
          EXPECT_TRUE(s.backend->absent.empty());
          EXPECT_EQ(s.if_built, nullptr);
          continue;
        }
        EXPECT_EQ(s.if_built ? s.if_built->label() : "none", choice(s));
        EXPECT_THAT(s.error.message, Not(IsEmpty()));
        for (const Candidate& candidate : s.candidates)
          EXPECT_FALSE(candidate.reasons.empty()) << candidate.backend->label();
      }
    }
}

TEST(ExplainModels, ExplanationsNameEveryCandidateReasonAndFix) {
  for (const Expected& expected : expectations())
    for (const char* device : kDevices) {
      const Selection selection = consider_model(expected.model, device);
      const std::string text = explain_in_full(selection);
      for (const KindSelection& kind : selection.kinds)
        for (const Phase phase : {Phase::prefill, Phase::decode})
          for (const Candidate& candidate : kind.of(phase).candidates) {
            ASSERT_THAT(text, HasSubstr(candidate.backend->label())) << expected.model << device;
            for (const Reason& reason : candidate.reasons) {
              ASSERT_THAT(text, HasSubstr(reason.text)) << expected.model << device;
              ASSERT_THAT(text, HasSubstr(reason.fix)) << expected.model << device;
            }
          }
      EXPECT_FALSE(explain(selection).empty());
    }
}

TEST(ExplainModels, GptOssNeedsSinks) {
  for (const char* device : {"sm80", "sm90", "sm100"}) {
    const Selection selection = consider_model("gpt-oss-20b", device);
    for (const LayerKind kind : {LayerKind::full, LayerKind::sliding_window})
      EXPECT_THAT(reasons_against(kind_in(selection, kind)->decode, "FLEX_ATTENTION"),
                  Contains("attention sinks not supported"))
          << device;
  }
  // A version that the user selects is kept.
  const Selection pinned = consider_model("gpt-oss-20b", "sm90", {.flash_attn_version = 2});
  EXPECT_EQ(choice(pinned.kinds[0].decode), kFa2);
  const Selection third = consider_model("gpt-oss-20b", "sm90", {.flash_attn_version = 3});
  for (const Candidate& candidate : third.kinds[0].decode.candidates)
    EXPECT_NE(candidate.backend->label(), kFa2);
}

TEST(ExplainModels, WhatIsBuiltServesOnEveryGpuFromAmpereOn) {
  for (const char* model : {"llama-3.1-8b", "gpt-oss-20b", "gemma-3-4b", "gemma-3-1b", "whisper-large-v3"})
    for (const char* device : {"sm80", "sm89", "sm90", "sm100", "sm120"}) {
      const Selection selection = consider_model(model, device);
      EXPECT_TRUE(selection.complete()) << model << " on " << device;
    }
}

TEST(ExplainModels, ImagesOfGemmaNeedSpans) {
  for (const char* device : {"sm80", "sm90", "sm100"}) {
    const Selection selection = consider_model("gemma-3-4b", device);
    for (const KindSelection& kind : selection.kinds)
      for (const Candidate& candidate : kind.prefill.candidates) {
        const std::string name = candidate.backend->label();
        std::vector<std::string> texts;
        for (const Reason& reason : candidate.reasons)
          texts.push_back(reason.text);
        const auto refused = Contains("partial multimodal token full attention not supported");
        const bool mla = candidate.backend->capability.features.has(Feature::mla);
        if ((candidate.backend->absent.empty() && !mla) || name == kFlex) {
          EXPECT_THAT(texts, Not(refused)) << name << " on " << device;
        } else if (candidate.backend->capability.device == DeviceKind::cuda) {
          EXPECT_THAT(texts, refused) << name << " on " << device;
        }
      }
  }
}

TEST(ExplainModels, DeepseekIsMlaOnly) {
  const Selection sm90 = consider_model("deepseek-v3", "sm90");
  ASSERT_EQ(sm90.kinds.size(), 1u);
  EXPECT_THAT(reasons_against(sm90.kinds[0].decode, "FLASHMLA"), IsEmpty());
  EXPECT_THAT(reasons_against(consider_model("deepseek-v3", "sm80").kinds[0].decode, "FLASHMLA"),
              Contains("compute capability not supported"));
  const Selection named = consider_model("deepseek-v3", "sm90", {.backend = "FLASH_ATTN"});
  EXPECT_THAT(reasons_against(named.kinds[0].decode, kFa3), Contains("MLA not supported"));
  // Families name the MLA backend of an MLA model.
  EXPECT_EQ(choice(consider_model("deepseek-v3", "sm90", {.backend = "fa3"}).kinds[0].decode),
            "FLASH_ATTN_MLA");
  EXPECT_EQ(choice(consider_model("deepseek-r1", "sm80", {.backend = "triton"}).kinds[0].decode),
            "TRITON_MLA");
  const Selection r1 = consider_model("deepseek-r1", "sm100", {.backend = "trtllm_mla"});
  EXPECT_EQ(choice(r1.kinds[0].decode), "TRTLLM_MLA");
  EXPECT_EQ(choice(r1.kinds[0].prefill), "FLASHINFER_MLA") << "its prefill partner";
  const Selection llama = consider_model("llama-3.1-8b", "sm90", {.backend = "FLASHMLA"});
  EXPECT_THAT(reasons_against(llama.kinds[0].decode, "FLASHMLA"), Contains("non-MLA not supported"));
}

TEST(ExplainModels, DeepseekOnACpuIsServedByItsMlaBackend) {
  const Selection selection = consider_model("deepseek-v3", "cpu");
  ASSERT_EQ(selection.kinds.size(), 1u);
  EXPECT_EQ(choice(selection.kinds[0].decode), "CPU_MLA");
  EXPECT_EQ(choice(selection.kinds[0].prefill), "CPU_MLA");
  const auto named = select({.backend = "CPU_ATTN"}, shapes_of("deepseek-v3").specs, {}, project_backends());
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().message,
              StartsWith("Selected backend CPU_ATTN is not valid for this configuration. Reason: "
                         "['head_size not supported', 'MLA not supported']. Fix: the model has 576 (QK) and "
                         "512 (V); CPU_ATTN takes multiples of 8 from 16 to 512; --attention-backend "
                         "CPU_MLA: serves it here"));
}

TEST(ExplainModels, SparseMlaOnACpuHasABackendOfItsOwn) {
  const Selection selection = consider_model("deepseek-v3.2", "cpu");
  const PhaseSelection& decode = selection.kinds.at(0).decode;
  EXPECT_EQ(choice(decode), "CPU_MLA_SPARSE");
  EXPECT_THAT(reasons_against(decode, "CPU_MLA"), Contains("sparse not supported"));
  const auto chosen =
      select({.backend = "CPU_MLA"}, shapes_of("deepseek-v3.2").specs, {}, project_backends());
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message, HasSubstr("sparse not supported"));
}

TEST(ExplainModels, SparseMlaOnGpus) {
  const auto decode = [](const char* device) {
    return choice(consider_model("deepseek-v3.2", device).kinds.at(0).decode);
  };
  EXPECT_EQ(decode("sm75"), "none");
  EXPECT_EQ(decode("sm90"), "FLASHMLA_SPARSE");  // which has kernels for Hopper
  for (const char* device : {"sm80", "sm86", "sm89", "sm100"})
    EXPECT_EQ(decode(device), "FLASHINFER_MLA_SPARSE") << device;
  EXPECT_EQ(decode("rocm"), "ROCM_AITER_MLA_SPARSE");
  EXPECT_THAT(reasons_against(consider_model("deepseek-v3.2", "sm90").kinds[0].decode, "FLASH_ATTN_MLA"),
              Contains("sparse not supported"));
  EXPECT_THAT(reasons_against(consider_model("deepseek-v3.2", "sm80").kinds[0].decode, "FLASHMLA_SPARSE"),
              Contains("compute capability not supported"));
}

TEST(ExplainModels, APageSizeIsAConstraint) {
  const Selection selection = consider_model("deepseek-v3", "sm90", {.backend = "FLASHMLA", .page_size = 16});
  EXPECT_THAT(reasons_against(selection.kinds[0].decode, "FLASHMLA"), Contains("block_size not supported"));
}

TEST(ExplainModels, EveryConfigCanBeExplained) {
  for (const char* model : {"kimi-k2", "llama-4-scout", "mimo-v2-flash", "qwen3-next-80b", "deepseek-v3.2"})
    for (const char* device : kDevices) {
      const Selection selection = consider_model(model, device);
      EXPECT_FALSE(selection.kinds.empty()) << model << device;
      EXPECT_FALSE(explain_in_full(selection).empty()) << model << device;
    }
}

}  // namespace
}  // namespace fovea
