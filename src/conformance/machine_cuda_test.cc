// The GPU as a machine: memory, graphs, and a defect that is found there as on the CPU. Skipped without a
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "conformance/mutant.h"
#include "conformance/prove.h"
#include "device/cuda/cuda_stream.h"

namespace fovea::conformance {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class GpuMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = open_gpu();
    if (!gpu) GTEST_SKIP() << "SKIPPED: " << gpu.error().message;
    gpu_ = *std::move(gpu);
  }
  Machine& machine() { return *gpu_.machine; }

  /// A built backend that runs here.
  const BackendRegistry::Entry& flash_attn() {
    const auto& entries = builtin_backends().entries();
    return *std::ranges::find_if(
        entries, [](const auto& e) { return e.info->name == "FLASH_ATTN" && e.info->version == "FA2"; });
  }

  BackendReport prove_cell(const BackendRegistry::Factory& create, const char* column) {
    ProveOptions options;
    options.device = machine().device();
    options.machine = &machine();
    options.quick = true;
    options.threads = 2;
    options.only_cell = Cell{column, "yes", true};
    auto report = prove(*flash_attn().info, create, options);
    EXPECT_TRUE(report) << report.error().message;
    return *std::move(report);
  }

 private:
  Gpu gpu_;
};

TEST_F(GpuMachine, RoomIsPoisonAndMemoryKeepsWhatIsWritten) {
  const auto session = machine().open_session();
  ASSERT_TRUE(session);
  const uint32_t values[] = {1, 2, 3};
  const auto empty = (*session)->room(1000);
  const auto full = (*session)->put(values, sizeof values);
  ASSERT_TRUE(empty && full);
  const auto poison = (*session)->get(*empty, 1000);
  const auto back = (*session)->get(*full, sizeof values);
  ASSERT_TRUE((*session)->finish());
  EXPECT_TRUE(std::all_of(*poison, *poison + 1000, [](std::byte b) { return b == std::byte{kPoison}; }));
  EXPECT_EQ(std::memcmp(*back, values, sizeof values), 0);
}

TEST_F(GpuMachine, AReplayReadsMemoryAgain) {
  const auto session = machine().open_session();
  ASSERT_TRUE(session);
  const int first = 1, second = 2;
  const auto from = (*session)->room(sizeof first), to = (*session)->room(sizeof first);
  ASSERT_TRUE((*session)->write(*from, &first, sizeof first));
  ASSERT_TRUE((*session)->record(
      [&](Stream& stream) -> Status { return stream.cuda().copy(*to, *from, sizeof first); }));
  ASSERT_TRUE((*session)->write(*from, &second, sizeof second));
  ASSERT_TRUE((*session)->replay());
  const auto back = (*session)->get(*to, sizeof first);
  ASSERT_TRUE((*session)->finish());
  EXPECT_EQ(std::memcmp(*back, &second, sizeof second), 0);
}

TEST_F(GpuMachine, ProvesWindowsAndFindsOneThatIsAKeyShort) {
  const BackendReport right = prove_cell(flash_attn().create, "window");
  EXPECT_TRUE(right.all_right());
  const BackendReport wrong = prove_cell(
      [&] {
        auto mutant = std::make_unique<Mutant>(flash_attn().create());
        mutant->spec = [](AttentionSpec& s) {
          if (s.mask.window_left > 0) --s.mask.window_left;
        };
        return mutant;
      },
      "window");
  ASSERT_FALSE(wrong.failures.empty());
  EXPECT_THAT(wrong.failures.front().cells, Contains("window=yes"));
  EXPECT_THAT(wrong.failures.front().isa, HasSubstr("cuda"));
}

}  // namespace
}  // namespace fovea::conformance
