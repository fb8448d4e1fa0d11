#include <gmock/gmock.h>

#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cuda/plan/plan_launch.h"
#include "kernels/cuda/plan/plan_test_support.h"

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

class PlanOnDevice : public CudaTest {
 protected:
  static PlanPolicy policy_of(bool folds) {
    PlanPolicy policy;
    policy.num_kv_heads = 4;
    policy.group = 4;
    policy.split_keys = 512;
    policy.max_split_tokens = 4;
    policy.ctas = 132;
    policy.folds = folds;
    return policy;
  }

  /// The planner's part of a workspace on the device is that of the host, byte for byte.
  void expect_same(const HostPlan& host, const DeviceBuffer& workspace) {
    const std::vector<std::byte> got = download<std::byte>(workspace);
    const PlanLayout& layout = host.layout;
    const auto* expected = reinterpret_cast<const std::byte*>(host.workspace.data());
    const PlanHeader& header = *host.view.header;
    const auto same = [&](size_t offset, size_t bytes) {
      return std::memcmp(got.data() + offset, expected + offset, bytes) == 0;
    };
    EXPECT_TRUE(same(layout.header, sizeof(PlanHeader)));
    EXPECT_TRUE(same(layout.tiles, static_cast<size_t>(header.tiles) * sizeof(PlanTile)));
    EXPECT_TRUE(same(layout.starts, static_cast<size_t>(host.policy.ctas + 1) * sizeof(PlanStart)));
    EXPECT_TRUE(same(layout.merges, static_cast<size_t>(header.merges) * sizeof(PlanMerge)));
  }
};

TEST_F(PlanOnDevice, IsTheHostsByteForByte) {
  std::mt19937 random(4);
  // Few and many sequences and tiles: prefix sums in shared memory and in the workspace.
  for (const auto& [seqs, rows] : {std::pair{1, 1}, {5, 40}, {256, 1}, {511, 9}, {5000, 3}, {40, 3000}}) {
    for (const bool folds : {false, true}) {
      const PlanStep step = random_step(random, seqs, rows, 20000);
      PlanPolicy policy = policy_of(folds);
      if (seqs == 5) policy.mask.window_left = 700, policy.mask.sink_tokens = 100;
      const HostPlan host(policy, step.limits(), step);
      ASSERT_EQ(host.view.header->error, PlanError::none);
      const DeviceBuffer offsets = upload(step.q_offsets()), lens = upload(step.n_k);
      const DeviceBuffer workspace = poisoned<std::byte>(host.layout.bytes);
      const PlanInput input{offsets.as<int32_t>(), lens.as<int32_t>(), nullptr, nullptr, seqs};
      ASSERT_EQ(
          error_of(launch_plan(policy, host.layout, input, {workspace.data(), workspace.size()}, stream())),
          "");
      expect_same(host, workspace);
    }
  }
}

TEST_F(PlanOnDevice, ReplaysForOtherLengths) {
  std::mt19937 random(5);
  AttentionLimits limits;
  limits.max_seqs = 64, limits.max_tokens = 256, limits.max_kv_len = 9000, limits.max_kv_tokens = 64 * 9000;
  const PlanPolicy policy = policy_of(true);
  const auto layout = plan_layout(policy, limits, 8);
  ASSERT_TRUE(layout.ok());
  const DeviceBuffer workspace = poisoned<std::byte>(layout->bytes);
  const DeviceBuffer offsets = upload(std::vector<int32_t>(65)), lens = upload(std::vector<int32_t>(64));
  const PlanInput input{offsets.as<int32_t>(), lens.as<int32_t>(), nullptr, nullptr, 64};
  auto graph = CudaGraph::capture(stream(), [&](CudaStream& s) {
    return launch_plan(policy, *layout, input, {workspace.data(), workspace.size()}, s);
  });
  ASSERT_TRUE(graph.ok()) << error_of(graph);
  for (int round = 0; round < 3; ++round) {
    const PlanStep step = random_step(random, 64, 3, 9000);
    const std::vector<int32_t> q_offsets = step.q_offsets();
    ASSERT_EQ(error_of(stream().copy(offsets.data(), q_offsets.data(), offsets.size())), "");
    ASSERT_EQ(error_of(stream().copy(lens.data(), step.n_k.data(), lens.size())), "");
    ASSERT_EQ(error_of(graph->replay(stream())), "");
    expect_same(HostPlan(policy, limits, step), workspace);
  }
}

TEST_F(PlanOnDevice, LengthsBeyondTheLimitsGiveAnEmptyPlan) {
  const PlanStep fits{{1, 2}, {700, 900}}, beyond{{1, 2}, {700, 90000}};
  const PlanPolicy policy = policy_of(true);
  const HostPlan host(policy, fits.limits(), beyond);
  EXPECT_EQ(host.view.header->error, PlanError::kv_len);
  const DeviceBuffer offsets = upload(beyond.q_offsets()), lens = upload(beyond.n_k);
  const DeviceBuffer workspace = poisoned<std::byte>(host.layout.bytes);
  const PlanInput input{offsets.as<int32_t>(), lens.as<int32_t>(), nullptr, nullptr, 2};
  ASSERT_EQ(error_of(launch_plan(policy, host.layout, input, {workspace.data(), workspace.size()}, stream())),
            "");
  expect_same(host, workspace);
}

TEST_F(PlanOnDevice, RefusesBeforeTheLaunchWhatTheHostSees) {
  const PlanStep step{{1}, {70}};
  const PlanPolicy policy = policy_of(true);
  const auto layout = plan_layout(policy, step.limits(), 8);
  ASSERT_TRUE(layout.ok());
  const DeviceBuffer offsets = upload(step.q_offsets()), lens = upload(step.n_k);
  const DeviceBuffer workspace = poisoned<std::byte>(layout->bytes + 64);
  PlanInput input{offsets.as<int32_t>(), lens.as<int32_t>(), nullptr, nullptr, 1};
  const auto launch = [&](size_t skip, size_t bytes) {
    return error_of(launch_plan(policy, *layout, input, {workspace.data() + skip, bytes}, stream()));
  };
  EXPECT_EQ(launch(0, layout->bytes), "");
  EXPECT_THAT(launch(0, layout->bytes - 1), HasSubstr("the limits need " + std::to_string(layout->bytes)));
  EXPECT_THAT(launch(4, layout->bytes), HasSubstr("aligned to 64"));
  input.num_seqs = 2;
  EXPECT_THAT(launch(0, layout->bytes), HasSubstr("2 sequences exceeds the limit of 1"));
  input = {nullptr, nullptr, nullptr, nullptr, 1};
  EXPECT_THAT(launch(0, layout->bytes), HasSubstr("q_offsets and kv_lens"));
}

}  // namespace
}  // namespace fovea::cuda
