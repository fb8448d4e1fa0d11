#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "base/float8.h"
#include "device/stream.h"

// Without this option, the sanitizers' allocators abort where malloc returns null.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The element at `index` as float, not scaled.
float load(const void* base, KvCacheDType dtype, int64_t index) {
  switch (dtype) {
    case KvCacheDType::float32: return static_cast<const float*>(base)[index];
    case KvCacheDType::float16: return fp16_to_float(static_cast<const uint16_t*>(base)[index]);
    case KvCacheDType::bfloat16: return bf16_to_float(static_cast<const uint16_t*>(base)[index]);
    case KvCacheDType::fp8_e4m3: return e4m3_to_float(static_cast<const uint8_t*>(base)[index]);
    case KvCacheDType::fp8_e5m2: return e5m2_to_float(static_cast<const uint8_t*>(base)[index]);
    case KvCacheDType::int8_per_token_head: return static_cast<const int8_t*>(base)[index];
    default: return 0;
  }
}

/// The value stored for x, as float.
float stored(float x, KvCacheDType dtype, float scale) {
  switch (dtype) {
    case KvCacheDType::float16: return fp16_to_float(float_to_fp16(x));
    case KvCacheDType::bfloat16: return bf16_to_float(float_to_bf16(x));
    case KvCacheDType::fp8_e4m3: return e4m3_to_float(float_to_e4m3(x / scale));
    case KvCacheDType::fp8_e5m2: return e5m2_to_float(float_to_e5m2(x / scale));
    case KvCacheDType::int8_per_token_head: return std::nearbyint(x / scale);
    default: return x;
  }
}

KvCacheConfig small(KvCacheDType dtype, KvLayout layout = KvLayout::hnd) {
  KvCacheConfig c;
  c.num_layers = 2;
  c.num_kv_heads = 3;
  c.head_dim = 16;
  c.v_head_dim = 5;
  c.page_size = layout == KvLayout::shuffle ? 16 : 3;
  c.num_pages = 7;
  c.dtype = dtype;
  c.layout = layout;
  if (is_fp8(dtype)) {
    c.k_scales = {2.0f, 0.37f};
    c.v_scales = {3.0f, 0.021f};
  }
  return c;
}

/// K or V of one (page, head, slot): element offsets by the layout's shape, and scales.
struct Row {
  const void* data;
  std::vector<int64_t> at;
  float scale, token_scale = 1;
};

Row row_of(const KvCache& cache, int layer, bool is_v, int64_t page, int64_t h, int64_t slot) {
  const KvCacheConfig& c = cache.config();
  const KvView view = cache.layer(layer);
  const int64_t d = is_v ? c.v_head_dim : c.head_dim, heads = c.num_kv_heads, s = c.page_size;
  const int64_t x = 16 / static_cast<int64_t>(size_of(c.dtype));
  Row row{is_v ? view.v : view.k, {}, is_v ? view.v_scale : view.k_scale};
  for (int64_t e = 0; e < d; ++e)
    switch (c.layout) {
      case KvLayout::nhd: row.at.push_back(((page * s + slot) * heads + h) * d + e); break;
      case KvLayout::x_packed:
        row.at.push_back(is_v ? ((page * heads + h) * d + e) * s + slot
                              : (((page * heads + h) * (d / x) + e / x) * s + slot) * x + e % x);
        break;
      case KvLayout::shuffle:
        row.at.push_back(is_v ? (((page * heads + h) * (s / x) + slot / x) * d + e) * x + slot % x
                              : (((page * heads + h) * (d / x) + e / x) * s + slot) * x + e % x);
        break;
      default: row.at.push_back(((page * heads + h) * s + slot) * d + e);
    }
  if (has_token_scales(c.dtype))
    row.token_scale = (is_v ? view.v_scales : view.k_scales)[(page * heads + h) * s + slot];
  return row;
}

class KvCacheAppend : public ::testing::TestWithParam<std::tuple<KvCacheDType, KvLayout>> {};

TEST_P(KvCacheAppend, WritesRoundedRowsAtTheirSlotsAndNothingElse) {
  const auto [dtype, layout] = GetParam();
  const KvCacheConfig c = small(dtype, layout);
  auto made = KvCache::create(c);
  ASSERT_TRUE(made.ok()) << made.error().message;
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
  std::vector<int64_t> all(21);
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> marks(static_cast<size_t>(c.num_kv_heads * c.head_dim), 42.0f);
  for (int layer = 0; layer < c.num_layers; ++layer)
    cache.append(layer, all, marks.data(), 0, marks.data(), 0, stream);

  const std::vector<int64_t> slots = {20, 0, -1, 7, 8, 3};
  cache.append(1, slots, k.data(), k_row, v.data(), v_row, stream);
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const KvView view = cache.layer(layer);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.k) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.v) % 64, 0u);
    for (const int64_t slot : all) {
      const auto found = std::find(slots.begin(), slots.end(), slot);
      const float* source_k = marks.data();
      const float* source_v = marks.data();
      if (layer == 1 && found != slots.end()) {
        source_k = k.data() + (found - slots.begin()) * k_row;
        source_v = v.data() + (found - slots.begin()) * v_row;
      }
      for (int h = 0; h < c.num_kv_heads; ++h)
        for (const bool is_v : {false, true}) {
          const Row row = row_of(cache, layer, is_v, slot / c.page_size, h, slot % c.page_size);
          const auto n = static_cast<int64_t>(row.at.size());
          const float* source = (is_v ? source_v : source_k) + h * n;
          float most = 0;
          for (int64_t e = 0; e < n; ++e)
            most = std::max(most, std::abs(source[e]));
          const float scale = has_token_scales(dtype) ? most / 127 : row.scale;
          if (has_token_scales(dtype)) {
            EXPECT_EQ(row.token_scale, scale) << layer << ' ' << slot;
          }
          for (int64_t e = 0; e < n; ++e)
            EXPECT_EQ(load(row.data, dtype, row.at[static_cast<size_t>(e)]), stored(source[e], dtype, scale))
                << layer << ' ' << slot << (is_v ? " v " : " k ") << e;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, KvCacheAppend,
                         ::testing::Combine(::testing::Values(KvCacheDType::float32, KvCacheDType::float16,
                                                              KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3,
                                                              KvCacheDType::fp8_e5m2,
                                                              KvCacheDType::int8_per_token_head),
                                            ::testing::Values(KvLayout::nhd, KvLayout::hnd,
                                                              KvLayout::x_packed, KvLayout::shuffle)),
                         [](const auto& p) {
                           return std::string(to_string(std::get<0>(p.param))) + "_" +
                                  std::string(to_string(std::get<1>(p.param)));
                         });

/// Appends one row of one head to layer 1; returns the stored values of `k` and the token's scale.
std::pair<std::vector<float>, float> append_one(KvCacheDType dtype, std::vector<float> k) {
  KvCacheConfig c = small(dtype);
  c.num_kv_heads = 1;
  if (is_fp8(dtype)) c.k_scales = c.v_scales = {1, 1};
  k.resize(16);
  auto cache = KvCache::create(c);
  EXPECT_TRUE(cache.ok());
  ThreadPool pool(1);
  Stream stream(pool);
  const int64_t slots[] = {4};
  cache->append(1, slots, k.data(), 16, k.data(), 16, stream);
  const Row row = row_of(*cache, 1, false, 1, 0, 1);
  std::vector<float> out;
  for (const int64_t at : row.at)
    out.push_back(load(row.data, dtype, at));
  return {out, row.token_scale};
}

TEST(KvCacheTest, Fp8SaturatesAndKeepsNan) {
  for (const auto& [dtype, max] :
       {std::pair{KvCacheDType::fp8_e4m3, 448.0f}, {KvCacheDType::fp8_e5m2, 57344.0f}}) {
    const auto [got, scale] = append_one(dtype, {kInf, -kInf, 1e6f, -1e6f, NAN, 1e-20f});
    EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + 4), (std::vector<float>{max, -max, max, -max}));
    EXPECT_TRUE(std::isnan(got[4]));
    EXPECT_EQ(got[5], 0.0f);
  }
}

TEST(KvCacheTest, Int8ScalesAreNeverZeroAndNanStaysNan) {
  const auto dtype = KvCacheDType::int8_per_token_head;
  auto [zeros, zero_scale] = append_one(dtype, {});
  EXPECT_EQ(zero_scale, 0x1p-126f);
  EXPECT_EQ(zeros, std::vector<float>(16));
  auto [ends, scale] = append_one(dtype, {-3, 3, 1.5f});
  EXPECT_EQ(scale, 3.0f / 127);
  EXPECT_EQ(std::vector<float>(ends.begin(), ends.begin() + 3), (std::vector<float>{-127, 127, 64}));
  auto [tiny, tiny_scale] = append_one(dtype, {1e-40f, -1e-38f});
  EXPECT_EQ(tiny_scale, 0x1p-126f);
  EXPECT_EQ(tiny[1], -1.0f);
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(std::isnan(append_one(dtype, {1, bad, 2}).second)) << bad;
}

TEST(KvCacheTest, ManyRowsInParallelEqualOneByOne) {
  KvCacheConfig c = small(KvCacheDType::bfloat16);
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
  EXPECT_EQ(KvCache::bytes_per_page(small(KvCacheDType::bfloat16)), 2 * 3 * 3 * (16 + 5) * 2);
  EXPECT_EQ(KvCache::bytes_per_page(small(KvCacheDType::fp8_e4m3)), 2 * 3 * 3 * (16 + 5));
  EXPECT_EQ(KvCache::bytes_per_page(small(KvCacheDType::int8_per_token_head)), 2 * 3 * 3 * (16 + 5 + 8));
}

TEST(KvCacheTest, RefusesWhatCantBeHad) {
  KvCacheConfig c = small(KvCacheDType::float32);
  c.num_pages = std::numeric_limits<int64_t>::max() / 8;
  auto r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::out_of_memory);
  c.num_pages = int64_t{1} << 44;  // in range for 64 bits, beyond any address space
  r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
  c.num_pages = 0;
  r = KvCache::create(c);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::invalid_argument);
}

TEST(KvCacheTest, RefusesDtypesLayoutsAndScalesThatDoNotFit) {
  const auto refusal = [](auto change) {
    KvCacheConfig c = small(KvCacheDType::fp8_e4m3);
    change(c);
    const auto cache = KvCache::create(c);
    return cache ? std::string("accepted") : cache.error().message;
  };
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_NE(refusal([](auto& c) { c.dtype = KvCacheDType::nvfp4; }).find("nvfp4 can't be stored"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& c) { c.dtype = KvCacheDType::auto_; }).find("auto resolved"), std::string::npos);
  const std::string packed = refusal([](auto& c) { c.layout = KvLayout::x_packed, c.head_dim = 24; });
  EXPECT_NE(packed.find("multiple of 16, not 24; use hnd or nhd"), std::string::npos) << packed;
  const std::string shuffled = refusal([](auto& c) { c.layout = KvLayout::shuffle, c.page_size = 24; });
  EXPECT_NE(shuffled.find("page size that is a multiple of 16, not 24; use --page-size 32, or hnd"),
            std::string::npos)
      << shuffled;
  EXPECT_NE(refusal([](auto& c) { c.k_scales = {1.0f}; }).find("1 K scales for 2 layers"), std::string::npos);
  EXPECT_NE(refusal([](auto& c) { c.dtype = KvCacheDType::bfloat16; }).find("the others none"),
            std::string::npos);
  for (const float bad : {0.0f, -1.0f, kInf, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_NE(refusal([bad](auto& c) { c.v_scales[1] = bad; }).find("positive number"), std::string::npos)
        << bad;
}

}  // namespace
}  // namespace fovea
