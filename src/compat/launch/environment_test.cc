#include "compat/launch/environment.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <utility>

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<EnvironmentNote> apply(const std::vector<std::string>& environment, AttentionConfig& config) {
  auto notes = apply_environment(environment, config);
  EXPECT_TRUE(notes) << (notes ? "" : notes.error().message);
  return notes ? *std::move(notes) : std::vector<EnvironmentNote>();
}

std::string error(const std::vector<std::string>& environment) {
  AttentionConfig config;
  const auto notes = apply_environment(environment, config);
  return notes ? "" : notes.error().message;
}

TEST(Environment, VariablesActWithTheirNameAsSource) {
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (variable.use != VariableUse::acts) continue;
    AttentionConfig config;
    const auto notes = apply({"PATH=/bin", std::string(variable.name) + "=1"}, config);
    EXPECT_EQ(config.source(variable.key), "env " + std::string(variable.name));
    EXPECT_EQ(config.batch_invariant.value_or(false) + config.flashinfer_use_tensor_cores.value_or(false), 1);
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_TRUE(notes[0].applied);
  }
}

TEST(Environment, ZeroIsAValue) {
  AttentionConfig config;
  apply({"FLASHINFER_USE_TENSOR_CORES=0"}, config);
  EXPECT_EQ(config.flashinfer_use_tensor_cores, false);
}

TEST(Environment, AnEmptyVariableIsNotSet) {
  for (const EnvironmentVariable& variable : environment_variables()) {
    AttentionConfig config;
    EXPECT_THAT(apply({std::string(variable.name) + "="}, config), IsEmpty()) << variable.name;
    EXPECT_TRUE(config.sources.empty()) << variable.name;
  }
  AttentionConfig config;
  apply({"FLASHINFER_USE_TENSOR_CORES=", "MINISGL_FLASHINFER_USE_TENSOR_CORES=1"}, config);
  EXPECT_EQ(config.flashinfer_use_tensor_cores, true);
}

TEST(Environment, FlagsWin) {
  AttentionConfig config;
  config.flashinfer_use_tensor_cores = false;
  config.sources["flashinfer_use_tensor_cores"] = "-ac.flashinfer_use_tensor_cores";
  const auto notes = apply({"FLASHINFER_USE_TENSOR_CORES=1"}, config);
  EXPECT_EQ(config.flashinfer_use_tensor_cores, false);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_FALSE(notes[0].applied);
  EXPECT_THAT(notes[0].text, HasSubstr("-ac.flashinfer_use_tensor_cores"));
}

TEST(Environment, BadAndContradictingValuesAreErrors) {
  EXPECT_THAT(error({"VLLM_BATCH_INVARIANT=maybe"}),
              AllOf(HasSubstr("VLLM_BATCH_INVARIANT=maybe"), HasSubstr("0, 1")));
  EXPECT_THAT(error({"FLASHINFER_USE_TENSOR_CORES=1", "MINISGL_FLASHINFER_USE_TENSOR_CORES=0"}),
              HasSubstr("contradict"));
  AttentionConfig config;
  for (const EnvironmentNote& note :
       apply({"FLASHINFER_USE_TENSOR_CORES=1", "MINISGL_FLASHINFER_USE_TENSOR_CORES=true"}, config))
    EXPECT_TRUE(note.applied) << "two that agree need no warning: " << note.name;
}

TEST(Environment, ReplacedVariablesAreNotApplied) {
  AttentionConfig config;
  const auto notes = apply({"VLLM_ATTENTION_BACKEND=FLASHINFER"}, config);
  EXPECT_EQ(config.backend, "");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_FALSE(notes[0].applied);
  EXPECT_THAT(notes[0].text, HasSubstr("--attention-backend"));
  EXPECT_THAT(apply({"VLLM_ATTENTION_BACKEND="}, config), IsEmpty());
  EXPECT_EQ(apply({"VLLM_ATTENTION_BACKEND=a\nb\x1b"}, config).at(0).value, "a?b?");
}

TEST(Environment, UnknownNamesWithOurPrefixAreWarnedOf) {
  const auto check = [](const std::string& entry) {
    const auto warnings = unknown_variables({"HOME=/", entry}, {"FOVEA_PORT", "FOVEA_MAX_CONNECTIONS"});
    return warnings.empty() ? "" : warnings.at(0);
  };
  EXPECT_THAT(check("FOVEA_BATCH_INVARIAN=1"), HasSubstr("did you mean FOVEA_BATCH_INVARIANT?"));
  EXPECT_THAT(check("FOVEA_MAX_CONECTIONS=1"), HasSubstr("did you mean FOVEA_MAX_CONNECTIONS?"));
  EXPECT_THAT(check("FOVEA_X=secret"), AllOf(HasSubstr("FOVEA_X is not known"), Not(HasSubstr("secret"))));
  EXPECT_EQ(check("FOVEA_PORT=3"), "");
  EXPECT_EQ(check("FOVEA_TEST_SEED=3"), "");
  EXPECT_EQ(check("FOVEA_BATCH_INVARIANT=1"), "");
  EXPECT_EQ(check("NOT_FOVEA_X=1"), "");
}

}  // namespace
}  // namespace fovea
