#pragma once
// Checks of launch_norm_rope_append(): q and K against fp64, the cache's bytes against the CPU's writer.
#include <type_traits>
#include <utility>

#include "attention/kv_view.h"
#include "base/thread_pool.h"
#include "kernels/cache/kv_writer.h"
#include "kernels/cuda/append/append.h"
#include "ops_case.cuh"

namespace fovea::cuda {

struct AppendCase {
  DType dtype = DType::bf16;
  KvCacheDType cache = KvCacheDType::bfloat16;
  KvLayout layout = KvLayout::hnd;
  int tokens = 21, heads = 6, kv_heads = 2, dim = 128, rope = 128;
  bool norm = true, over_heads = false, after = false, interleaved = false;
  double temperature = 0;

  std::string name() const {
    return "append " + name_of(dtype) + " cache " + std::string(to_string(cache)) + " layout " +
           std::string(to_string(layout)) + " D " + std::to_string(dim) + " rope " + std::to_string(rope) +
           (over_heads ? " over heads" : "") + (after ? " after rope" : "") +
           (interleaved ? " interleaved" : "") + (temperature != 0 ? " temperature" : "");
  }
};

struct Appended {
  std::vector<float> q;
  std::vector<std::byte> cache;  ///< K, V, and the scales
};

struct AppendRun {
  AppendCase c;
  int pages = 6, page_size = 16;
  std::vector<int64_t> slots;
  std::vector<int32_t> positions;
  std::vector<float> qkv, cos, sin;

  int64_t width() const { return int64_t{c.heads + 2 * c.kv_heads} * c.dim; }
  size_t elements() const {
    return static_cast<size_t>(pages) * static_cast<size_t>(c.kv_heads * page_size * c.dim);
  }
  size_t scales() const { return static_cast<size_t>(pages) * static_cast<size_t>(c.kv_heads * page_size); }

  explicit AppendRun(const AppendCase& a) : c(a) {
    for (int t = 0; t < c.tokens; ++t) {
      slots.push_back(t == 3 ? -1 : (t * 5 + 2) % (pages * page_size));
      positions.push_back(t * 977);
    }
    qkv.resize(static_cast<size_t>(c.tokens * width()));
    for (size_t i = 0; i < qkv.size(); ++i)
      qkv[i] = rounded_to(
          c.dtype, (i / static_cast<size_t>(width()) == 5 && i % 131 == 0) ? kNan : 2 * gaussian(11, i));
    for (int i = 0; i < c.tokens * c.rope / 2; ++i) {
      const double angle = 0.37 * (i / (c.rope / 2)) * std::pow(10.0, -(i % (c.rope / 2)) / 32.0);
      cos.push_back(static_cast<float>(std::cos(angle))), sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  KvView view(std::byte* memory, KvCacheDType type) const {
    KvView v = paged_view(c.layout, type, c.kv_heads, page_size, c.dim, c.dim);
    const size_t bytes = elements() * size_of(type);
    v.k = memory, v.v = memory + bytes, v.num_pages = pages;
    if (type == KvCacheDType::fp8_e4m3) v.k_scale = 0.031f, v.v_scale = 0.5f;
    if (has_token_scales(type))
      v.k_scales = reinterpret_cast<float*>(memory + 2 * bytes), v.v_scales = v.k_scales + scales();
    return v;
  }
  size_t bytes(KvCacheDType type) const {
    return 2 * elements() * size_of(type) + 2 * scales() * sizeof(float);
  }

  /// Rows [first, first + count), with a cache of `type`.
  Appended run(KvCacheDType type, int first, int count) const {
    Device<std::byte> memory(bytes(type));
    Matrix in = Matrix::make(c.dtype, count, width(), 8, [&](int64_t i, int64_t j) {
      return qkv[static_cast<size_t>((first + i) * width() + j)];
    });
    const int64_t q_weights = c.over_heads ? int64_t{c.heads} * c.dim : c.dim,
                  k_weights = c.over_heads ? int64_t{c.kv_heads} * c.dim : c.dim;
    const Matrix wq = Matrix::random(DType::f32, 1, q_weights, 0, 21),
                 wk = Matrix::random(DType::f32, 1, k_weights, 0, 22);
    const auto part = [&](const auto& v, int each) {
      using T = typename std::decay_t<decltype(v)>::value_type;
      return Device<T>(std::vector<T>(v.begin() + first * each, v.begin() + (first + count) * each));
    };
    const auto device_slots = part(slots, 1);
    const auto device_positions = part(positions, 1);
    const auto device_cos = part(cos, c.rope / 2), device_sin = part(sin, c.rope / 2);
    NormRopeAppendParams p;
    AppendParams& a = p.append;
    a.tokens = count, a.num_heads = c.heads, a.num_kv_heads = c.kv_heads, a.head_dim = a.v_head_dim = c.dim,
    a.dtype = c.dtype;
    const auto offset = [&](int64_t n) { return in.memory.data + static_cast<size_t>(n) * size_of(c.dtype); };
    a.q = a.q_out = in.data();
    a.k = offset(int64_t{c.heads} * c.dim), a.v = offset(int64_t{c.heads + c.kv_heads} * c.dim);
    a.q_row_stride = a.k_row_stride = a.v_row_stride = a.q_out_row_stride = in.stride;
    if (c.norm) {
      a.q_norm = {static_cast<const float*>(wq.data()), 1e-6f};
      a.k_norm = {static_cast<const float*>(wk.data()), 1e-6f};
    }
    a.rope.dim = c.rope, a.rope.interleaved = c.interleaved, a.rope.cos = device_cos.data,
    a.rope.sin = device_sin.data;
    a.kv = view(memory.data, type), a.slots = device_slots.data, a.num_slots = int64_t{pages} * page_size;
    p.norm_over_heads = c.over_heads, p.norm_after_rope = c.after;
    p.temperature_scale = c.temperature, p.temperature_floor = 8192, p.positions = device_positions.data;
    LAUNCH(launch_norm_rope_append(p, stream()));
    const auto all = in.values(c.name());
    Appended out;
    for (int64_t i = 0; i < count; ++i)
      out.q.insert(out.q.end(), all.begin() + i * width(),
                   all.begin() + i * width() + int64_t{c.heads} * c.dim);
    out.cache = memory.host();
    return out;
  }

  /// q of all tokens, or k [tokens, kv_heads, dim], in fp64.
  std::vector<double> reference(bool is_k) const {
    const int heads = is_k ? c.kv_heads : c.heads;
    std::vector<double> out;
    for (int t = 0; t < c.tokens; ++t) {
      const auto begin = qkv.begin() + t * width() + (is_k ? int64_t{c.heads} * c.dim : 0);
      std::vector<double> row(begin, begin + int64_t{heads} * c.dim);
      const auto norm = [&] {
        const int64_t n = c.over_heads ? static_cast<int64_t>(row.size()) : c.dim;
        for (int64_t first = 0; c.norm && first < static_cast<int64_t>(row.size()); first += n) {
          double squares = 0;
          for (int64_t i = 0; i < n; ++i)
            squares += row[static_cast<size_t>(first + i)] * row[static_cast<size_t>(first + i)];
          for (int64_t i = 0; i < n; ++i)
            row[static_cast<size_t>(first + i)] *= gaussian(is_k ? 22 : 21, static_cast<uint64_t>(i)) /
                                                   std::sqrt(squares / static_cast<double>(n) + 1e-6);
        }
      };
      if (!c.after) norm();
      const int half = c.rope / 2;
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < half; ++i) {
          double& a = row[static_cast<size_t>(h * c.dim + (c.interleaved ? 2 * i : i))];
          double& b = row[static_cast<size_t>(h * c.dim + (c.interleaved ? 2 * i + 1 : i + half))];
          const double cs = cos[static_cast<size_t>(t * half + i)],
                       sn = sin[static_cast<size_t>(t * half + i)], x = a, y = b;
          a = x * cs - y * sn, b = y * cs + x * sn;
        }
      if (c.after) norm();
      if (!is_k && c.temperature != 0)
        for (double& x : row)
          x *= 1 + c.temperature * std::log1p(std::floor((positions[static_cast<size_t>(t)] + 1) / 8192.0));
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

/// Four bytes from `at`, rounded down to a multiple of 4, in hexadecimal.
inline std::string bytes_of(const std::vector<std::byte>& data, size_t at) {
  uint32_t word = 0;
  if (const size_t from = at / 4 * 4; from + 4 <= data.size()) std::memcpy(&word, data.data() + from, 4);
  char text[16];
  std::snprintf(text, sizeof text, "%08x", word);
  return text;
}

inline void check_append(const AppendCase& c) {
  const AppendRun run(c);
  const Appended all = run.run(c.cache, 0, c.tokens);
  expect(close(all.q, run.reference(false), c.dtype, c.dim, 4e-6), c.name() + ": q");
  // K in fp32 as the device computes it, from a cache in fp32; the CPU then writes it in the cache's dtype.
  AppendRun dense = run;
  dense.c.layout = KvLayout::nhd;
  const auto exact = dense.run(KvCacheDType::float32, 0, c.tokens).cache;
  std::vector<float> k(static_cast<size_t>(c.tokens * c.kv_heads * c.dim)), v(k.size());
  const auto row = static_cast<size_t>(c.kv_heads * c.dim);
  for (size_t t = 0; t < static_cast<size_t>(c.tokens); ++t) {
    for (size_t i = 0; i < row; ++i)
      v[t * row + i] =
          run.qkv[t * static_cast<size_t>(run.width()) + static_cast<size_t>(c.heads * c.dim) + row + i];
    if (run.slots[t] >= 0)
      std::memcpy(k.data() + t * row, exact.data() + static_cast<size_t>(run.slots[t]) * row * 4, row * 4);
  }
  auto want_k = run.reference(true);
  std::fill_n(want_k.begin() + static_cast<int64_t>(3 * row), row, 0.0);  // not stored
  expect(close(k, want_k, DType::f32, c.dim, 4e-6), c.name() + ": k");
  std::vector<std::byte> cache(run.bytes(c.cache), std::byte{0xff});
  ThreadPool pool(1);
  write_kv(run.view(cache.data(), c.cache), c.kv_heads, c.dim, c.dim, run.slots, k.data(),
           static_cast<int64_t>(row), v.data(), static_cast<int64_t>(row), pool);
  const auto at = static_cast<size_t>(std::ranges::mismatch(cache, all.cache).in1 - cache.begin());
  expect(cache == all.cache, c.name() + ": the cache differs from the CPU's at byte " + std::to_string(at) +
                                 " of " + std::to_string(cache.size()) + ", " + bytes_of(all.cache, at) +
                                 " instead of " + bytes_of(cache, at));
  // A row alone.
  const int row_alone = std::min(7, c.tokens - 1);
  const Appended alone = run.run(c.cache, row_alone, 1);
  expect(std::memcmp(alone.q.data(), all.q.data() + static_cast<size_t>(row_alone * c.heads * c.dim),
                     alone.q.size() * 4) == 0,
         c.name() + ": q differs alone");
  const std::string changed = c.name() + ": the cache differs alone";
  bool same = true;
  for (size_t i = 0; i < cache.size(); ++i)
    same = same && (alone.cache[i] == std::byte{0xff} || alone.cache[i] == all.cache[i]);
  expect(same, changed);
}

inline void check_appends() {
  for (const DType dtype : kTypes)
    for (const KvCacheDType cache :
         {KvCacheDType::float32, KvCacheDType::float16, KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3,
          KvCacheDType::fp8_e5m2, KvCacheDType::int8_per_token_head})
      for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed, KvLayout::shuffle}) {
        AppendCase c;
        c.dtype = dtype, c.cache = cache, c.layout = layout;
        check_append(c);
        c.over_heads = true;
        check_append(c);
        c.after = true;
        check_append(c);
        c.over_heads = false, c.temperature = 0.1;
        check_append(c);
        c.after = false, c.interleaved = true, c.rope = 64;
        check_append(c);
        c.norm = false, c.dim = 80, c.rope = 80;
        check_append(c);
      }
  for (const auto& [dim, rope] :
       {std::pair{256, 256}, {256, 64}, {192, 128}, {96, 96}, {64, 32}, {128, 4}, {66, 20}, {512, 512}})
    for (const bool interleaved : {false, true}) {
      AppendCase c;
      c.dim = dim, c.rope = rope, c.interleaved = interleaved, c.temperature = interleaved ? 0.1 : 0;
      check_append(c);
    }
  AppendCase wide;
  wide.tokens = 9, wide.heads = 40, wide.kv_heads = 8, wide.over_heads = true;
  check_append(wide);
}

}  // namespace fovea::cuda
