#include "fovea/stream.h"

#include <atomic>

#include "device/stream.h"
#include "gtest/gtest.h"

namespace fovea {
namespace {

TEST(CpuStream, RunsOnItsOwnTeam) {
  auto stream = make_cpu_stream(3);
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  EXPECT_EQ((*stream)->pool().size(), 3);
  std::atomic<int> seen{0};
  (*stream)->pool().run([&](int worker) { seen |= 1 << worker; });
  EXPECT_EQ(seen, 0b111);
}

TEST(CpuStream, RefusesCountsThatCannotBe) {
  EXPECT_FALSE(make_cpu_stream(-1).ok());
  auto huge = make_cpu_stream(100000);
  ASSERT_FALSE(huge.ok());
  EXPECT_NE(huge.error().message.find("100000"), std::string::npos);
}

}  // namespace
}  // namespace fovea
