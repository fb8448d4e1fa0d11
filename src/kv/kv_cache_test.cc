#include "kv/kv_cache.h"

#include <gtest/gtest.h>
#include <utility>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "base/float8.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "fovea/result.h"

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

constexpr int64_t kPages = 7;

/// Two layers.
KvGroup small(KvCacheDType dtype, KvLayout layout = KvLayout::hnd) {
  KvGroup c;
  c.layers = {0, 1};
  c.num_kv_heads = 3;
  c.head_dim = 16;
  c.v_head_dim = 5;
  c.page_size = layout == KvLayout::shuffle ? 16 : 3;
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
  const KvGroup& c = cache.groups()[cache.group_of(layer)];
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
  const KvGroup c = small(dtype, layout);
  auto made = KvCache::create({c}, {kPages});
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
  for (const int layer : c.layers)
    cache.append(layer, all, marks.data(), 0, marks.data(), 0, stream);

  const std::vector<int64_t> slots = {20, 0, -1, 7, 8, 3};
  cache.append(1, slots, k.data(), k_row, v.data(), v_row, stream);
  for (const int layer : c.layers) {
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
  KvGroup c = small(dtype);
  c.num_kv_heads = 1;
  if (is_fp8(dtype)) c.k_scales = c.v_scales = {1, 1};
  k.resize(16);
  auto cache = KvCache::create({c}, {kPages});
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
  KvGroup c = small(KvCacheDType::bfloat16);
  c.head_dim = c.v_head_dim = 64;
  c.page_size = 16;
  auto a = KvCache::create({c}, {32}), b = KvCache::create({c}, {32});
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

/// A group's memory is as documented: for each layer K, V, K scales and V scales, each aligned.
TEST(KvCacheTest, OneGroupHasTheLayersOneAfterAnother) {
  for (const KvCacheDType dtype : {KvCacheDType::bfloat16, KvCacheDType::int8_per_token_head}) {
    const KvGroup c = small(dtype);
    auto cache = KvCache::create({c}, {kPages});
    ASSERT_TRUE(cache.ok());
    const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
    const auto item = static_cast<int64_t>(size_of(dtype));
    const int64_t rows = kPages * 3 * 3;  // pages, tokens, heads
    const int64_t v = aligned(rows * 16 * item), k_scales = v + aligned(rows * 5 * item);
    const int64_t scales = has_token_scales(dtype) ? aligned(rows * 4) : 0;
    const int64_t layer_bytes = k_scales + 2 * scales;
    EXPECT_EQ(cache->buffer().size(), static_cast<size_t>(2 * layer_bytes));
    for (const int layer : {0, 1}) {
      const KvView view = cache->layer(layer);
      const std::byte* base = cache->buffer().data() + layer * layer_bytes;
      EXPECT_EQ(view.k, base);
      EXPECT_EQ(view.v, base + v);
      const void* const no_scales = nullptr;
      EXPECT_EQ(view.k_scales, scales > 0 ? base + k_scales : no_scales);
      EXPECT_EQ(view.v_scales, scales > 0 ? base + k_scales + scales : no_scales);
      EXPECT_EQ(view.num_pages, kPages);
    }
  }
}

/// Bytes [first, last) of a cache's buffer.
struct Extent {
  int64_t first, last;
};

/// The ranges of memory that `view` can address, which must be dense.
std::vector<Extent> extents(const KvCache& cache, const KvView& view, bool latent) {
  const auto at = [&](const void* p, int64_t bytes) {
    const int64_t first = static_cast<const std::byte*>(p) - cache.buffer().data();
    return Extent{first, first + bytes};
  };
  const auto item = static_cast<int64_t>(size_of(view.dtype));
  std::vector<Extent> out = {at(view.k, view.num_pages * view.k_page_stride * item)};
  const int64_t scale_bytes = view.num_pages * view.scale_page_stride * 4;
  if (scale_bytes > 0) out.push_back(at(view.k_scales, scale_bytes));
  if (latent) return out;
  out.push_back(at(view.v, view.num_pages * view.v_page_stride * item));
  if (scale_bytes > 0) out.push_back(at(view.v_scales, scale_bytes));
  return out;
}

/// Groups that differ in every field, with interleaved layers; layer 5 keeps a state.
std::vector<KvGroup> mixed() {
  KvGroup full = small(KvCacheDType::bfloat16);
  full.layers = {0, 3};
  KvGroup window = small(KvCacheDType::int8_per_token_head, KvLayout::nhd);
  window.kind = KvKind::window;
  window.window = 9;
  window.layers = {1, 4};
  window.num_kv_heads = 2;
  window.head_dim = window.v_head_dim = 7;
  window.page_size = 5;
  KvGroup latent = small(KvCacheDType::int8_per_token_head);
  latent.kind = KvKind::latent;
  latent.layers = {2};
  latent.num_kv_heads = 1;
  latent.head_dim = 12;
  latent.v_head_dim = 8;
  latent.page_size = 4;
  KvGroup state;
  state.kind = KvKind::state;
  state.layers = {5};
  state.state_bytes = 100;
  KvGroup cross = small(KvCacheDType::fp8_e4m3, KvLayout::x_packed);
  cross.kind = KvKind::cross;
  cross.layers = {6, 7};
  cross.k_scales = {0.5f, 0.75f};
  cross.v_scales = {0.25f, 2.0f};
  return {full, window, latent, state, cross};
}

constexpr int kPagedLayers[] = {0, 1, 2, 3, 4, 6, 7};

TEST(KvCacheTest, LayersOfDifferentGroupsDoNotOverlap) {
  auto cache = KvCache::create(mixed(), {7, 4, 9, 3, 2});
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  std::vector<Extent> all;
  for (const int layer : kPagedLayers) {
    const size_t group = cache->group_of(layer);
    const KvGroup& c = cache->groups()[group];
    const KvView view = cache->layer(layer);
    EXPECT_EQ(std::count(c.layers.begin(), c.layers.end(), layer), 1);
    EXPECT_EQ(view.dtype, c.dtype);
    EXPECT_EQ(view.page_size, c.page_size);
    EXPECT_EQ(view.num_pages, cache->num_pages(group));
    EXPECT_EQ(view.k_page_stride, int64_t{c.num_kv_heads} * c.head_dim * c.page_size);
    for (const Extent& e : extents(*cache, view, c.kind == KvKind::latent))
      all.push_back(e);
  }
  EXPECT_EQ(cache->layer(6).k_scale, 0.5f);
  EXPECT_EQ(cache->layer(6).v_scale, 0.25f);
  EXPECT_EQ(cache->layer(7).k_scale, 0.75f);
  EXPECT_EQ(cache->layer(7).v_scale, 2.0f);
  const Tensor states = cache->state(5);
  EXPECT_TRUE(states.has_shape({3, 100}));
  const int64_t state_begin = states.as<std::byte>() - cache->buffer().data();
  all.push_back({state_begin, state_begin + 300});
  std::sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) { return a.first < b.first; });
  EXPECT_EQ(all.front().first, 0);
  EXPECT_LE(all.back().last, static_cast<int64_t>(cache->buffer().size()));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].first % 64, 0);
    EXPECT_LT(all[i].first, all[i].last);
    // Between two extents there is only padding to a cache line.
    const int64_t next = i + 1 < all.size() ? all[i + 1].first : static_cast<int64_t>(cache->buffer().size());
    EXPECT_EQ(next, (all[i].last + 63) / 64 * 64) << i;
  }
}

TEST(KvCacheTest, AppendChangesNoOtherLayer) {
  auto cache = KvCache::create(mixed(), {7, 4, 9, 3, 2});
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  ThreadPool pool(2);
  Stream stream(pool);
  std::byte* bytes = cache->buffer().data();
  const auto size = static_cast<int64_t>(cache->buffer().size());
  for (const int layer : kPagedLayers) {
    const KvGroup& c = cache->groups()[cache->group_of(layer)];
    const bool latent = c.kind == KvKind::latent;
    std::vector<int64_t> slots(static_cast<size_t>(cache->num_pages(cache->group_of(layer)) * c.page_size));
    std::iota(slots.begin(), slots.end(), 0);
    const int row = c.num_kv_heads * c.head_dim;
    const std::vector<float> x(static_cast<size_t>(row), 1.5f);  // no byte of x or its scale is 0xa5
    std::memset(bytes, 0xa5, static_cast<size_t>(size));
    cache->append(layer, slots, x.data(), 0, latent ? nullptr : x.data(), 0, stream);
    const std::vector<Extent> own = extents(*cache, cache->layer(layer), latent);
    for (int64_t i = 0; i < size; ++i) {
      const bool inside =
          std::any_of(own.begin(), own.end(), [i](const Extent& e) { return e.first <= i && i < e.last; });
      ASSERT_EQ(bytes[i] != std::byte{0xa5}, inside) << "layer " << layer << " byte " << i;
    }
  }
}

TEST(KvCacheTest, LatentRecordsHoldKAndV) {
  for (const KvCacheDType dtype :
       {KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3, KvCacheDType::int8_per_token_head}) {
    KvGroup c = mixed()[2];
    c.layers = {0};
    c.dtype = dtype;
    if (is_fp8(dtype)) c.k_scales = {0.5f};
    auto cache = KvCache::create({c}, {3});
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    ThreadPool pool(1);
    Stream stream(pool);
    std::vector<float> records(2 * 12);
    std::iota(records.begin(), records.end(), -11.0f);
    const std::vector<int64_t> slots = {6, 11};
    cache->append(0, slots, records.data(), 12, nullptr, 0, stream);
    const KvView view = cache->layer(0);
    EXPECT_EQ(view.v, view.k);
    EXPECT_EQ(view.v_scales, view.k_scales);
    EXPECT_EQ(view.v_scale, view.k_scale);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t page = slots[i] / 4, offset = slots[i] % 4;
      const float most = i == 0 ? 11 : 12;
      const float token_scale = has_token_scales(dtype) ? most / 127 : view.k_scale;
      if (has_token_scales(dtype)) {
        EXPECT_EQ(view.v_scales[page * view.scale_page_stride + offset], token_scale);
      }
      for (int e = 0; e < 12; ++e) {
        const float expected = stored(records[i * 12 + static_cast<size_t>(e)], dtype, token_scale);
        EXPECT_EQ(load(view.k, dtype, page * view.k_page_stride + offset * view.k_slot_stride + e), expected);
        if (e < c.v_head_dim) {
          EXPECT_EQ(load(view.v, dtype, page * view.v_page_stride + offset * view.v_slot_stride + e),
                    expected);
        }
      }
    }
  }
}

TEST(KvCacheTest, RefusesWhatCantBeHad) {
  const KvGroup c = small(KvCacheDType::float32);
  for (const int64_t pages : {std::numeric_limits<int64_t>::max() / 8,
                              int64_t{1} << 44}) {  // the second fits 64 bits, but no address space
    const auto r = KvCache::create({c}, {pages});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
    EXPECT_NE(r.error().message.find(std::to_string(pages) + " pages of 3 tokens"), std::string::npos);
  }
  KvGroup large = c, second = c;
  large.layers = {0};
  second.layers = {1};
  large.num_kv_heads = second.num_kv_heads = 1 << 30;
  // Each fits 64 bits; their sum does not.
  const int64_t half = int64_t{1} << 25;
  const auto both = KvCache::create({large, second}, {half, half});
  ASSERT_FALSE(both.ok());
  EXPECT_NE(both.error().message.find("exceeds 64-bit sizes"), std::string::npos) << both.error().message;

  const auto refusal = [](std::vector<KvGroup> groups, const std::vector<int64_t>& counts) {
    const auto r = KvCache::create(std::move(groups), counts);
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.ok() ? ErrorCode::out_of_memory : r.error().code, ErrorCode::invalid_argument);
    return r.ok() ? std::string("accepted") : r.error().message;
  };
  EXPECT_NE(refusal({c}, {0}).find("KV group 0 (full): 0 pages; it must have at least 1"), std::string::npos);
  EXPECT_NE(refusal(mixed(), {1, 1, 1, -3, 1}).find("KV group 3 (state): -3 sequences"), std::string::npos);
  EXPECT_NE(refusal({c}, {3, 3}).find("2 numbers of pages for 1 groups"), std::string::npos);
  EXPECT_NE(refusal({}, {}).find("no groups"), std::string::npos);
}

}  // namespace
}  // namespace fovea
