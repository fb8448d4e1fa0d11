#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "base/float16.h"
#include "device/stream.h"

namespace fovea {
namespace {

float load(const void* base, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(base)[index];
    case DType::f16: return fp16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(base)[index]);
  }
  return 0;
}

float rounded(float x, DType dtype) {
  if (dtype == DType::f16) return fp16_to_float(float_to_fp16(x));
  if (dtype == DType::bf16) return bf16_to_float(float_to_bf16(x));
  return x;
}

KvCacheConfig small(DType dtype) {
  KvCacheConfig c;
  c.num_layers = 2;
  c.num_kv_heads = 3;
  c.head_dim = 8;
  c.v_head_dim = 5;
  c.page_size = 3;
  c.num_pages = 7;
  c.dtype = dtype;
  return c;
}

class KvCacheAppend : public ::testing::TestWithParam<DType> {};

TEST_P(KvCacheAppend, WritesRoundedRowsAtTheirSlotsAndNothingElse) {
  const KvCacheConfig c = small(GetParam());
  auto made = KvCache::create(c);
  ASSERT_TRUE(made.ok());
  KvCache& cache = *made;
  ThreadPool pool(2);
  Stream stream(pool);

  constexpr int kRows = 6;
  const int k_row = c.num_kv_heads * c.head_dim + 2, v_row = c.num_kv_heads * c.v_head_dim + 1;  // strided
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> k(static_cast<size_t>(kRows * k_row)), v(static_cast<size_t>(kRows * v_row));
  for (float& x : k)
    x = normal(rng);
  for (float& x : v)
    x = normal(rng);
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  std::vector<float> marks(static_cast<size_t>(c.num_kv_heads * c.head_dim), 42.0f);
  for (int layer = 0; layer < c.num_layers; ++layer)
    cache.append(layer, all, marks.data(), 0, marks.data(), 0, stream);

  const std::vector<int64_t> slots = {20, 0, -1, 7, 8, 3};
  cache.append(1, slots, k.data(), k_row, v.data(), v_row, stream);
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const KvView view = cache.layer(layer);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.k) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.v) % 64, 0u);
    for (int64_t slot : all) {
      const auto found = std::find(slots.begin(), slots.end(), slot);
      const bool written = layer == 1 && found != slots.end();
      const int64_t row = found - slots.begin();
      const int64_t page = slot / c.page_size, offset = slot % c.page_size;
      for (int h = 0; h < c.num_kv_heads; ++h) {
        for (int d = 0; d < c.head_dim; ++d) {
          const int64_t at =
              page * view.k_page_stride + h * view.k_head_stride + offset * view.k_slot_stride + d;
          const float want = written ? k[static_cast<size_t>(row * k_row + h * c.head_dim + d)] : 42.0f;
          EXPECT_EQ(load(view.k, view.dtype, at), rounded(want, c.dtype)) << layer << ' ' << slot;
        }
        for (int d = 0; d < c.v_head_dim; ++d) {
          const int64_t at =
              page * view.v_page_stride + h * view.v_head_stride + offset * view.v_slot_stride + d;
          const float want = written ? v[static_cast<size_t>(row * v_row + h * c.v_head_dim + d)] : 42.0f;
          EXPECT_EQ(load(view.v, view.dtype, at), rounded(want, c.dtype)) << layer << ' ' << slot;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, KvCacheAppend, ::testing::Values(DType::f32, DType::f16, DType::bf16));

TEST(KvCacheTest, ManyRowsInParallelEqualOneByOne) {
  KvCacheConfig c = small(DType::bf16);
  c.head_dim = c.v_head_dim = 64;
  c.page_size = 16;
  c.num_pages = 32;
  auto a = KvCache::create(c), b = KvCache::create(c);
  ASSERT_TRUE(a.ok() && b.ok());
  ThreadPool pool(3);
  Stream stream(pool);
  const int row = c.num_kv_heads * 64;
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<int64_t> slots(512);
  std::vector<float> k(slots.size() * static_cast<size_t>(row)), v(k.size());
  for (float& x : k)
    x = normal(rng);
  for (float& x : v)
    x = normal(rng);
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i] = static_cast<int64_t>(i * 5 % slots.size());
  a->append(0, slots, k.data(), row, v.data(), row, stream);
  for (size_t i = 0; i < slots.size(); ++i)
    b->append(0, std::span(slots).subspan(i, 1), k.data() + i * static_cast<size_t>(row), row,
              v.data() + i * static_cast<size_t>(row), row, stream);
  const size_t bytes = slots.size() * static_cast<size_t>(row) * 2;
  EXPECT_EQ(std::memcmp(a->layer(0).k, b->layer(0).k, bytes), 0);
  EXPECT_EQ(std::memcmp(a->layer(0).v, b->layer(0).v, bytes), 0);
}

TEST(KvCacheTest, BytesPerPage) {
  const KvCacheConfig c = small(DType::bf16);
  EXPECT_EQ(KvCache::bytes_per_page(c), 2 * 3 * 3 * (8 + 5) * 2);
}

TEST(KvCacheTest, RefusesWhatCantBeHad) {
  KvCacheConfig c = small(DType::f32);
  c.num_pages = std::numeric_limits<int64_t>::max() / 8;
  auto r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::out_of_memory);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators end the program
  c.num_pages = int64_t{1} << 44;  // in range for 64 bits, beyond any address space
  r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::out_of_memory);
#endif
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
  c.num_pages = 0;
  r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fovea
