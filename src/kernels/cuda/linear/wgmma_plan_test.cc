#include "kernels/cuda/linear/wgmma_plan.h"

#include <gtest/gtest.h>
#include <utility>

#include <set>

namespace fovea::cuda {
namespace {

constexpr int kMultiprocessors = 132, kSharedLimit = 232448;

/// What the kernel and the tensor maps take for granted.
void expect_sound(const WgmmaPlan& p, int64_t rows, int64_t n, int64_t k, bool gated) {
  const int64_t units = packed_panels(n, gated) * (p.halves ? 2 : 1);
  EXPECT_LE(p.units * (p.halves ? 8 : 16), p.columns);
  EXPECT_GE(p.x_rows, 1);
  EXPECT_LE(p.x_rows, 64 * p.groups);
  EXPECT_GE(int64_t{p.x_rows} * p.row_tiles, rows);
  EXPECT_EQ(p.blocks, wgmma_blocks(p.columns, p.groups));
  EXPECT_GE(p.stages, 2);
  EXPECT_LE(p.stages, kWgmmaMaxStages);
  EXPECT_LE(p.shared_bytes + 512, kSharedLimit);
  EXPECT_EQ(p.stage_bytes() % 1024, 0);
  EXPECT_EQ(p.ctas % p.cluster(), 0);
  EXPECT_LE(p.ctas, kMultiprocessors);
  EXPECT_GE(p.ctas, 1);
  if (p.even) {
    EXPECT_LE(p.parts, units);
    for (int part = 0; part < p.parts; ++part) {
      const int64_t of_part = int64_t{part + 1} * units / p.parts - int64_t{part} * units / p.parts;
      EXPECT_GE(of_part, std::max(p.units - 1, 1));
      EXPECT_LE(of_part, p.units);
    }
  } else {
    EXPECT_GE(int64_t{p.parts} * p.units, units);
    EXPECT_FALSE(p.halves);
  }
  if (p.share == ClusterShare::x) {
    EXPECT_EQ(p.parts % 2, 0);
    EXPECT_EQ(p.x_rows % 2, 0);
    EXPECT_EQ(k % kBlockInputs, 0);
  }
  if (p.share == ClusterShare::weights) {
    EXPECT_EQ(p.units % 2, 0);
    EXPECT_FALSE(p.even);
    EXPECT_EQ(p.blocks, 1);
  }
  if (gated) {
    EXPECT_FALSE(p.halves);
    EXPECT_GE(p.columns, 16);
  }
  // What an instruction reads past the last stage.
  const int x_end = ((p.blocks - 1) * p.x_rows + 64 * p.groups) * 128 - p.stage_bytes();
  const int least = p.even ? std::max(p.units - 1, 1) : p.units;
  const int last_block = p.halves ? (p.blocks - 1) * 1024 : (p.blocks - 1) * least * kBlockBytes;
  const int weights_end = p.x_bytes() + last_block - p.stage_bytes() +
                          (p.halves ? (p.columns / 8 - 1) * p.blocks * 1024 + 1024 : p.columns / 8 * 1024);
  const int room = p.shared_bytes - 1024 - p.stages * p.stage_bytes();
  EXPECT_LE(x_end, room);
  EXPECT_LE(weights_end, room);
}

TEST(WgmmaPlan, IsSound) {
  for (const auto& [n, k] : {std::pair{1, 8},
                             {16, 64},
                             {32, 2880},
                             {1003, 100},
                             {1024, 1024},
                             {2880, 4096},
                             {4096, 4096},
                             {5120, 2880},
                             {6144, 4096},
                             {28672, 4096},
                             {4096, 14336},
                             {128256, 4096},
                             {256000, 3584}})
    for (const int rows : {1, 2, 8, 9, 16, 17, 33, 48, 63, 64, 65, 100, 128, 129, 300, 1000, 4096, 8193})
      for (const bool gated : {false, true})
        for (const LinearKernel kernel : {LinearKernel::automatic, LinearKernel::stream, LinearKernel::tile})
          for (const int option : {0, 1, 2, 3, 4, 5}) {
            if (gated && n % 2 != 0) continue;
            WgmmaOptions o;
            if (option == 1) o.share = ClusterShare::x;
            if (option == 2) o.share = ClusterShare::weights;
            if (option == 3) o.halves = true;
            if (option == 4) o.whole_groups = true;
            if (option == 5) o.groups = 1, o.units = 16;
            SCOPED_TRACE(testing::Message()
                         << rows << " rows, n " << n << ", k " << k << ", gated " << gated << ", kernel "
                         << static_cast<int>(kernel) << ", option " << option);
            expect_sound(plan_wgmma(rows, n, k, gated, kMultiprocessors, kernel, o), rows, n, k, gated);
            if (testing::Test::HasFailure()) return;
          }
}

TEST(WgmmaPlan, UsesAllMultiprocessors) {
  for (const int n : {4096, 6144, 28672, 128256})
    for (const int rows : {1, 16, 64})
      EXPECT_EQ(plan_wgmma(rows, n, 4096, false, kMultiprocessors, LinearKernel::automatic).ctas, 132);
  EXPECT_EQ(plan_wgmma(1, 1024, 1024, false, kMultiprocessors, LinearKernel::automatic).ctas, 128);
}

TEST(PackedLayout, CoversEveryByteOnce) {
  for (const bool gated : {false, true})
    for (const int64_t k : {5, 64, 100}) {
      const int64_t n = 38, rows = gated ? n / 2 : n;
      std::set<int64_t> seen;
      for (int part = gated ? 1 : 0; part <= (gated ? 2 : 0); ++part)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < k; ++i) {
            const int64_t at = packed_offset(packed_row(static_cast<PackedPart>(part), r), i, k);
            EXPECT_TRUE(at % 2 == 0 && at >= 0 && at < packed_bytes(n, k, gated));
            EXPECT_TRUE(seen.insert(at).second);
          }
    }
}

TEST(PackedLayout, IsTheOneOfTheHeader) {
  // Row 9 of panel 1, input 64 + 19: block 1 of the panel, chunk 2 ^ 1, element 3.
  EXPECT_EQ(packed_offset(25, 83, 100), (1 * 2 + 1) * 2048 + 9 * 128 + 3 * 16 + 6);
  EXPECT_EQ(packed_row(PackedPart::gate, 13), 16 + 5);
  EXPECT_EQ(packed_row(PackedPart::up, 13), 16 + 13);
  EXPECT_EQ(packed_bytes(17, 65), 2 * 2 * 2048);
}

TEST(CodesPlan, CoversEveryOutputAndFitsInSharedMemory) {
  for (const int64_t rows : {1, 7, 8, 9, 16, 33, 64, 65, 127, 128, 129, 200, 512, 1000, 4096})
    for (const int64_t n : {16, 50, 1024, 4096, 6144, 28672})
      for (const bool blocks : {false, true})
        for (const LinearKernel kernel :
             {LinearKernel::automatic, LinearKernel::stream, LinearKernel::tile}) {
          const WgmmaPlan p = plan_codes(rows, n, false, blocks, kMultiprocessors, kernel);
          const std::string name = std::to_string(rows) + " x " + std::to_string(n);
          const int64_t panels = packed_panels(n);
          EXPECT_GE(int64_t{p.x_rows} * p.row_tiles, rows) << name;
          EXPECT_LE(p.x_rows, p.columns) << name;
          EXPECT_LE(p.columns, 128) << name;
          EXPECT_LE(p.units, blocks || p.columns < 128 ? 8 : 16) << name;
          EXPECT_GE(int64_t{p.parts} * p.units, panels) << name;
          if (p.even) {
            EXPECT_LE(p.parts, panels) << name;
          }
          EXPECT_EQ(p.blocks % 2, 0) << name;  // a pair of blocks shares a scale
          EXPECT_GE(p.stages, 2) << name;
          EXPECT_EQ(p.stage_bytes() % 1024, 0) << name;
          EXPECT_LE(p.shared_bytes + 512, kSharedLimit) << name;
          EXPECT_GE(p.ctas, 1) << name;
          EXPECT_LE(p.ctas, kMultiprocessors) << name;
        }
}

TEST(WidenedPlan, CoversEveryOutputAndFitsInSharedMemory) {
  for (const int rows : {1, 7, 8, 16, 17, 33, 63, 64})
    for (const int64_t n : {8, 16, 50, 1024, 2048, 4096, 6144, 8448, 10240, 28672, 128256})
      for (const bool gated : {false, true}) {
        const WgmmaPlan p = plan_widened(rows, n, gated, kMultiprocessors);
        SCOPED_TRACE(testing::Message() << rows << " rows, n " << n << ", gated " << gated);
        const int64_t panels = packed_panels(n, gated);
        EXPECT_EQ(p.row_tiles, 1);
        EXPECT_EQ(p.x_rows, rows);
        EXPECT_TRUE(p.even);
        EXPECT_LE(p.parts, panels);
        EXPECT_EQ((panels + p.parts - 1) / p.parts, p.units);
        EXPECT_LE(p.units * kPanelRows, p.columns);
        EXPECT_LE(p.columns, 64);  // instances
        EXPECT_GE(p.columns, 32);
        EXPECT_EQ(p.blocks, rows <= kWidenedFewRows ? 4 : 2);
        for (const int stages : {p.stages, p.x_stages, p.code_stages}) {
          EXPECT_GE(stages, std::max(kWidenGroups, 3));
          EXPECT_LE(stages, kWgmmaMaxStages);
        }
        EXPECT_EQ(p.code_stages % kWidenGroups, 0);
        const int weights = p.blocks * p.units * kBlockBytes, codes = weights / 2;
        const int x_end = p.x_stages * p.x_bytes(), weights_end = x_end + p.stages * weights;
        EXPECT_EQ(p.x_bytes() % 1024, 0);
        EXPECT_LE(weights_end + p.code_stages * codes, p.shared_bytes - 1024);
        EXPECT_LE(p.shared_bytes + 1024, kSharedLimit);
        // Rows and outputs that an instruction reads and a stage lacks.
        EXPECT_LE(x_end + (64 - p.x_rows) * 128, p.shared_bytes - 1024);
        EXPECT_LE(weights_end + (p.columns / 16 - std::max(p.units - 1, 1)) * kBlockBytes,
                  p.shared_bytes - 1024);
        EXPECT_GE(p.ctas, 1);
        EXPECT_LE(p.ctas, kMultiprocessors);
      }
}

}  // namespace
}  // namespace fovea::cuda
