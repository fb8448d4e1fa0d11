// Backends of the calling program: a registry passed with the configuration.
#include "backends/cpu_attn/cpu_attn.h"
#include "fovea/embed.h"
#include "gmock/gmock.h"
#include "tests/engine/counting_backend.h"
#include "tests/engine/fixture.h"

namespace fovea {
namespace {

using test::CountingBackend;
using test::Counts;
using ::testing::HasSubstr;

/// builtin_backends() plus MY_ATTN, which is CPU_ATTN with a call counter.
class OwnRegistry : public ::testing::Test {
 protected:
  OwnRegistry() {
    info_ = cpu_attn_info();
    info_.name = "MY_ATTN";
    info_.aliases = {"mine"};
    info_.documented = nullptr;
    registry_.add(info_, [this] { return std::make_unique<CountingBackend>(counts_, make_cpu_attn()); });
  }

  BackendInfo info_;
  Counts counts_;
  BackendRegistry registry_ = builtin_backends();
};

TEST_F(OwnRegistry, ACopyIsARegistryOfItsOwn) {
  EXPECT_EQ(registry_.entries().size(), builtin_backends().entries().size() + 1);
  EXPECT_EQ(builtin_backends().find("MY_ATTN"), nullptr);
  const BackendRegistry copy = registry_;
  ASSERT_NE(copy.find("mine"), nullptr);
  EXPECT_EQ(copy.find("mine")->info, &info_);
  EXPECT_EQ(copy.mla_prefill().size(), builtin_backends().mla_prefill().size());
}

TEST_F(OwnRegistry, TheEngineSelectsAndRunsItByName) {
  for (const char* name : {"MY_ATTN", "mine", "my_attn,CPU_ATTN"}) {
    EngineConfig config = test::fixture_config(test::kLlama, name);
    const auto unknown = Engine::create(config);
    ASSERT_FALSE(unknown.ok()) << "of the program's own backends none is called that";
    EXPECT_THAT(unknown.error().message, HasSubstr("Unknown attention backend"));
    config.registry = &registry_;
    counts_ = {};
    const auto engine = test::make_engine(config);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->info().selection.kinds[0].prefill.backend, &info_);
    const auto answer = test::run_one(*engine, test::greedy(test::prompt_of(30), 6));
    EXPECT_GT(counts_.extends, 0);
    EXPECT_EQ(counts_.decodes > 0, std::string(name).find(',') == std::string::npos);
    const auto builtin = test::make_engine(test::fixture_config(test::kLlama, "CPU_ATTN"));
    EXPECT_EQ(answer.ids, test::run_one(*builtin, test::greedy(test::prompt_of(30), 6)).ids);
  }
}

TEST_F(OwnRegistry, AutomaticChoiceTriesItAfterTheOthers) {
  EngineConfig config = test::fixture_config(test::kLlama, "auto");
  config.registry = &registry_;
  const auto engine = test::make_engine(config);
  ASSERT_NE(engine, nullptr);
  const auto& candidates = engine->info().selection.kinds[0].prefill.candidates;
  EXPECT_EQ(engine->info().selection.kinds[0].prefill.backend->name, "CPU_ATTN");
  EXPECT_EQ(candidates.back().backend, &info_);
}

TEST_F(OwnRegistry, AnErrorListsItsName) {
  EngineConfig config = test::fixture_config(test::kLlama, "MY_ATN");
  config.registry = &registry_;
  const auto refused = Engine::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("Did you mean 'MY_ATTN'?"));
}

TEST_F(OwnRegistry, AnEmbedderRunsItToo) {
  EmbedConfig config;
  config.model = test::fixture_dir("bert_tanh_d16_bf16");
  config.attention.backend = "mine";
  config.threads = 2;
  ASSERT_FALSE(Embedder::create(config).ok());
  config.registry = &registry_;
  const auto embedder = Embedder::create(config);
  ASSERT_TRUE(embedder.ok()) << embedder.error().message;
  const std::vector<std::vector<int32_t>> inputs = {{1, 2, 3}};
  EXPECT_TRUE((*embedder)->embed(inputs).ok());
  EXPECT_GT(counts_.extends, 0);
}

TEST_F(OwnRegistry, CheckSaysWhichNamesAreTaken) {
  BackendInfo info = cpu_attn_info();
  const auto why = [&](std::string_view name, std::vector<std::string_view> aliases) {
    info.name = name;
    info.aliases = std::move(aliases);
    const Status status = registry_.check(info);
    return status ? std::string("free") : status.error().message;
  };
  EXPECT_EQ(why("OTHER", {"other"}), "free");
  EXPECT_THAT(why("CPU_ATTN", {}), HasSubstr("CPU_ATTN is registered already"));
  EXPECT_THAT(why("MINE", {}), HasSubstr("MY_ATTN has that name"));
  EXPECT_THAT(why("OTHER", {"FA3"}), HasSubstr("can't be called FA3: FLASH_ATTN (FA3) has that name"));
  for (const char* bad : {"", "auto", "AUTO", "a,b", "a=b", "a b"}) {
    EXPECT_THAT(why(bad, {}), HasSubstr("choose another name")) << bad;
    EXPECT_THAT(why("OTHER", {bad}), HasSubstr("choose another name")) << bad;
  }
}

}  // namespace
}  // namespace fovea
