#include "kernels/cuda/simt/select.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::cuda::simt {
namespace {

std::string refusal(const Problem& problem) {
  const auto info = select(problem);
  return info.ok() ? "" : info.error().message;
}

TEST(SimtSelect, TakesTheNarrowestThatIsWideEnough) {
  for (const QueryType q : {QueryType::f16, QueryType::bf16})
    for (const KvType kv : {KvType::same, KvType::e4m3, KvType::e5m2, KvType::int8})
      for (int d = 8; d <= 512; d += 8)
        for (const int rows : {1, 2, 3, 4, 7, 32}) {
          const auto info = select({q, kv, d, d == 192 ? 128 : d, rows, {}});
          ASSERT_TRUE(info.ok()) << info.error().message;
          EXPECT_EQ(info->q, q);
          EXPECT_EQ(info->kv, kv);
          EXPECT_GE(info->head_dim, d);
          EXPECT_TRUE(info->head_dim == 64 || info->head_dim < 2 * d);
          EXPECT_EQ(info->rows == 1, rows == 1 || (d > 256 && kv != KvType::same));
          EXPECT_LE(info->rows, 2 * rows);
          EXPECT_EQ(info->split_keys % info->tile_keys, 0);
        }
  EXPECT_EQ(select({QueryType::bf16, KvType::same, 64, 200, 1, {}})->head_dim, 256);
}

TEST(SimtSelect, EveryKernelFitsEveryDeviceAndSumsAlike) {
  for (const int shared_bytes : {163 * 1024, 99 * 1024, 227 * 1024})
    for (const QueryType q : {QueryType::f16, QueryType::bf16})
      for (const KvType kv : {KvType::same, KvType::e4m3, KvType::e5m2, KvType::int8})
        for (int d = 8; d <= 512; d += 8)
          for (const int rows : {1, 2, 3, 4, 7}) {
            Problem p{q, kv, d, d, rows, {}};
            const auto sized = select(p);
            p.shared_bytes = shared_bytes;
            const auto info = select(p);
            ASSERT_TRUE(sized.ok() && info.ok()) << d;
            EXPECT_LE((info->shared_bytes + 1024) * info->blocks_per_sm, shared_bytes + 1024) << d;
            EXPECT_EQ(info->rows, sized->rows);
            EXPECT_EQ(info->tile_keys, sized->tile_keys);
            EXPECT_EQ(info->split_keys, sized->split_keys);
            EXPECT_TRUE(shared_bytes != 227 * 1024 || *info == *sized) << d;
          }
}

TEST(SimtSelect, RefusesWithTheReason) {
  Problem problem{QueryType::bf16, KvType::same, 128, 128, 1, {}};
  EXPECT_EQ(refusal(problem), "");
  problem.mask.spans = true;
  EXPECT_EQ(refusal(problem), "the CUDA-core decode kernel has no spans; the tensor-core kernel serves them");
  problem.mask = {};
  problem.mask.packed = true;
  EXPECT_EQ(refusal(problem),
            "the CUDA-core decode kernel has no packed masks; the tensor-core kernel serves them");
  problem.mask = {};
  problem.mask.tree = true;
  EXPECT_EQ(refusal(problem),
            "the CUDA-core decode kernel has no tree masks; the tensor-core kernel serves them");
  problem.mask = {};
  for (const int size : {0, -8, 4, 100, 520}) {
    problem.head_dim = size;
    EXPECT_EQ(refusal(problem), "head size is " + std::to_string(size) +
                                    "; the CUDA-core decode kernel takes multiples of 8 up to 512");
  }
  problem.head_dim = 128;
  problem.kv = KvType::f32;
  EXPECT_EQ(refusal(problem),
            "the CUDA-core decode kernel takes 16-bit queries, and keys of their type, of fp8 or of int8");
  problem.kv = KvType::same;
  problem.q = QueryType::f32;
  EXPECT_NE(refusal(problem), "");
  problem.q = QueryType::bf16;
  problem.rows = 0;
  EXPECT_EQ(refusal(problem), "a decode kernel for 0 rows; at least 1");
}

}  // namespace
}  // namespace fovea::cuda::simt
