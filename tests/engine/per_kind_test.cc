// Layers of different kinds on different backends in one engine, and refusals before the weights are read.
#include <filesystem>

#include "fovea/embed.h"
#include "gmock/gmock.h"
#include "model/attention_shapes.h"
#include "tests/engine/counting_backend.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

using test::CountingBackend;
using test::Counts;
using test::info_named;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGptOss[] = "gptoss_gqa2_d16_bf16";
constexpr char kGemma[] = "gemma3_gqa2_d32_bf16";

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> out;
  for (uint32_t i = 0; i < 4; ++i)
    out.push_back(test::greedy(test::prompt_of(40, i), 6 + static_cast<int>(i)));
  return out;
}

/// How many layers of `kind` a fixture has.
int layers_of(const std::string& fixture, LayerKind kind) {
  const auto shapes = read_attention_shapes(test::fixture_dir(fixture));
  EXPECT_TRUE(shapes.ok()) << shapes.error().message;
  int layers = 0;
  for (size_t i = 0; shapes && i < shapes->specs.size(); ++i)
    if (kind_of(shapes->specs[i]) == kind) layers += shapes->layers[i];
  return layers;
}

std::string_view name_of(const EngineInfo& info, LayerKind kind, Phase phase) {
  for (const KindSelection& k : info.selection.kinds)
    if (k.kind == kind) return k.of(phase).backend->name;
  return "no such kind";
}

TEST(PerKind, EachKindOfLayersRunsOnItsOwnBackends) {
  Counts full, window_prefill, window_decode;
  const BackendInfo full_info = info_named("FULL"), prefill_info = info_named("WINDOW_P"),
                    decode_info = info_named("WINDOW_D");
  BackendRegistry registry;
  registry.add(full_info, [&] { return std::make_unique<CountingBackend>(full); });
  registry.add(prefill_info, [&] { return std::make_unique<CountingBackend>(window_prefill); });
  registry.add(decode_info, [&] { return std::make_unique<CountingBackend>(window_decode); });
  EngineConfig config = test::fixture_config(kGptOss, "full=FULL,swa.prefill=WINDOW_P,swa.decode=WINDOW_D");
  config.max_batched_tokens = 16;  // chunked prefills, and mixed steps
  config.registry = &registry;
  auto engine = test::make_engine(config);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(name_of(engine->info(), LayerKind::full, Phase::decode), "FULL");
  EXPECT_EQ(name_of(engine->info(), LayerKind::sliding_window, Phase::prefill), "WINDOW_P");
  EXPECT_EQ(name_of(engine->info(), LayerKind::sliding_window, Phase::decode), "WINDOW_D");
  const auto answers = test::run_all(*engine, requests());
  const auto steps = static_cast<int>(engine->stats().steps);
  engine.reset();

  const int full_layers = layers_of(kGptOss, LayerKind::full);
  const int window_layers = layers_of(kGptOss, LayerKind::sliding_window);
  ASSERT_GT(full_layers, 0);
  ASSERT_GT(window_layers, 0);
  EXPECT_EQ(full.plans, steps);
  EXPECT_EQ(full.extends + full.decodes, steps * full_layers);
  EXPECT_EQ(window_prefill.decodes + window_decode.extends, 0);
  EXPECT_EQ(window_prefill.extends, window_prefill.plans * window_layers);
  EXPECT_EQ(window_decode.decodes, window_decode.plans * window_layers);
  EXPECT_GT(window_prefill.plans + window_decode.plans, steps) << "mixed steps planned both";

  auto plain = test::make_engine(test::fixture_config(kGptOss));
  const auto expected = test::run_all(*plain, requests());
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i].ids, expected[i].ids);
}

TEST(PerKind, ExplainHasALineForEachKindWhereTheyDiffer) {
  for (const char* fixture : {kGptOss, kGemma}) {
    EngineConfig config = test::fixture_config(fixture, "full=cpu_attn");
    config.attention.backend_per_kind[LayerKind::sliding_window] = "torch_native";
    auto engine = test::make_engine(config);
    ASSERT_NE(engine, nullptr);
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      EXPECT_EQ(name_of(engine->info(), LayerKind::full, phase), "CPU_ATTN");
      EXPECT_EQ(name_of(engine->info(), LayerKind::sliding_window, phase), "TORCH_NATIVE");
    }
    EXPECT_EQ(engine->info().selection.device.kind, DeviceKind::cpu);
    const std::string text = explain(engine->info().selection);
    for (const char* part : {"full", "sliding_window", "CPU_ATTN", "TORCH_NATIVE"})
      EXPECT_THAT(text, HasSubstr(part)) << fixture;
  }
}

/// A fixture's folder without its weights.
class WithoutWeights : public ::testing::Test {
 protected:
  std::string without_weights(const std::string& fixture) {
    const fs::path dir = fs::path(::testing::TempDir()) / ("fovea_no_weights_" + fixture);
    fs::remove_all(dir);
    fs::copy(test::fixture_dir(fixture), dir);
    fs::remove(dir / "model.safetensors");
    return dir.string();
  }
  std::string refusal(const std::string& fixture, const std::string& backend) {
    EngineConfig config = test::fixture_config(fixture, backend);
    config.model = without_weights(fixture);
    const auto engine = Engine::create(config);
    return engine ? "accepted" : engine.error().message;
  }
};

TEST_F(WithoutWeights, ABackendIsRefusedFirst) {
  EXPECT_THAT(refusal(test::kLlama, "CPU_ATTN"), HasSubstr("safetensors"));
  for (const char* backend : {"FLASH_ATTN", "FLASHMLA", "TRITON_ATTN,CPU_ATTN", "CPU_ATTN,FLASHINFER"})
    EXPECT_THAT(refusal(test::kLlama, backend), StartsWith("Selected backend ")) << backend;
  EXPECT_THAT(refusal(test::kLlama, "FLASHMLA"),
              StartsWith("Selected backend FLASHMLA is not valid for this configuration. Reason: ["));
  EXPECT_THAT(refusal(test::kLlama, "FLASH_ATN"), StartsWith("Unknown attention backend: 'FLASH_ATN'"));
}

TEST_F(WithoutWeights, OneOfAKindToo) {
  EXPECT_THAT(refusal(kGptOss, "full=CPU_ATTN,swa=FLASHINFER"),
              HasSubstr("Selected backend FLASHINFER is not valid for this configuration."));
  EXPECT_THAT(refusal(kGptOss, "full=CPU_ATTN,swa=TORCH_NATIVE"), HasSubstr("safetensors"));
}

TEST_F(WithoutWeights, AnEmbedderToo) {
  EmbedConfig config;
  config.model = without_weights("bert_tanh_d16_bf16");
  config.attention.backend = "TRITON_ATTN";
  auto refused = Embedder::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, StartsWith("Selected backend TRITON_ATTN is not valid"));
  config.attention.backend = "CPU_ATTN";
  refused = Embedder::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("safetensors"));
}

}  // namespace
}  // namespace fovea
