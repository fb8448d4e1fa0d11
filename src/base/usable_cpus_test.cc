#include "base/usable_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fovea {
namespace {

class UsableCpus : public testing::Test {
 protected:
  UsableCpus() : root_(testing::TempDir() + "usable_cpus_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    all_ = CPU_COUNT(&set);
  }
  ~UsableCpus() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int cpus() const { return usable_cpus(root_); }

  std::string root_;
  int all_ = 0;
};

TEST_F(UsableCpus, WithoutQuotaAreThoseOfTheMask) {
  EXPECT_EQ(cpus(), all_);  // no cgroups at all
  write("/proc/self/cgroup", "0::/a.slice/b\n");
  EXPECT_EQ(cpus(), all_);  // no cpu.max
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus(), all_);
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "garbage\n");
  EXPECT_EQ(cpus(), all_);
}

TEST_F(UsableCpus, QuotaOfV2IsRoundedUp) {
  write("/proc/self/cgroup", "0::/a.slice/b\n");
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus(), 1);
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "100001 100000\n");
  EXPECT_EQ(cpus(), std::min(all_, 2));
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "100000000 100000\n");
  EXPECT_EQ(cpus(), all_);
}

TEST_F(UsableCpus, QuotasAboveCountToo) {
  write("/proc/self/cgroup", "0::/a.slice/b\n");
  write("/sys/fs/cgroup/a.slice/b/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a.slice/cpu.max", "100000 100000\n");
  EXPECT_EQ(cpus(), 1);
  write("/sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");  // a container sees its own group as the root
  EXPECT_EQ(cpus(), 1);
}

TEST_F(UsableCpus, QuotaOfV1) {
  write("/proc/self/cgroup", "12:cpuset:/x\n4:cpu,cpuacct:/docker/1\n0::/\n");
  EXPECT_EQ(cpus(), all_);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), all_);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "90000\n");
  EXPECT_EQ(cpus(), 1);
}

}  // namespace
}  // namespace fovea
