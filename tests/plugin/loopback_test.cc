// Everything that a backend receives crosses the ABI intact: a backend of Fovea behind it proves the claims
// that it proves without it.
#include "loopback.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

class Loopback : public testing::TestWithParam<const char*> {};

TEST_P(Loopback, ProvesWhatTheBackendProves) {
  loopback::expect_proof(GetParam(), loopback::with_cpu_stream, {});
}

INSTANTIATE_TEST_SUITE_P(Cpu, Loopback, testing::Values("TORCH_NATIVE", "CPU_ATTN"));

}  // namespace
}  // namespace fovea
