#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/float16.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cuda/merge/merge_launch.h"
#include "kernels/cuda/merge/merge_test.h"

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

// Combining parts one by one, as they become known, has the bits of one merge of all.
TEST_F(MergeOnDevice, CombiningOneByOneGivesTheSameBits) {
  std::mt19937 random(2);
  for (const int count : {1, 2, 7, 40, 300}) {
    const States s = random_states(random, count, 64, 1, 96);
    const DeviceBuffer o = upload(s.o), lse = upload(s.lse);
    const DeviceBuffer merged = poisoned<float>(64 * 96), merged_lse = poisoned<float>(64);
    const DeviceBuffer combined = poisoned<float>(64 * 96), combined_lse = poisoned<float>(64);
    MergeOutput output{merged.data(), DType::f32, 96, merged_lse.as<float>()};
    ASSERT_EQ(error_of(launch_merge_states(parts_of(s, o, lse), output, stream())), "");
    launch_combine_test(o.as<float>(), lse.as<float>(), count, 64, 96, combined.as<float>(),
                        combined_lse.as<float>(), stream().handle());
    EXPECT_EQ(download<uint32_t>(combined), download<uint32_t>(merged)) << count;
    EXPECT_EQ(download<uint32_t>(combined_lse), download<uint32_t>(merged_lse)) << count;
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

TEST_F(MergeOnDevice, RefusesWhatMakesNoSense) {
  MergeParts parts;
  parts.heads = 1, parts.dv = 8, parts.rows = 1;
  EXPECT_THAT(error_of(launch_merge_states(parts, {}, stream())), ::testing::HasSubstr("0 parts"));
  parts.parts = 1;
  EXPECT_THAT(error_of(launch_merge_states(parts, {}, stream())), ::testing::HasSubstr("O and LSE"));
}

}  // namespace
}  // namespace fovea::cuda
