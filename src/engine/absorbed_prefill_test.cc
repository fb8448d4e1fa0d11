// Prefill of latent attention by the backend of decode.
#include "attention/absorbed_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(AbsorbedPrefill, IsByTheBackendOfDecode) {
  AttentionSpec spec;
  spec.use_mla = true;
  spec.num_heads = 16;
  spec.num_kv_heads = 1;
  spec.head_dim = 576;
  spec.v_head_dim = 512;
  spec.mla_nope_head_dim = spec.mla_v_head_dim = 128;
  spec.mla_rope_head_dim = 64;
  spec.scale = 0.1f;
  spec.dtype = DType::bf16;
  const auto registry = project_backends();
  const auto selected = [&](const BackendRegistry& from) {
    const auto selection = consider({}, std::span(&spec, 1), *parse_device("sm90"), from);
    EXPECT_TRUE(selection.ok());
    return selection->kinds.front();
  };
  const KindSelection apart = selected(registry), together = selected(without_mla_prefill(registry));
  for (const Candidate& candidate : apart.prefill.candidates)
    EXPECT_NE(candidate.backend, apart.decode.candidates.front().backend) << candidate.backend->label();
  ASSERT_FALSE(together.prefill.candidates.empty());
  EXPECT_EQ(together.prefill.candidates.front().backend, together.decode.candidates.front().backend);
}

TEST(AbsorbedPrefill, SettingsWithoutEffectAreReported) {
  AttentionConfig config;
  EXPECT_THAT(drop_mla_prefill(config), IsEmpty());
  config.use_cudnn_prefill = true;
  EXPECT_THAT(drop_mla_prefill(config), ElementsAre(HasSubstr("use_cudnn_prefill has no effect")));
  EXPECT_FALSE(config.use_cudnn_prefill.has_value());
}

}  // namespace
}  // namespace fovea
