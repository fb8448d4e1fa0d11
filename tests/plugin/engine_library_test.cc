// The engine with a backend from a shared library, by the setting for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/attention_backend.h"
#include "fovea/embed.h"
#include "fovea/engine.h"

namespace fovea {
namespace {

using testing::HasSubstr;

EngineConfig demo() {
  EngineConfig config;
  config.model = FOVEA_SOURCE_DIR "/models/demo";
  config.num_pages = 64;
  config.threads = 1;
  return config;
}

TEST(EngineLibrary, ServesTheModel) {
  EngineConfig config = demo();
  config.backend_libraries = {FOVEA_BACKENDS "/example_attn.so"};
  config.attention.backend = "cpu,EXAMPLE_ATTN";
  const auto engine = Engine::create(config);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const KindSelection& kind = (*engine)->info().selection.kinds.front();
  EXPECT_EQ(kind.prefill.backend->name, "CPU_ATTN");
  EXPECT_EQ(kind.decode.backend->name, "EXAMPLE_ATTN");
  auto prompt = (*engine)->tokenize("What is 2 + 2?", true);
  ASSERT_TRUE(prompt.ok());
  GenerateRequest request;
  request.prompt_ids = *prompt;
  request.sampling.max_tokens = 4;
  RequestOutput last;
  ASSERT_TRUE((*engine)->submit(request, [&](const RequestOutput& output) { last = output; }).ok());
  (*engine)->wait_idle();
  EXPECT_TRUE(last.finish == FinishReason::length || last.finish == FinishReason::stop) << last.error.message;
}

/// Another engine of the process may load it too, with the caller's registry.
TEST(EngineLibrary, IsAddedToTheRegistryThatIsGiven) {
  BackendRegistry registry;
  EngineConfig config = demo();
  config.registry = &registry;
  config.backend_libraries = {FOVEA_BACKENDS "/example_attn.so"};
  const auto engine = Engine::create(config);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ((*engine)->info().selection.kinds.front().decode.backend->name, "EXAMPLE_ATTN");
  EXPECT_TRUE(registry.entries().empty());
}

TEST(EngineLibrary, IsRefusedBeforeAnythingIsRead) {
  EngineConfig config = demo();
  config.model = "/no/such/model";
  config.backend_libraries = {"/no/such.so"};
  EXPECT_THAT(Engine::create(config).error().message, HasSubstr("/no/such.so: there is no such file"));
  EmbedConfig embed;
  embed.model = config.model;
  embed.backend_libraries = config.backend_libraries;
  EXPECT_THAT(Embedder::create(embed).error().message, HasSubstr("/no/such.so: there is no such file"));
}

}  // namespace
}  // namespace fovea
