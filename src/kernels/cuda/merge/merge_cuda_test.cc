#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/float16.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cuda/merge/merge_launch.h"
#include "kernels/cuda/merge/merge_test.h"
#include "kernels/cuda/plan/plan_launch.h"
#include "kernels/cuda/plan/plan_test_support.h"

namespace fovea::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct States {
  int parts, rows, heads, dv;
  std::vector<float> o, lse;  // [parts, rows, heads, dv], [parts, rows, heads]
};

States random_states(std::mt19937& random, int parts, int rows, int heads, int dv) {
  std::normal_distribution<float> normal;
  States s{parts, rows, heads, dv, {}, {}};
  const float empties[] = {-kInf, kInf, kNan};
  for (int i = 0; i < parts * rows * heads; ++i) {
    const bool empty = random() % 4 == 0;
    s.lse.push_back(empty ? empties[random() % 3] : 8 * normal(random));
    for (int d = 0; d < dv; ++d)
      s.o.push_back(empty ? kNan : normal(random));  // garbage must not leak
  }
  return s;
}

/// The merge of (row, head) in fp64.
struct Reference {
  std::vector<double> o;
  double lse = -std::numeric_limits<double>::infinity();
};

template <class Lse, class O>
Reference reference(int parts, int dv, const Lse& lse, const O& o) {
  Reference out{std::vector<double>(static_cast<size_t>(dv))};
  double total = 0, most = -1e300;
  for (int i = 0; i < parts; ++i)
    if (lse(i) < kInf) most = std::fmax(most, static_cast<double>(lse(i)));
  for (int i = 0; i < parts; ++i) {
    if (!(lse(i) < kInf) || lse(i) == -kInf) continue;
    const double w = std::exp(static_cast<double>(lse(i)) - most);
    total += w;
    for (int d = 0; d < dv; ++d)
      out.o[static_cast<size_t>(d)] += w * static_cast<double>(o(i, d));
  }
  if (total == 0) return out;
  for (double& x : out.o)
    x /= total;
  out.lse = most + std::log(total);
  return out;
}

void expect_lse(float got, double expected) {
  if (std::isinf(expected))
    EXPECT_EQ(got, -kInf);
  else
    EXPECT_NEAR(got, expected, 2e-5);
}

class MergeOnDevice : public CudaTest {
 protected:
  MergeParts parts_of(const States& s, const DeviceBuffer& o, const DeviceBuffer& lse) {
    MergeParts parts;
    const int64_t lse_stride = int64_t{s.rows} * s.heads, o_stride = lse_stride * s.dv;
    parts.first = {o.data(), lse.as<float>()};
    parts.rest = {o.as<float>() + o_stride, lse.as<float>() + lse_stride};
    parts.o_stride = o_stride;
    parts.lse_stride = lse_stride;
    parts.parts = s.parts;
    parts.rows = s.rows, parts.heads = s.heads, parts.dv = s.dv;
    parts.dtype = DType::f32;
    return parts;
  }
};

TEST_F(MergeOnDevice, StatesMergeAsDefined) {
  std::mt19937 random(1);
  for (const int count : {1, 2, 3, 33, 200}) {
    for (const int dv : {64, 128, 300}) {
      const States s = random_states(random, count, 5, 3, dv);
      const DeviceBuffer o = upload(s.o), lse = upload(s.lse);
      const size_t rows = static_cast<size_t>(s.rows * s.heads);
      const DeviceBuffer out = poisoned<float>(rows * static_cast<size_t>(dv)),
                         out_lse = poisoned<float>(rows);
      MergeOutput output{out.data(), DType::f32, int64_t{s.heads} * dv, out_lse.as<float>()};
      ASSERT_EQ(error_of(launch_merge_states(parts_of(s, o, lse), output, stream())), "");
      const std::vector<float> got = download<float>(out), got_lse = download<float>(out_lse);
      for (size_t r = 0; r < rows; ++r) {
        const auto at = [&](int i) { return static_cast<size_t>(i) * rows + r; };
        const Reference expected = reference(
            count, dv, [&](int i) { return s.lse[at(i)]; },
            [&](int i, int d) { return s.o[at(i) * static_cast<size_t>(dv) + static_cast<size_t>(d)]; });
        expect_lse(got_lse[r], expected.lse);
        for (size_t d = 0; d < static_cast<size_t>(dv); ++d)
          ASSERT_NEAR(got[r * static_cast<size_t>(dv) + d], expected.o[d], 3e-5)
              << count << ", " << dv << ", " << r;
      }
    }
  }
}

// What an attention kernel that keeps a pair to itself computes, and what the merge of its records would.
TEST_F(MergeOnDevice, FoldingGivesTheSameBits) {
  std::mt19937 random(2);
  for (const int count : {1, 2, 7, 40, 300}) {
    const States s = random_states(random, count, 64, 1, 96);
    const DeviceBuffer o = upload(s.o), lse = upload(s.lse);
    const DeviceBuffer merged = poisoned<float>(64 * 96), merged_lse = poisoned<float>(64);
    const DeviceBuffer folded = poisoned<float>(64 * 96), folded_lse = poisoned<float>(64);
    MergeOutput output{merged.data(), DType::f32, 96, merged_lse.as<float>()};
    ASSERT_EQ(error_of(launch_merge_states(parts_of(s, o, lse), output, stream())), "");
    launch_fold_test(o.as<float>(), lse.as<float>(), count, 64, 96, folded.as<float>(),
                     folded_lse.as<float>(), stream().handle());
    EXPECT_EQ(download<uint32_t>(folded), download<uint32_t>(merged)) << count;
    EXPECT_EQ(download<uint32_t>(folded_lse), download<uint32_t>(merged_lse)) << count;
  }
}

TEST_F(MergeOnDevice, TwoTensorsOf16BitsWithSinks) {
  // Golden: fovea's merge of two parts of one element.
  const auto bits = [](float x) { return float_to_bf16(x); };
  const DeviceBuffer a = upload<uint16_t>({bits(1.75f), bits(2.0f)}),
                     b = upload<uint16_t>({bits(4.0f), bits(8.0f)});
  const DeviceBuffer lse_a = upload<float>({1.5f, -kInf}), lse_b = upload<float>({-0.25f, -kInf});
  const DeviceBuffer sinks = upload<float>({0.5f, 0.25f});
  const DeviceBuffer out = poisoned<uint16_t>(2), out_lse = poisoned<float>(2);
  MergeParts parts;
  parts.first = {a.data(), lse_a.as<float>()};
  parts.rest = {b.data(), lse_b.as<float>()};
  parts.parts = 2, parts.rows = 1, parts.heads = 2, parts.dv = 1;
  MergeOutput output{out.data(), DType::bf16, 2, out_lse.as<float>(), sinks.as<float>(), false};
  ASSERT_EQ(error_of(launch_merge_states(parts, output, stream())), "");
  const double wa = std::exp(1.5), wb = std::exp(-0.25), sink = std::exp(0.5);
  EXPECT_NEAR(bf16_to_float(download<uint16_t>(out)[0]), (wa * 1.75 + wb * 4) / (wa + wb + sink), 8e-3);
  EXPECT_EQ(download<uint16_t>(out)[1], 0);  // no key at all
  EXPECT_NEAR(download<float>(out_lse)[0], std::log(wa + wb), 1e-6);
  EXPECT_EQ(download<float>(out_lse)[1], -kInf);
  output.lse_includes_sink = true;
  ASSERT_EQ(error_of(launch_merge_states(parts, output, stream())), "");
  EXPECT_NEAR(download<float>(out_lse)[0], std::log(wa + wb + sink), 1e-6);
  EXPECT_EQ(download<float>(out_lse)[1], 0.25f);
}

TEST_F(MergeOnDevice, RecordsOfAPlanReachTheirRows) {
  std::mt19937 random(3);
  for (const bool folds : {false, true}) {
    const PlanStep step{{1, 2, 0, 1, 3}, {5000, 300, 9, 40, 2100}};
    PlanPolicy policy;
    policy.num_kv_heads = 2, policy.group = 3, policy.tile_rows = 4, policy.split_keys = 256, policy.ctas = 5;
    policy.folds = folds;
    constexpr int kDv = 136, kHeads = 6, kRows = 7;
    const HostPlan host(policy, step.limits(), step, kDv);
    const DeviceBuffer offsets = upload(step.q_offsets()), lens = upload(step.n_k);
    const DeviceBuffer workspace = poisoned<std::byte>(host.layout.bytes);
    const PlanInput input{offsets.as<int32_t>(), lens.as<int32_t>(), nullptr, nullptr, 5};
    ASSERT_EQ(
        error_of(launch_plan(policy, host.layout, input, {workspace.data(), workspace.size()}, stream())),
        "");
    const PlanView view = plan_view(host.layout, workspace.data());
    const int records = static_cast<int>(host.view.header->records);
    const States s = random_states(random, records, 1, 1, kDv);
    ASSERT_EQ(error_of(stream().copy(view.partial_o, s.o.data(), s.o.size() * 4)), "");
    ASSERT_EQ(error_of(stream().copy(view.partial_lse, s.lse.data(), s.lse.size() * 4)), "");
    const DeviceBuffer out = poisoned<float>(kRows * kHeads * kDv), out_lse = poisoned<float>(kRows * kHeads);
    MergeOutput output{out.data(), DType::f32, kHeads * kDv, out_lse.as<float>()};
    ASSERT_EQ(error_of(launch_merge_records(policy, host.layout, view, output, 132, stream())), "");
    const std::vector<float> got = download<float>(out), got_lse = download<float>(out_lse);
    std::vector<int> merged(kRows * kHeads);
    for (int m = 0; m < host.view.header->merges; ++m) {
      const PlanMerge& merge = host.view.merges[m];
      const PlanTile& tile = host.view.tiles[merge.tile];
      for (int head = merge.head; head < merge.head + merge.heads; ++head) {
        for (int r = 0; r < tile.rows; ++r) {
          const int row = tile.q_row + (tile.row + r) / 3, query_head = 3 * head + (tile.row + r) % 3;
          const auto at = static_cast<size_t>(row * kHeads + query_head);
          ++merged[at];
          const auto record = [&](int k) { return static_cast<size_t>(record_of(tile, head, k, r)); };
          const Reference expected = reference(
              tile.chunks, kDv, [&](int k) { return s.lse[record(k)]; },
              [&](int k, int d) { return s.o[record(k) * kDv + static_cast<size_t>(d)]; });
          expect_lse(got_lse[at], expected.lse);
          for (size_t d = 0; d < kDv; ++d)
            ASSERT_NEAR(got[at * kDv + d], expected.o[d], 3e-5);
        }
      }
    }
    for (size_t at = 0; at < merged.size(); ++at)
      EXPECT_EQ(std::isnan(got_lse[at]), merged[at] == 0) << "rows that are not merged stay as they are";
    EXPECT_GT(host.view.header->merge_units, 0);
  }
}

TEST_F(MergeOnDevice, RefusesWhatMakesNoSense) {
  MergeParts parts;
  parts.heads = 1, parts.dv = 8, parts.rows = 1;
  EXPECT_THAT(error_of(launch_merge_states(parts, {}, stream())), ::testing::HasSubstr("0 parts"));
  parts.parts = 1;
  EXPECT_THAT(error_of(launch_merge_states(parts, {}, stream())), ::testing::HasSubstr("O and LSE"));
}

}  // namespace
}  // namespace fovea::cuda
