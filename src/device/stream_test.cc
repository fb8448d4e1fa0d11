#include "fovea/stream.h"

#include <pthread.h>

#include <atomic>

#include "base/thread_pool.h"
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

TEST(CpuStream, SaysWhenTheSystemHasNoMoreThreads) {
  pthread_attr_t saved, huge;
  ASSERT_EQ(pthread_getattr_default_np(&saved), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);  // more than the address space has
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto stream = make_cpu_stream(3);
  pthread_setattr_default_np(&saved);
  ASSERT_FALSE(stream.ok());
  EXPECT_NE(stream.error().message.find("3 threads"), std::string::npos);
}

}  // namespace
}  // namespace fovea
