// Quantised weights on their way to a device that keeps them so: codes, scales, and the memory that was
// measured.
#include <gtest/gtest.h>

#include <deque>

#include "base/check.h"
#include "base/thread_pool.h"
#include "model/placed_weights.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea {
namespace {

/// Codes [n, k] that tell their place, with scales that do.
class PatternSource final : public WeightSource {
 public:
  PatternSource(int64_t n, int64_t k, WeightCoding coding, int seed)
      : WeightSource(n, k, DType::bf16), coding_(coding), seed_(seed) {}
  uint8_t code(int64_t row, int64_t i) const { return static_cast<uint8_t>(row * 31 + i * 7 + seed_); }
  /// The same for 8 rows, and for 128 inputs.
  float scale(int64_t row, int64_t block) const {
    return static_cast<float>(coding_.block_k == 0 ? row : row / 8 * 8) +
           0.25f * static_cast<float>(block + seed_);
  }
  Status read(int64_t, int64_t, DType, std::byte*) const override { FOVEA_CHECK(false); }
  WeightCoding coding() const override { return coding_; }
  Status read_codes(int64_t first, int64_t count, std::byte* out) const override {
    for (int64_t r = first; r < first + count; ++r)
      for (int64_t i = 0; i < code_row_bytes(coding_.code, k()); ++i)
        *out++ = static_cast<std::byte>(code(r, i));
    return {};
  }
  Status read_scales(int64_t first, int64_t count, float* out) const override {
    const int64_t blocks = coding_.block_k == 0 ? 1 : (k() + 127) / 128;
    for (int64_t r = first; r < first + count; ++r)
      for (int64_t b = 0; b < blocks; ++b)
        *out++ = scale(r, b);
    return {};
  }

 private:
  WeightCoding coding_;
  int seed_;
};

/// Keeps codes as a GPU does, but in rows.
struct CodingOps : test::PackingOps {
  using PackingOps::PackingOps;
  std::vector<std::string> supports(const WeightFormat&) const override { return {}; }
  std::optional<WeightFormat> coded_format(WeightUse use, const WeightCoding& coding) const override {
    if (coding.code == WeightCode::none) return std::nullopt;
    const bool gated = use == WeightUse::gated, e4m3 = coding.code == WeightCode::e4m3;
    WeightFormat format;
    format.stored = ElementType::u8;
    format.layout = e4m3    ? gated ? WeightLayout::gated_e4m3_16 : WeightLayout::e4m3_16
                    : gated ? WeightLayout::gated_mxfp4_16
                            : WeightLayout::mxfp4_16;
    format.scaled = e4m3;
    format.block_n = coding.block_n, format.block_k = coding.block_k;
    return format;
  }
  Status pack_rows(const LinearWeight& weight, int64_t first, const Tensor& rows, Stream&) override {
    const auto row_bytes = static_cast<size_t>(code_row_bytes(code_of(weight.format.layout), weight.k));
    EXPECT_EQ(static_cast<size_t>(rows.size(1)), row_bytes);
    auto* to = static_cast<std::byte*>(weight.data.data) + static_cast<size_t>(first) * row_bytes;
    static_cast<test::GuardedDevice&>(device()).queue(
        [=] { std::memcpy(to, rows.data, static_cast<size_t>(rows.size(0)) * row_bytes); });
    return {};
  }
};

class CodedWeights : public testing::TestWithParam<std::tuple<WeightCode, int, bool>> {
 protected:
  template <class T>
  std::vector<T> host(const Tensor& there) {
    std::vector<T> values(static_cast<size_t>(there.elements()));
    EXPECT_TRUE(device_.copy_to_host(values.data(), there.data, values.size() * sizeof(T), stream_).ok());
    EXPECT_TRUE(device_.synchronize(stream_).ok());
    return values;
  }

  ThreadPool pool_{2};
  Stream stream_{pool_};
  test::GuardedDevice device_;
};

TEST_P(CodedWeights, ArriveAsTheyAre) {
  const auto [code, block, gated] = GetParam();
  const WeightCoding coding{code, code == WeightCode::mxfp4 ? 0 : block == 0 ? 1 : block, block};
  const int64_t n = gated ? 2 * 24 : 40, k = 192, blocks = block == 0 ? 1 : 2;
  CodingOps ops(device_);
  std::deque<std::shared_ptr<const PatternSource>> sources;
  std::deque<Linear> layers;
  std::vector<const Linear*> list;
  for (int e = 0; e < 3; ++e) {
    sources.push_back(std::make_shared<PatternSource>(n, k, coding, e));
    Linear& layer = layers.emplace_back();
    layer.weight = WeightMatrix(std::shared_ptr<const WeightSource>(sources.back()));
    list.push_back(&layer);
  }
  const WeightUse use = gated ? WeightUse::gated : WeightUse::plain;
  WeightPlacement measured = WeightPlacement::measure(ops);
  (void)measured.linears(list, use);
  (void)measured.linear(layers[1], use);
  WeightPlacement placement(ops, stream_, measured.bytes());
  std::vector<LinearWeight> placed = placement.linears(list, use);
  placed.push_back(placement.linear(layers[1], use));
  ThreadPool readers(2);
  const Status done = placement.finish({&readers, {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(placement.bytes(), measured.bytes());
  ASSERT_EQ(placed.size(), 4u);
  for (size_t e = 0; e < placed.size(); ++e) {
    const LinearWeight& w = placed[e];
    const PatternSource& source = *sources[e == 3 ? 1 : e];
    EXPECT_TRUE(check(w).ok()) << check(w).error().message;
    const std::vector<uint8_t> bytes = host<uint8_t>(w.data);
    const int64_t row_bytes = code_row_bytes(code, k);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t i = 0; i < row_bytes; ++i)
        ASSERT_EQ(bytes[static_cast<size_t>(r * row_bytes + i)], source.code(r, i))
            << e << ": " << r << ", " << i;
    if (code == WeightCode::mxfp4) continue;
    if (e < 3) {
      EXPECT_EQ(w.scales.as<float>(),
                placed[0].scales.as<float>() + static_cast<int64_t>(e) * w.scales.elements());
    }
    const std::vector<float> scales = host<float>(w.scales);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t half = n / 2, panel = gated ? r % half / 8 : r / 16,
                      part = gated ? r / half : r / 8 % 2;
        const int64_t at = block == 0 ? r : (panel * blocks + b) * 2 + part;
        ASSERT_EQ(scales[static_cast<size_t>(at)], source.scale(r, b)) << e << ": " << r << ", " << b;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codes, CodedWeights,
    testing::Values(std::tuple{WeightCode::mxfp4, 0, false}, std::tuple{WeightCode::mxfp4, 0, true},
                    std::tuple{WeightCode::e4m3, 0, false}, std::tuple{WeightCode::e4m3, 0, true},
                    std::tuple{WeightCode::e4m3, 128, false}, std::tuple{WeightCode::e4m3, 128, true}));

}  // namespace
}  // namespace fovea
