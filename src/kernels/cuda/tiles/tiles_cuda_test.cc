#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/float16.h"
#include "base/float8.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cuda/tiles/swizzle.cuh"
#include "kernels/cuda/tiles/tensor_map.h"
#include "kernels/cuda/tiles/tiles_test.h"

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

class Tiles : public CudaTest {
 protected:
  cudaStream_t handle() { return stream().handle(); }
  void TearDown() override {
    if (IsSkipped() || HasFatalFailure()) return;
    EXPECT_EQ(error_of(stream().synchronize()), "");
  }
};

class HopperTiles : public Tiles {
 protected:
  void SetUp() override {
    Tiles::SetUp();
    if (!IsSkipped() && !HasFatalFailure() && !hopper())
      GTEST_SKIP() << "SKIPPED: compute capability 9.0 is needed, the device has "
                   << device_.compute_capability;
  }
};

std::vector<uint16_t> counting(size_t n) {
  std::vector<uint16_t> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<uint16_t>(i);
  return out;
}

std::vector<uint8_t> random_bytes(size_t n) {
  std::mt19937 random(7);
  std::vector<uint8_t> out(n);
  for (uint8_t& x : out)
    x = static_cast<uint8_t>(random());
  return out;
}

uint32_t pair(int low, int high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

TEST_F(Tiles, LdmatrixGivesEachLaneItsPairs) {
  const DeviceBuffer in = upload(counting(32 * 8));
  for (int kind = 0; kind < 4; ++kind) {
    const DeviceBuffer out = poisoned<uint32_t>(128);
    tiles_test::ldmatrix(kind, in.as<uint16_t>(), out.as<uint32_t>(), handle());
    const std::vector<uint32_t> got = download<uint32_t>(out);
    const bool transposed = kind >= 2;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < (kind % 2 == 0 ? 4 : 2); ++i) {
        const int g = lane / 4, q = lane % 4, matrix = 64 * i;
        const uint32_t expected = transposed ? pair(matrix + 8 * (2 * q) + g, matrix + 8 * (2 * q + 1) + g)
                                             : pair(matrix + 8 * g + 2 * q, matrix + 8 * g + 2 * q + 1);
        EXPECT_EQ(got[static_cast<size_t>(4 * lane + i)], expected) << kind << ", " << lane << ", " << i;
      }
    }
  }
}

// Small whole numbers: every sum is exact, so that a wrong place shows as a wrong number.
std::vector<uint16_t> whole_numbers(size_t n, bool bf16, std::vector<float>& values, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> bits;
  values.clear();
  for (size_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8));
    bits.push_back(bf16 ? float_to_bf16(values.back()) : float_to_fp16(values.back()));
  }
  return bits;
}

TEST_F(Tiles, MmaMultipliesExactly) {
  for (const bool bf16 : {false, true}) {
    for (const size_t k : {8u, 16u}) {
      std::vector<float> a, b, c(16 * 8);
      const DeviceBuffer a_bits = upload(whole_numbers(16 * k, bf16, a, 1)),
                         b_bits = upload(whole_numbers(k * 8, bf16, b, 2));
      for (size_t i = 0; i < c.size(); ++i)
        c[i] = static_cast<float>(i) + 0.5f;
      const DeviceBuffer start = upload(c), out = poisoned<float>(16 * 8);
      tiles_test::mma(bf16, static_cast<int>(k), a_bits.as<uint16_t>(), b_bits.as<uint16_t>(),
                      start.as<float>(), out.as<float>(), handle());
      for (size_t row = 0; row < 16; ++row)
        for (size_t col = 0; col < 8; ++col)
          for (size_t i = 0; i < k; ++i)
            c[row * 8 + col] += a[row * k + i] * b[i * 8 + col];
      EXPECT_EQ(download<float>(out), c) << bf16 << ", " << k;
    }
  }
}

TEST_F(Tiles, CpAsyncCopiesAndFillsWithZeros) {
  for (const int size : {4, 8, 16}) {
    constexpr int kCount = 200;
    const std::vector<uint8_t> bytes = random_bytes(static_cast<size_t>(kCount * size));
    const DeviceBuffer in = upload(bytes), out = poisoned<uint8_t>(bytes.size());
    tiles_test::cp_async(size, in.as<uint8_t>(), out.as<uint8_t>(), kCount, handle());
    const std::vector<uint8_t> got = download<uint8_t>(out);
    for (size_t i = 0; i < bytes.size(); ++i)
      EXPECT_EQ(got[i], i / static_cast<size_t>(size) % 3 == 2 ? 0 : bytes[i]) << size << ", " << i;
  }
}

TEST_F(Tiles, SwizzledRowsComeBackByLdmatrix) {
  for (const int row_bytes : {64, 128, 256, 512}) {
    const int chunks = row_bytes / 16;
    const std::vector<uint8_t> bytes = random_bytes(static_cast<size_t>(64 * row_bytes));
    const DeviceBuffer in = upload(bytes), out = poisoned<uint32_t>(static_cast<size_t>(64 * row_bytes / 4));
    tiles_test::swizzled_rows(row_bytes, in.as<uint8_t>(), out.as<uint32_t>(), handle());
    const std::vector<uint32_t> got = download<uint32_t>(out);
    for (int rows = 0; rows < 8; ++rows)
      for (int c = 0; c < chunks / 4; ++c)
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 4; ++i) {
            uint32_t expected;  // chunk c * 4 + i of row g, 4 bytes of lane q
            std::memcpy(&expected,
                        &bytes[static_cast<size_t>((rows * 8 + lane / 4) * row_bytes + (c * 4 + i) * 16 +
                                                   lane % 4 * 4)],
                        4);
            ASSERT_EQ(got[static_cast<size_t>((rows * (chunks / 4) + c) * 128 + lane * 4 + i)], expected)
                << row_bytes << ": " << rows << ", " << c << ", " << lane << ", " << i;
          }
  }
}

/// Every byte in every place of a word.
std::vector<uint32_t> all_bytes() {
  std::vector<uint32_t> words;
  for (uint32_t b = 0; b < 256; ++b)
    words.push_back(b | (255 - b) << 8 | (b ^ 0x80) << 16 | ((b * 7 + 3) & 255) << 24);
  return words;
}

TEST_F(Tiles, EightBitsConvertExactly) {
  const std::vector<uint32_t> words = all_bytes();
  const DeviceBuffer in = upload(words);
  for (int kind = 0; kind < 7; ++kind) {
    const size_t each = kind == 6 ? 4 : 2;
    const DeviceBuffer out = poisoned<uint32_t>(words.size() * each);
    tiles_test::convert(kind, in.as<uint32_t>(), out.as<uint32_t>(), static_cast<int>(words.size()),
                        handle());
    const std::vector<uint32_t> got = download<uint32_t>(out);
    for (size_t i = 0; i < words.size(); ++i) {
      for (size_t j = 0; j < 4; ++j) {
        const auto byte = static_cast<uint8_t>(words[i] >> (8 * j));
        const float expected = kind < 2   ? e4m3_to_float(byte)
                               : kind < 4 ? e5m2_to_float(byte)
                                          : static_cast<float>(static_cast<int8_t>(byte));
        float x;
        if (kind == 6) {
          std::memcpy(&x, &got[4 * i + j], 4);
        } else {
          const auto half = static_cast<uint16_t>(got[2 * i + j / 2] >> (16 * (j % 2)));
          x = kind % 2 == 0 ? fp16_to_float(half) : bf16_to_float(half);
        }
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(x)) << kind << ", " << int{byte};
        } else {
          EXPECT_EQ(x, expected) << kind << ", " << int{byte};
          EXPECT_EQ(std::signbit(x), std::signbit(expected)) << kind << ", " << int{byte};
        }
      }
    }
  }
}

TEST_F(Tiles, PackingRoundsToNearestEven) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> x(1000);
  for (float& v : x)
    v = normal(random);
  x[0] = 1.00390625f;  // halfway between two bf16
  x[1] = 1.01171875f;
  x[2] = -0.0f;
  const DeviceBuffer in = upload(x);
  for (const bool bf16 : {false, true}) {
    const DeviceBuffer out = poisoned<float>(x.size());
    tiles_test::pack_pairs(bf16, in.as<float>(), out.as<float>(), static_cast<int>(x.size()), handle());
    const std::vector<float> got = download<float>(out);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(got[i], bf16 ? bf16_to_float(float_to_bf16(x[i])) : fp16_to_float(float_to_fp16(x[i]))) << i;
  }
}

TEST_F(Tiles, LaneFunctions) {
  std::vector<float> x(32);
  for (size_t i = 0; i < 32; ++i)
    x[i] = 0.37f * static_cast<float>((i * 11) % 32) - 4.1f;
  x[5] = -std::numeric_limits<float>::infinity();
  const DeviceBuffer in = upload(x), out = poisoned<float>(160);
  tiles_test::lane_functions(in.as<float>(), out.as<float>(), handle());
  const std::vector<float> got = download<float>(out);
  for (size_t i = 0; i < 32; ++i) {
    const size_t first = i / 4 * 4;
    EXPECT_EQ(got[i], *std::max_element(x.begin() + static_cast<int>(first),
                                        x.begin() + static_cast<int>(first) + 4));
    EXPECT_EQ(got[32 + i], (x[first] + x[first + 1]) + (x[first + 2] + x[first + 3]));
    EXPECT_NEAR(got[64 + i], std::exp2(x[i]), 1e-6f * std::exp2(x[i]));
    if (x[i] > 0) {
      EXPECT_NEAR(got[96 + i], std::log2(x[i]), 1e-6f);
    }
    EXPECT_NEAR(got[128 + i], std::tanh(x[i]), 1e-3f);
  }
  EXPECT_EQ(got[64 + 5], 0.0f);
}

TEST_F(Tiles, BarriersOrderARing) {
  std::vector<int> x(32 * 50);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<int>(i * i);
  const DeviceBuffer in = upload(x), out = poisoned<int>(x.size());
  tiles_test::barrier_ring(in.as<int>(), out.as<int>(), static_cast<int>(x.size()), handle());
  for (int& v : x)
    ++v;
  EXPECT_EQ(download<int>(out), x);
}

TEST_F(HopperTiles, TmaBoxesLieSwizzledAndAreFilledWithZeros) {
  // 40 rows of 64 bf16; a box of 16 rows whose last 3 lie past the tensor.
  const std::vector<uint16_t> values = counting(40 * 64);
  const DeviceBuffer in = upload(values);
  struct Case {
    CUtensorMapSwizzle mode;
    int span;
  };
  for (const Case& c : {Case{CU_TENSOR_MAP_SWIZZLE_128B, 128},
                        {CU_TENSOR_MAP_SWIZZLE_64B, 64},
                        {CU_TENSOR_MAP_SWIZZLE_32B, 32},
                        {CU_TENSOR_MAP_SWIZZLE_NONE, 16}}) {
    const int columns = c.span / 2, row0 = 27, column0 = 8;
    CUtensorMap map;
    ASSERT_EQ(error_of(encode_tensor_map({.base = in.data(),
                                          .dims = {64, 40},
                                          .strides = {128},
                                          .box = {static_cast<uint32_t>(columns), 16},
                                          .swizzle = c.mode},
                                         map)),
              "");
    const DeviceBuffer out = poisoned<uint8_t>(static_cast<size_t>(16 * c.span));
    tiles_test::tma_box(map, column0, row0, 16 * c.span, out.as<uint8_t>(), handle());
    const std::vector<uint8_t> got = download<uint8_t>(out);
    for (int row = 0; row < 16; ++row) {
      for (int col = 0; col < columns; ++col) {
        const auto at = static_cast<uint32_t>(row * c.span + col * 2);
        const uint32_t place = c.span == 128  ? swizzle<128>(at)
                               : c.span == 64 ? swizzle<64>(at)
                               : c.span == 32 ? swizzle<32>(at)
                                              : at;
        const bool inside = row0 + row < 40 && column0 + col < 64;
        uint16_t x;
        std::memcpy(&x, &got[place], 2);
        ASSERT_EQ(x, inside ? values[static_cast<size_t>((row0 + row) * 64 + column0 + col)] : 0)
            << c.span << ": " << row << ", " << col;
      }
    }
  }
}

TEST_F(HopperTiles, TmaStoresClipAtTheTensor) {
  const std::vector<uint8_t> bytes = random_bytes(3 * 5 * 64);
  const DeviceBuffer in = upload(bytes), out = poisoned<uint8_t>(bytes.size());
  CUtensorMap from, to;
  // The box is larger than the tensor: 4 planes of 8 rows.
  const auto encode = [&](const DeviceBuffer& buffer, CUtensorMap& map) {
    return error_of(encode_tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                       .base = buffer.data(),
                                       .dims = {64, 5, 3},
                                       .strides = {64, 320},
                                       .box = {64, 8, 4},
                                       .swizzle = CU_TENSOR_MAP_SWIZZLE_64B},
                                      map));
  };
  ASSERT_EQ(encode(in, from), "");
  ASSERT_EQ(encode(out, to), "");
  tiles_test::tma_through(from, to, 64 * 8 * 4, handle());
  std::vector<uint8_t> expected = bytes;
  for (uint8_t& x : expected)
    x ^= 0x55;
  EXPECT_EQ(download<uint8_t>(out), expected);
}

TEST_F(HopperTiles, TensorMapsThatTheDriverRefusesAreErrorsWithNumbers) {
  const DeviceBuffer in = poisoned<uint16_t>(64 * 64);
  CUtensorMap map;
  EXPECT_THAT(error_of(encode_tensor_map(
                  {.base = in.data(), .dims = {64, 64}, .strides = {120}, .box = {64, 16}}, map)),
              HasSubstr("strides [120] bytes"));
  EXPECT_THAT(error_of(encode_tensor_map(
                  {.base = in.data(), .dims = {64, 0}, .strides = {128}, .box = {64, 16}}, map)),
              HasSubstr("dims [64, 0]"));
  EXPECT_THAT(
      error_of(encode_tensor_map({.base = in.data(), .dims = {64, 64}, .strides = {128}, .box = {64}}, map)),
      HasSubstr("1 to 5 dimensions"));
}

TEST_F(HopperTiles, BulkLoadsArrive) {
  const std::vector<uint8_t> bytes = random_bytes(20016);
  const DeviceBuffer in = upload(bytes), out = poisoned<uint8_t>(bytes.size());
  tiles_test::bulk(in.as<uint8_t>(), out.as<uint8_t>(), static_cast<int>(bytes.size()), handle());
  EXPECT_EQ(download<uint8_t>(out), bytes);
}

TEST_F(HopperTiles, StmatrixIsTheInverseOfLdmatrix) {
  const std::vector<uint16_t> values = counting(32 * 8);
  const DeviceBuffer in = upload(values);
  for (const bool transposed : {false, true}) {
    const DeviceBuffer out = poisoned<uint16_t>(values.size());
    tiles_test::stmatrix(transposed, in.as<uint16_t>(), out.as<uint16_t>(), handle());
    const std::vector<uint16_t> got = download<uint16_t>(out);
    for (size_t m = 0; m < 4; ++m)
      for (size_t r = 0; r < 8; ++r)
        for (size_t c = 0; c < 8; ++c)
          EXPECT_EQ(got[64 * m + 8 * r + c], values[64 * m + (transposed ? 8 * c + r : 8 * r + c)]);
  }
}

TEST_F(HopperTiles, WgmmaMultipliesExactly) {
  for (const bool bf16 : {false, true}) {
    for (const int n : {8, 16, 32, 64, 80, 96, 128, 160, 176, 192, 256}) {
      for (const bool trans : {false, true}) {
        if (trans && n != 64) continue;
        const auto columns = static_cast<size_t>(n);
        std::vector<float> a, b;
        const DeviceBuffer a_bits = upload(whole_numbers(64 * 64, bf16, a, 1)),
                           b_bits = upload(whole_numbers(columns * 64, bf16, b, 2));
        std::vector<float> expected(64 * columns);
        for (size_t row = 0; row < 64; ++row)
          for (size_t col = 0; col < columns; ++col)
            for (size_t k = 0; k < 64; ++k)
              expected[row * columns + col] += a[row * 64 + k] * (trans ? b[k * 64 + col] : b[col * 64 + k]);
        for (const bool registers : {false, true}) {
          const DeviceBuffer out = poisoned<float>(expected.size());
          ASSERT_TRUE(tiles_test::wgmma(bf16, n, registers, trans, a_bits.as<uint16_t>(),
                                        b_bits.as<uint16_t>(), out.as<float>(), handle()));
          EXPECT_EQ(download<float>(out), expected)
              << bf16 << ", " << n << ", " << registers << ", " << trans;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::cuda
