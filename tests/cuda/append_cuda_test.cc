// Appending to the cache on the device, compared with the CPU byte for byte, including the surrounding
// memory.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "attention/kv_view.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/cuda/cuda_test_support.h"
#include "device/stream.h"
#include "kernels/cpu/ops.h"
#include "kernels/cuda/append/append.h"
#include "kv/kv_cache.h"
#include "model/rope.h"

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kTokens = 37, kHeads = 3;

constexpr KvCacheDType kDtypes[] = {KvCacheDType::float32,  KvCacheDType::float16,
                                    KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3,
                                    KvCacheDType::fp8_e5m2, KvCacheDType::int8_per_token_head};

KvGroup one_layer(int head_dim, int v_head_dim, int page_size, KvCacheDType dtype,
                  KvLayout layout = KvLayout::hnd) {
  KvGroup group;
  group.layers = {0};
  group.num_kv_heads = kHeads;
  group.head_dim = head_dim;
  group.v_head_dim = v_head_dim;
  group.page_size = page_size;
  group.dtype = dtype;
  group.layout = layout;
  return group;
}

class Append : public CudaTest {
 protected:
  /// A view of a layer of the CPU's cache, and the same view of a copy of its bytes on the device.
  struct Mirror {
    KvView host, device;
    DeviceBuffer data;
    size_t bytes = 0;
  };

  Mirror mirror(KvCache& cache) {
    Mirror m;
    m.host = m.device = cache.layer(0);
    const auto* begin = static_cast<const std::byte*>(m.host.k);
    const void* last = m.host.v_scales != nullptr ? static_cast<const void*>(m.host.v_scales) : m.host.v;
    const KvGroup& group = cache.groups()[0];
    const int64_t pages = cache.num_pages(0);
    const int64_t last_bytes =
        m.host.v_scales != nullptr
            ? pages * m.host.scale_page_stride * static_cast<int64_t>(sizeof(float))
            : pages * m.host.v_page_stride * static_cast<int64_t>(size_of(group.dtype));
    m.bytes = static_cast<size_t>(static_cast<const std::byte*>(last) - begin + last_bytes);
    std::memset(const_cast<std::byte*>(begin), 0xa5, m.bytes);
    m.data = upload(std::vector<std::byte>(begin, begin + m.bytes));
    const auto moved = [&](const void* p) {
      return m.data.data() + (static_cast<const std::byte*>(p) - begin);
    };
    m.device.k = m.data.data();
    m.device.v = moved(m.host.v);
    if (m.host.k_scales != nullptr) {
      m.device.k_scales = reinterpret_cast<const float*>(moved(m.host.k_scales));
      m.device.v_scales = reinterpret_cast<const float*>(moved(m.host.v_scales));
    }
    return m;
  }

  void expect_same_bytes(const Mirror& m, const std::string& what) {
    const std::vector<std::byte> got = download<std::byte>(m.data);
    ASSERT_EQ(std::memcmp(got.data(), m.host.k, m.bytes), 0) << what;
  }

  ThreadPool pool_{1};
  Stream cpu_{pool_};
};

/// Ordinary values, and one row of each difficult kind: huge, subnormal, NaN, infinite, all zero.
std::vector<float> hard_rows(std::mt19937& random, int rows, int n) {
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < n; ++i) {
      const float v = normal(random);
      switch (row % 12) {
        case 3: x.push_back(v * 1e6f); break;
        case 4: x.push_back(v * 1e-39f); break;
        case 5: x.push_back(i == 2 ? -std::numeric_limits<float>::quiet_NaN() : v); break;
        case 6: x.push_back(i == 1 ? -kInf : v); break;
        case 7: x.push_back(i % 2 == 0 ? 0.0f : -0.0f); break;
        case 8: x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random()))); break;
        default: x.push_back(v);
      }
    }
  return x;
}

TEST_F(Append, StoresWhatTheCpuStores) {
  std::mt19937 random(1);
  for (const KvCacheDType dtype : kDtypes) {
    for (const KvLayout layout : {KvLayout::nhd, KvLayout::hnd, KvLayout::x_packed, KvLayout::shuffle}) {
      for (const auto& [page_size, d, dv] :
           {std::tuple{1, 64, 64}, {16, 128, 128}, {32, 64, 30}, {5, 192, 128}, {7, 48, 30}}) {
        if (layout == KvLayout::shuffle && page_size % x_of(dtype) != 0) continue;
        const int64_t pages = 90 / page_size + 1;
        KvGroup group = one_layer(d, dv, page_size, dtype, layout);
        if (is_fp8(dtype)) group.k_scales = {0.37f}, group.v_scales = {1.9f};
        auto cache = KvCache::create({group}, {pages});
        ASSERT_TRUE(cache.ok()) << error_of(cache);
        const Mirror m = mirror(*cache);
        const std::vector<float> k = hard_rows(random, kTokens * kHeads, d),
                                 v = hard_rows(random, kTokens * kHeads, dv);
        std::vector<int64_t> slots;  // shuffled, one in nine is padding
        for (int t = 0; t < kTokens; ++t)
          slots.push_back(t % 9 == 4 ? -1 : (t * 31 + 5) % 89);
        cache->append(0, slots, k.data(), kHeads * d, v.data(), kHeads * dv, cpu_);
        const DeviceBuffer k_there = upload(k), v_there = upload(v), slots_there = upload(slots);
        AppendParams p;
        p.tokens = kTokens, p.num_kv_heads = kHeads, p.head_dim = d, p.v_head_dim = dv;
        p.dtype = DType::f32;
        p.k = k_there.data(), p.v = v_there.data();
        p.k_row_stride = kHeads * d, p.v_row_stride = kHeads * dv;
        p.kv = m.device;
        p.slots = slots_there.as<int64_t>();
        p.num_slots = pages * page_size;
        ASSERT_EQ(error_of(launch_append(p, stream())), "");
        expect_same_bytes(m, std::string(to_string(dtype)) + " " + std::string(to_string(layout)) + " page " +
                                 std::to_string(page_size));
      }
    }
  }
}

TEST_F(Append, SixteenBitRowsAnd32BitSlots) {
  std::mt19937 random(2);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    KvGroup group = one_layer(80, 80, 16, KvCacheDType::fp8_e4m3);
    group.k_scales = {0.5f}, group.v_scales = {0.25f};
    auto cache = KvCache::create({group}, {8});
    ASSERT_TRUE(cache.ok());
    const Mirror m = mirror(*cache);
    std::vector<uint16_t> bits;
    std::vector<float> x;
    std::normal_distribution<float> normal;
    // Rows with gaps between them, as in slices of a fused projection.
    const int stride = kHeads * 80 + 12;
    for (int i = 0; i < kTokens * stride; ++i) {
      const float value = normal(random);
      bits.push_back(dtype == DType::f16 ? float_to_fp16(value) : float_to_bf16(value));
      x.push_back(dtype == DType::f16 ? fp16_to_float(bits.back()) : bf16_to_float(bits.back()));
    }
    std::vector<int64_t> slots;
    std::vector<int32_t> short_slots;
    for (int t = 0; t < kTokens; ++t) {
      slots.push_back((t * 17) % 128);
      short_slots.push_back(static_cast<int32_t>(slots.back()));
    }
    cache->append(0, slots, x.data(), stride, x.data(), stride, cpu_);
    const DeviceBuffer rows = upload(bits), slots_there = upload(short_slots);
    AppendParams p;
    p.tokens = kTokens, p.num_kv_heads = kHeads, p.head_dim = p.v_head_dim = 80;
    p.dtype = dtype;
    p.k = p.v = rows.data();
    p.k_row_stride = p.v_row_stride = stride;
    p.kv = m.device;
    p.slots = slots_there.as<int32_t>();
    p.num_slots = 128;
    ASSERT_EQ(error_of(launch_append(p, stream())), "");
    expect_same_bytes(m, std::string(to_string(dtype)));
  }
}

TEST_F(Append, RotatesAsTheCpuDoes) {
  std::mt19937 random(3);
  constexpr int kDim = 64, kRotary = 48, kRows = 50;
  std::normal_distribution<float> normal;
  std::vector<double> frequencies;
  for (int t = 0; t < kRotary / 2; ++t)
    frequencies.push_back(std::pow(10000.0, -2.0 * t / kRotary));
  std::vector<int32_t> table_positions(kRows), positions;
  for (int i = 0; i < kRows; ++i)
    table_positions[static_cast<size_t>(i)] = i * 977;
  for (int t = 0; t < kTokens; ++t)
    positions.push_back((t * 13) % kRows);
  std::vector<float> cos(kRows * kRotary / 2), sin(cos.size());
  rope_rows(frequencies, 1.25, table_positions, cos.data(), sin.data(), pool_);
  const DeviceBuffer frequencies_there = upload(frequencies), table_there = upload(table_positions);
  const DeviceBuffer cos_there = poisoned<float>(cos.size()), sin_there = poisoned<float>(cos.size());
  ASSERT_EQ(
      error_of(launch_rope_rows(frequencies_there.as<double>(), kRotary / 2, 1.25, table_there.as<int32_t>(),
                                kRows, cos_there.as<float>(), sin_there.as<float>(), stream())),
      "");
  // Both round the fp64 values once; the last bit of a library's sin may differ before that.
  const std::vector<float> got_cos = download<float>(cos_there), got_sin = download<float>(sin_there);
  for (size_t i = 0; i < cos.size(); ++i) {
    EXPECT_NEAR(got_cos[i], cos[i], 1.2e-7f);
    EXPECT_NEAR(got_sin[i], sin[i], 1.2e-7f);
  }
  const DeviceBuffer same_cos = upload(cos), same_sin = upload(sin), positions_there = upload(positions);
  for (const bool interleaved : {false, true}) {
    std::vector<float> q(kTokens * kHeads * kDim);
    for (float& x : q)
      x = normal(random);
    const DeviceBuffer q_there = upload(q);
    AppendParams p;
    p.tokens = kTokens, p.num_heads = kHeads, p.head_dim = kDim;
    p.dtype = DType::f32;
    p.q = p.q_out = q_there.data();
    p.q_row_stride = p.q_out_row_stride = kHeads * kDim;
    p.rope = {kRotary, interleaved, same_cos.as<float>(), same_sin.as<float>(),
              positions_there.as<int32_t>()};
    ASSERT_EQ(error_of(launch_append(p, stream())), "");
    const auto rope = interleaved ? rope_interleaved : rope_neox;
    rope(q.data(), kHeads * kDim, kHeads, kDim, kRotary, positions, cos.data(), sin.data(), pool_);
    EXPECT_EQ(download<float>(q_there), q) << interleaved;
  }
}

TEST_F(Append, NormsHeadsThenRotatesAndStores) {
  std::mt19937 random(4);
  constexpr int kDim = 128;
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * kHeads * kDim), weight(kDim), cos(kTokens * kDim / 2), sin(cos.size());
  for (float& v : x)
    v = normal(random);
  for (float& v : weight)
    v = 1.0f + 0.1f * normal(random);
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  for (int t = 0; t < kTokens; ++t)
    positions.push_back(t), slots.push_back(t);
  std::vector<double> frequencies;
  for (int t = 0; t < kDim / 2; ++t)
    frequencies.push_back(std::pow(1e6, -2.0 * t / kDim));
  rope_rows(frequencies, 1.0, positions, cos.data(), sin.data(), pool_);
  auto cache = KvCache::create({one_layer(kDim, kDim, 16, KvCacheDType::float32)}, {4});
  ASSERT_TRUE(cache.ok());
  const Mirror m = mirror(*cache);
  const DeviceBuffer x_there = upload(x), weight_there = upload(weight), cos_there = upload(cos),
                     sin_there = upload(sin), slots_there = upload(slots), q_out = poisoned<float>(x.size());
  AppendParams p;
  p.tokens = kTokens, p.num_heads = p.num_kv_heads = kHeads, p.head_dim = p.v_head_dim = kDim;
  p.dtype = DType::f32;
  p.q = p.k = p.v = x_there.data();
  p.q_out = q_out.data();
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.q_out_row_stride = kHeads * kDim;
  p.q_norm = p.k_norm = {weight_there.as<float>(), 1e-6f};
  p.rope = {kDim, false, cos_there.as<float>(), sin_there.as<float>(), nullptr};
  p.kv = m.device;
  p.slots = slots_there.as<int64_t>();
  p.num_slots = 64;
  ASSERT_EQ(error_of(launch_append(p, stream())), "");
  std::vector<float> expected = x;
  rms_norm_heads(expected.data(), kHeads * kDim, kHeads, kDim, weight.data(), 1e-6f, kTokens, pool_);
  rope_neox(expected.data(), kHeads * kDim, kHeads, kDim, kDim, positions, cos.data(), sin.data(), pool_);
  const std::vector<float> got = download<float>(q_out);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 2e-6f) << i;
  // Q and K are normed and rotated, V is not.
  cache->append(0, slots, got.data(), kHeads * kDim, x.data(), kHeads * kDim, cpu_);
  expect_same_bytes(m, "norm and rotation");
}

TEST_F(Append, SlotsBeyondTheCacheAreReportedAndNotWritten) {
  auto cache = KvCache::create({one_layer(64, 64, 16, KvCacheDType::float16, KvLayout::nhd)}, {4});
  ASSERT_TRUE(cache.ok());
  const Mirror m = mirror(*cache);
  const std::vector<float> x(4 * kHeads * 64, 1.5f);
  const DeviceBuffer x_there = upload(x), slots = upload<int64_t>({64, -5, 1'000'000'000'000, -1});
  const DeviceBuffer error = upload<int32_t>({0});
  AppendParams p;
  p.tokens = 4, p.num_kv_heads = kHeads, p.head_dim = p.v_head_dim = 64;
  p.dtype = DType::f32;
  p.k = p.v = x_there.data();
  p.k_row_stride = p.v_row_stride = kHeads * 64;
  p.kv = m.device;
  p.slots = slots.as<int64_t>();
  p.num_slots = 64;
  p.error = error.as<int32_t>();
  ASSERT_EQ(error_of(launch_append(p, stream())), "");
  EXPECT_EQ(download<int32_t>(error)[0], 3);
  expect_same_bytes(m, "nothing is written");
}

/// Many sequences of no, one and several new rows: each token finds its sequence and its position, as on the
/// CPU.
TEST_F(Append, PlacesRowsBySequences) {
  constexpr int kSeqs = 1100, kPageSize = 4, kColumns = 4, kDim = 32, kRotary = 16;
  std::mt19937 random(6);
  for (const bool one_each : {false, true}) {
    std::vector<int32_t> q_offsets = {0}, table;
    std::vector<int64_t> kv_lens;
    for (int b = 0; b < kSeqs; ++b) {
      const int rows = one_each ? 1 : static_cast<int>(random() % 4);
      q_offsets.push_back(q_offsets.back() + rows);
      kv_lens.push_back(rows + static_cast<int>(random() % 12));
      for (int c = 0; c <= kColumns; ++c)  // one column more than the step uses
        table.push_back(c < kColumns ? kColumns * b + (c + b) % kColumns : -7);
    }
    const int tokens = q_offsets.back() + 3;  // the last three belong to no sequence
    std::normal_distribution<float> normal;
    std::vector<float> q, k, v, cos, sin;
    for (int i = 0; i < tokens * kHeads * kDim; ++i)
      q.push_back(normal(random)), k.push_back(normal(random)), v.push_back(normal(random));
    for (int i = 0; i < 16 * kRotary / 2; ++i)
      cos.push_back(normal(random)), sin.push_back(normal(random));
    auto cache =
        KvCache::create({one_layer(kDim, kDim, kPageSize, KvCacheDType::bfloat16)}, {kColumns * kSeqs});
    ASSERT_TRUE(cache.ok());
    const Mirror m = mirror(*cache);
    std::vector<float> q_out(q.size(), -1.0f);
    AppendParams host;
    host.tokens = tokens, host.num_heads = host.num_kv_heads = kHeads, host.head_dim = host.v_head_dim = kDim;
    host.dtype = DType::f32;
    host.q = q.data(), host.k = k.data(), host.v = v.data(), host.q_out = q_out.data();
    host.q_row_stride = host.k_row_stride = host.v_row_stride = host.q_out_row_stride = kHeads * kDim;
    host.rope = {kRotary, false, cos.data(), sin.data(), nullptr, 16};
    host.kv = m.host;
    host.sequences = {q_offsets.data(), kv_lens.data(), table.data(), kSeqs, kColumns, kColumns + 1};
    host.num_slots = kColumns * kSeqs * kPageSize;
    const DeviceBuffer q_there = upload(q), k_there = upload(k), v_there = upload(v), cos_there = upload(cos),
                       sin_there = upload(sin), offsets_there = upload(q_offsets),
                       lens_there = upload(kv_lens), table_there = upload(table),
                       error = upload<int32_t>({0}), out_there = upload(q_out);
    AppendParams p = host;
    p.q = q_there.data(), p.k = k_there.data(), p.v = v_there.data(), p.q_out = out_there.data();
    p.rope.cos = cos_there.as<float>(), p.rope.sin = sin_there.as<float>();
    p.kv = m.device;
    p.sequences.q_offsets = offsets_there.as<int32_t>();
    p.sequences.kv_lens = lens_there.as<int64_t>();
    p.sequences.page_table = table_there.as<int32_t>();
    p.error = error.as<int32_t>();
    ASSERT_EQ(error_of(append_rows(host, pool_)), "");
    ASSERT_EQ(error_of(launch_append(p, stream())), "");
    EXPECT_EQ(download<int32_t>(error)[0], 0);
    expect_same_bytes(m, one_each ? "one row each" : "some rows each");
    EXPECT_EQ(download<float>(out_there), q_out);
    EXPECT_EQ(q_out.back(), -1.0f);
  }
}

TEST_F(Append, PagesCopyAndRowsGather) {
  std::mt19937 random(5);
  for (const KvCacheDType dtype : kDtypes) {
    for (const KvLayout layout : {KvLayout::nhd, KvLayout::hnd, KvLayout::x_packed, KvLayout::shuffle}) {
      const int page = layout == KvLayout::shuffle ? 16 : 6, tokens = 9 * page;
      KvGroup group = one_layer(48, 40, page, dtype, layout);
      if (is_fp8(dtype)) group.k_scales = {0.37f}, group.v_scales = {1.9f};
      auto cache = KvCache::create({group}, {9});
      ASSERT_TRUE(cache.ok()) << error_of(cache);
      const Mirror empty = mirror(*cache);
      std::vector<int64_t> slots(static_cast<size_t>(tokens));
      for (size_t i = 0; i < slots.size(); ++i)
        slots[i] = static_cast<int64_t>(i);
      std::normal_distribution<float> normal;
      std::vector<float> k(slots.size() * kHeads * 48), v(slots.size() * kHeads * 40);
      for (float& x : k)
        x = normal(random);
      for (float& x : v)
        x = normal(random);
      cache->append(0, slots, k.data(), kHeads * 48, v.data(), kHeads * 40, cpu_);
      ASSERT_EQ(error_of(stream().copy(empty.data.data(), empty.host.k, empty.bytes)), "");
      const DeviceBuffer from = upload<int32_t>({1, 8, 77}),
                         to = upload<int32_t>({5, 0, 2});  // there is no page 77
      ASSERT_EQ(error_of(launch_copy_pages(
                    {empty.device, kHeads, 48, 40, from.as<int32_t>(), to.as<int32_t>(), 3, 9}, stream())),
                "");
      const std::vector<int32_t> rows = {5 * page + 3, page + 3, -1,          5 * page + 4, 5,
                                         8 * page + 5, tokens,   3 * page - 1};
      const DeviceBuffer rows_there = upload(rows);
      const DeviceBuffer got_k = poisoned<float>(8 * kHeads * 48), got_v = poisoned<float>(8 * kHeads * 40);
      GatherRows g{empty.device, kHeads, 48,         40,           rows_there.as<int32_t>(),
                   tokens,       8,      DType::f32, got_k.data(), got_v.data()};
      ASSERT_EQ(error_of(launch_gather_rows(g, stream())), "");
      const auto expect = [&](const std::vector<float>& got, const std::vector<float>& x, int n) {
        for (size_t r = 0; r < rows.size(); ++r) {
          // Page 5 is a copy of page 1, and page 0 of page 8.
          const int slot = rows[r], origin = slot / page == 5           ? slot - 4 * page
                                             : slot >= 0 && slot < page ? slot + 8 * page
                                                                        : slot;
          for (int i = 0; i < kHeads * n; ++i) {
            const float value = got[r * static_cast<size_t>(kHeads * n) + static_cast<size_t>(i)];
            if (slot < 0 || slot >= tokens) {
              ASSERT_EQ(value, 0.0f);
            } else {
              const float original = x[static_cast<size_t>(origin * kHeads * n + i)];
              // e5m2 has two mantissa bits; int8 steps are 1/127 of the largest element of a row.
              ASSERT_NEAR(value, original,
                          dtype == KvCacheDType::float32 ? 0.0f : 0.02f + 0.13f * std::fabs(original))
                  << to_string(dtype) << " " << to_string(layout) << " " << r << " " << i;
            }
          }
        }
        EXPECT_TRUE(std::equal(got.begin(), got.begin() + kHeads * n, got.begin() + kHeads * n))
            << "of the copy";
      };
      expect(download<float>(got_k), k, 48);
      expect(download<float>(got_v), v, 40);
    }
  }
}

TEST_F(Append, RefusesWhatDoesNotGoTogether) {
  const DeviceBuffer x = poisoned<float>(4096);
  AppendParams p;
  p.tokens = 1, p.num_heads = p.num_kv_heads = 1, p.head_dim = p.v_head_dim = 64;
  p.q = p.k = p.v = p.q_out = x.data();
  p.slots = x.as<int64_t>(), p.kv.k = p.kv.v = x.data(), p.kv.dtype = KvCacheDType::bfloat16;
  const auto refused = [&](auto change) {
    AppendParams changed = p;
    change(changed);
    return error_of(launch_append(changed, stream()));
  };
  EXPECT_THAT(refused([](AppendParams& a) { a.head_dim = 2048; }), HasSubstr("2048/64 exceed 1024"));
  EXPECT_THAT(refused([](AppendParams& a) { a.v = nullptr; }), HasSubstr("K needs V"));
  EXPECT_THAT(refused([](AppendParams& a) { a.q_out = nullptr; }), HasSubstr("q_out"));
  EXPECT_THAT(refused([](AppendParams& a) { a.rope.dim = 66; }), HasSubstr("rotary dim 66"));
  EXPECT_THAT(refused([](AppendParams& a) { a.rope.dim = 64; }), HasSubstr("cos and sin"));
  EXPECT_THAT(refused([](AppendParams& a) { a.kv.dtype = KvCacheDType::nvfp4; }), HasSubstr("nvfp4"));
  EXPECT_THAT(refused([](AppendParams& a) { a.kv.dtype = KvCacheDType::int8_per_token_head; }),
              HasSubstr("needs scales"));
  EXPECT_THAT(refused([](AppendParams& a) { a.kv.form = KvForm::x_packed, a.head_dim = 60; }),
              HasSubstr("multiple of 8"));
  EXPECT_THAT(refused([](AppendParams& a) { a.tokens = -1; }), HasSubstr("-1 tokens"));
}

}  // namespace
}  // namespace fovea::cuda
