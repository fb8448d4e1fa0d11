// e4m3 matrices with scales: read, decoded, as codes, and what is refused.
#include "model/fp8_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "base/float8.h"
#include "base/thread_pool.h"
#include "model/weights.h"

namespace fovea {
namespace {

using Floats = std::vector<float>;

/// A checkpoint with q_proj [136, 200], k_proj and v_proj [8, 200] in e4m3.
class Fp8 : public testing::Test {
 protected:
  static constexpr int64_t kInputs = 200, kRows[] = {136, 8, 8};
  static constexpr const char* kNames[] = {"q_proj", "k_proj", "v_proj"};

  static uint8_t code(int part, int64_t i) {
    return static_cast<uint8_t>((i * 37 + part * 11) % 126 | (i % 3 << 7));
  }
  static std::string codes(int part) {
    std::string bytes;
    for (int64_t i = 0; i < kRows[part] * kInputs; ++i)
      bytes += static_cast<char>(code(part, i));
    return bytes;
  }
  static Floats scales(int64_t count) {
    Floats values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(std::ldexp(1.0f + static_cast<float>(i % 7) / 8, -6));
    return values;
  }
  void add(int part, const std::string& suffix, std::vector<int64_t> shape, DType dtype = DType::f32) {
    writer_.add(std::string(kNames[part]) + ".weight", "F8_E4M3", {kRows[part], kInputs}, codes(part));
    int64_t count = 1;
    for (const int64_t size : shape)
      count *= size;
    writer_.add(std::string(kNames[part]) + ".weight" + suffix, shape, scales(count), dtype);
  }
  struct Read {
    Status status;
    Linear layer;
    std::vector<std::string> unused;
  };
  Read read(WeightReader::Mode mode, std::optional<DType> dtype = {}) {
    dir_.write("model.safetensors", writer_.bytes());
    ThreadPool pool(2);
    auto checkpoint = Checkpoint::open(dir_.path());
    EXPECT_TRUE(checkpoint.ok());
    WeightReader reader(std::make_shared<Checkpoint>(*std::move(checkpoint)), nullptr, dtype, pool);
    const auto all = [&] {
      return reader.fused("", {{"q_proj", 136}, {"k_proj", 8}, {"v_proj", 8}}, kInputs, false);
    };
    all();
    Read out;
    for (const auto name : reader.unused())
      out.unused.emplace_back(name);
    reader.set_mode(mode);
    out.layer = all();
    out.status = reader.status();
    return out;
  }
  /// The value of row `row` of the stacked matrix; scale(part, row, block of 128 inputs).
  template <class Scale>
  static Floats row(int64_t row, Scale&& scale) {
    int part = 0;
    while (row >= kRows[part])
      row -= kRows[part++];
    Floats values;
    for (int64_t i = 0; i < kInputs; ++i)
      values.push_back(e4m3_to_float(code(part, row * kInputs + i)) * scale(part, row, i / 128));
    return values;
  }

  test::TempDir dir_;
  test::SafetensorsWriter writer_;
};

TEST_F(Fp8, HaveAScaleForTheMatrixOrForEachOutput) {
  add(0, "_scale", {136, 1}, DType::bf16);
  add(1, "_scale", {});
  add(2, "_scale", {8});
  writer_.add("q_proj.input_scale", {1}, {0.5f}, DType::f32);
  const Read host = read(WeightReader::Mode::load, DType::f32);
  ASSERT_TRUE(host.status.ok()) << host.status.error().message;
  EXPECT_TRUE(host.unused.empty());
  const auto scale = [](int part, int64_t r, int64_t) {
    return scales(136)[static_cast<size_t>(part == 1 ? 0 : r)];
  };
  Floats got(kInputs);
  for (const int64_t r : {0, 135, 136, 143, 144, 151}) {
    host.layer.weight.unpack_row(r, got.data());
    EXPECT_EQ(got, row(r, scale)) << r;
  }
  const Read described = read(WeightReader::Mode::describe);
  const auto& source = described.layer.weight.source();
  ASSERT_TRUE(source);
  EXPECT_EQ(source->coding(), (WeightCoding{WeightCode::e4m3, 1, 0}));
  std::vector<std::byte> bytes(10 * kInputs);
  ASSERT_TRUE(source->read_codes(130, 10, bytes.data()).ok());
  EXPECT_EQ(static_cast<uint8_t>(bytes[5 * kInputs + 3]), code(0, 135 * kInputs + 3));
  EXPECT_EQ(static_cast<uint8_t>(bytes[6 * kInputs]), code(1, 0));
  Floats of_rows(10);
  ASSERT_TRUE(source->read_scales(130, 10, of_rows.data()).ok());
  EXPECT_EQ(of_rows[4], scales(136)[134]);
  EXPECT_EQ(of_rows[9], scales(1)[0]);
}

TEST_F(Fp8, HaveScalesForBlocks) {
  add(0, "_scale_inv", {2, 2});
  add(1, "_scale_inv", {1, 2});
  add(2, "_scale_inv", {1, 2});
  const auto scale = [](int, int64_t r, int64_t b) {
    return scales(4)[static_cast<size_t>(r / 128 * 2 + b)];
  };
  const Read host = read(WeightReader::Mode::load, DType::f32);
  ASSERT_TRUE(host.status.ok()) << host.status.error().message;
  Floats got(kInputs);
  for (const int64_t r : {0, 127, 128, 135, 150}) {
    host.layer.weight.unpack_row(r, got.data());
    EXPECT_EQ(got, row(r, scale)) << r;
  }
  const Read described = read(WeightReader::Mode::describe);
  EXPECT_EQ(described.layer.weight.source()->coding(), (WeightCoding{WeightCode::e4m3, 128, 128}));
  Floats of_rows(4);
  ASSERT_TRUE(described.layer.weight.source()->read_scales(127, 2, of_rows.data()).ok());
  EXPECT_EQ(of_rows, (Floats{scales(4)[0], scales(4)[1], scales(4)[2], scales(4)[3]}));
}

TEST_F(Fp8, AreNotReadAsCodesWherePartsDiffer) {
  add(0, "_scale_inv", {2, 2});
  add(1, "_scale", {8});
  writer_.add("v_proj.weight", {8, kInputs}, Floats(8 * kInputs, 0.25f), DType::bf16);
  const Read described = read(WeightReader::Mode::describe);
  ASSERT_TRUE(described.status.ok()) << described.status.error().message;
  EXPECT_EQ(described.layer.weight.source()->coding(), WeightCoding());
  const Read host = read(WeightReader::Mode::load);
  Floats got(kInputs);
  host.layer.weight.unpack_row(151, got.data());
  EXPECT_EQ(got, Floats(kInputs, 0.25f));
}

TEST_F(Fp8, AreRefusedByTensor) {
  const auto refused = [&](const std::vector<std::string>& parts, WeightReader::Mode mode) {
    const Read got = read(mode);
    ASSERT_FALSE(got.status.ok());
    for (const std::string& part : parts)
      EXPECT_NE(got.status.error().message.find(part), std::string::npos) << got.status.error().message;
  };
  add(0, "_zero", {136});
  add(1, "_scale", {8});
  add(2, "_scale", {8});
  refused({"q_proj.weight", "F8_E4M3", "no tensor with its scales"}, WeightReader::Mode::load);
  writer_ = {};
  add(0, "_scale", {17});
  add(1, "_scale", {8});
  add(2, "_scale", {8});
  refused({"q_proj.weight_scale", "[17]", "128 x 128"}, WeightReader::Mode::load);
  writer_ = {};
  add(0, "_scale", {});
  add(1, "_scale", {});
  writer_.add("v_proj.weight", "F8_E4M3", {8, kInputs}, std::string(8 * kInputs, '\x7f'));
  writer_.add("v_proj.weight_scale", {1}, {1.0f}, DType::f32);
  refused({"v_proj.weight", "not finite"}, WeightReader::Mode::load);
  writer_ = {};
  add(0, "_scale", {});
  add(1, "_scale", {});
  writer_.add("v_proj.weight", "F8_E4M3", {8, kInputs}, codes(2));
  writer_.add("v_proj.weight_scale", {1}, {-1.0f}, DType::f32);
  refused({"v_proj.weight_scale", "-1", "not negative"}, WeightReader::Mode::load);
}

}  // namespace
}  // namespace fovea
