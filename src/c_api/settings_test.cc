#include "c_api/settings.h"
#include "fovea/result.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace fovea::c_api {
namespace {

constexpr const char* kName = "FLASHINFER_USE_TENSOR_CORES";

TEST(Settings, TensorCoresOfTheEnvironment) {
  const auto applied = [](const char* value) {
    setenv(kName, value, 1);
    AttentionConfig config;
    const Status status = apply_environment(config);
    unsetenv(kName);
    if (!status.ok()) return status.error().message;
    if (!config.flashinfer_use_tensor_cores) return std::string("unset");
    return std::string(*config.flashinfer_use_tensor_cores ? "1 from " : "0 from ") +
           config.sources.at("flashinfer_use_tensor_cores");
  };
  EXPECT_EQ(applied(""), "unset");
  EXPECT_EQ(applied("1"), "1 from env FLASHINFER_USE_TENSOR_CORES");
  EXPECT_EQ(applied("0"), "0 from env FLASHINFER_USE_TENSOR_CORES");
  EXPECT_THAT(applied("yes"), ::testing::HasSubstr("FLASHINFER_USE_TENSOR_CORES is 'yes'; it must be 1"));
}

}  // namespace
}  // namespace fovea::c_api
