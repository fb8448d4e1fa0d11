#include "engine/kv_sizing.h"
#include "fovea/result.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace fovea {
namespace {

KvSizing base() {
  KvSizing s;
  s.bytes_per_page = 1000;
  s.page_size = 16;
  s.max_seq_len = 100;
  s.sequence_pages = 7;
  s.max_running = 4;
  s.available = 1'000'000;
  return s;
}

TEST(KvSizingTest, TakesTheGivenNumberAsItIs) {
  KvSizing s = base();
  for (int64_t pages : {7, 50, 1000}) {
    s.num_pages = pages;
    EXPECT_EQ(*choose_num_pages(s), pages);
  }
}

TEST(KvSizingTest, ASequenceOfTheLongestLengthMustFit) {
  KvSizing s = base();
  s.num_pages = 6;
  const auto given = choose_num_pages(s);
  ASSERT_FALSE(given.ok());
  EXPECT_NE(given.error().message.find("96"), std::string::npos) << given.error().message;
  EXPECT_NE(given.error().message.find("raise the number of pages to 7"), std::string::npos);

  s.num_pages.reset();
  s.available = 12'999;  // half of it holds 6 pages
  const auto share = choose_num_pages(s);
  ASSERT_FALSE(share.ok());
  EXPECT_NE(share.error().message.find("maximum sequence length to 96 or less"), std::string::npos)
      << share.error().message;
  s.available = 14'000;
  EXPECT_EQ(*choose_num_pages(s), 7);
  s.available = 0;
  EXPECT_FALSE(choose_num_pages(s).ok());
}

TEST(KvSizingTest, ShareAndCap) {
  KvSizing s = base();
  s.available = 40'000;
  EXPECT_EQ(*choose_num_pages(s), 20);
  s.memory_share = 0.25;
  EXPECT_EQ(*choose_num_pages(s), 10);
  s.available = 1'000'000;
  EXPECT_EQ(*choose_num_pages(s), 4 * 7);
}

TEST(KvSizingTest, AWindowOrAnEncoderSetsTheFloor) {
  KvSizing s = base();
  s.sequence_pages = 3;
  s.num_pages = 3;
  EXPECT_EQ(*choose_num_pages(s), 3);
  s.num_pages = 2;
  const auto refused = choose_num_pages(s);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("(48)"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("set the maximum sequence length"), std::string::npos);
}

TEST(KvSizingTest, RefusesNumbersOutOfRange) {
  for (int64_t pages : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    KvSizing s = base();
    s.num_pages = pages;
    EXPECT_FALSE(choose_num_pages(s).ok()) << pages;
  }
  KvSizing s = base();
  s.num_pages = 1001;  // does not fit the memory
  EXPECT_FALSE(choose_num_pages(s).ok());
  for (double share : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    s = base();
    s.memory_share = share;
    EXPECT_FALSE(choose_num_pages(s).ok()) << share;
  }
}

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fovea-mem-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(AvailableMemoryTest, NothingKnown) {
  EXPECT_EQ(available_memory(root_), std::numeric_limits<int64_t>::max());
}

TEST_F(AvailableMemoryTest, MemAvailable) {
  write("/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    2000 kB\n");
  EXPECT_EQ(available_memory(root_), 2000 * 1024);
}

TEST_F(AvailableMemoryTest, ControlGroupsV2UpTheTree) {
  write("/proc/meminfo", "MemAvailable: 2000 kB\n");
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(available_memory(root_), 2000 * 1024);
  write("/sys/fs/cgroup/a/memory.max", "1000000\n");
  write("/sys/fs/cgroup/a/memory.current", "700000\n");
  EXPECT_EQ(available_memory(root_), 300000);
  write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\n");
  EXPECT_EQ(available_memory(root_), 400000);
  write("/sys/fs/cgroup/a/memory.current", "2000000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST_F(AvailableMemoryTest, ControlGroupsV1) {
  write("/proc/self/cgroup", "5:cpu,memory:/x\n4:freezer:/y\n");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available_memory(root_), 4000);
}

}  // namespace
}  // namespace fovea
