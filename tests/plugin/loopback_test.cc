// What a backend is given crosses the ABI whole: a backend of Fovea behind it proves the claims that it
// proves without it.
#include "loopback.h"

#include <gtest/gtest.h>

#include "conformance/prove.h"
#include "plugin/backend.h"

namespace fovea {
namespace {

class Loopback : public testing::TestWithParam<const char*> {};

TEST_P(Loopback, ProvesWhatTheBackendProves) {
  const auto* entry = builtin_backends().find(GetParam());
  ASSERT_NE(entry, nullptr);
  const auto library = plugin::Library::create(loopback::make(*entry), "loopback");
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_EQ((*library)->info().capability, entry->info->capability);
  conformance::ProveOptions options;
  options.quick = true;
  const auto report =
      conformance::prove((*library)->info(), [&] { return plugin::make_backend(**library); }, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& failure : report->failures)
    ADD_FAILURE() << failure.what;
  EXPECT_EQ(report->count(conformance::CellStatus::failed), 0);
  EXPECT_GT(report->count(conformance::CellStatus::proven), 80);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Loopback, testing::Values("TORCH_NATIVE", "CPU_ATTN"));

}  // namespace
}  // namespace fovea
