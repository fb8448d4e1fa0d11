#include "backends/cpu_attn/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "attention/kv_view.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "kernels/cpu/kv_append_kernels.h"
#include "kernels/cpu/machine.h"

namespace fovea {
namespace {

void store(void* data, DType dtype, size_t i, float value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = value; break;
    case DType::f16: static_cast<uint16_t*>(data)[i] = float_to_fp16(value); break;
    case DType::bf16: static_cast<uint16_t*>(data)[i] = float_to_bf16(value); break;
  }
}

/// Approximately normal values, repeated with a period of 4099 (a prime) to save random-number generation.
std::vector<float> normal_values() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(4099);
  for (float& v : values)
    v = normal(random);
  return values;
}

void fill(void* data, DType dtype, size_t count) {
  const std::vector<float> values = normal_values();
  for (size_t i = 0, at = 0; i < count; ++i, at = at + 1 == values.size() ? 0 : at + 1)
    store(data, dtype, i, values[at]);
}

/// K and V pages, and a table that visits them in random order. The position of a value in its page does not
/// matter here.
struct Cache {
  AlignedArray<std::byte> k, v;
  AlignedArray<float> scales;  // of K, then of V, for each token and head; or empty
  std::vector<int32_t> table;

  Cache(const AttentionBenchCase& c, int64_t pages_each) {
    const int64_t tokens = c.batch * pages_each * c.page_size * c.num_kv_heads;
    k = stored(c.kv_dtype, tokens * c.head_dim);
    if (!c.mla) v = stored(c.kv_dtype, tokens * c.v_head_dim);
    if (has_token_scales(c.kv_dtype)) {
      scales = AlignedArray<float>(static_cast<size_t>(2 * tokens));
      std::fill_n(scales.data(), scales.size(), kInt8Scale);
    }
    table.resize(static_cast<size_t>(c.batch * pages_each));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(2));
  }

  KvView view(const AttentionBenchCase& c) const {
    KvView view =
        c.mla ? latent_view(c.kv_dtype, c.page_size, c.head_dim)
              : paged_view(c.kv_layout, c.kv_dtype, c.num_kv_heads, c.page_size, c.head_dim, c.v_head_dim);
    view.k = k.data();
    view.v = c.mla ? k.data() : v.data();
    if (scales.size() > 0) {
      view.k_scales = scales.data();
      view.v_scales = c.mla ? view.k_scales : scales.data() + scales.size() / 2;
    }
    return view;
  }

 private:
  static constexpr float kInt8Scale = 4.0f / 127;  // normal values within 4

  static AlignedArray<std::byte> stored(KvCacheDType dtype, int64_t count) {
    const auto item = static_cast<int64_t>(size_of(dtype));
    const std::vector<float> values = normal_values();
    const float scale = has_token_scales(dtype) ? kInt8Scale : 1.0f;
    AlignedArray<std::byte> out(static_cast<size_t>(count * item));
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(values.size()))
      kv_append::current_kernels().store(values.data(),
                                         std::min(count - i, static_cast<int64_t>(values.size())), scale,
                                         dtype, out.data() + i * item);
    return out;
  }
};

AttentionSpec spec_of(const AttentionBenchCase& c) {
  AttentionSpec spec;
  spec.num_heads = c.num_heads;
  spec.num_kv_heads = c.num_kv_heads;
  spec.head_dim = c.head_dim;
  spec.v_head_dim = c.v_head_dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  spec.dtype = c.dtype;
  spec.page_size = c.page_size;
  spec.kv_dtype = c.kv_dtype;
  spec.use_mla = c.mla;
  set_layout(spec, c.kv_layout);
  return spec;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

AttentionBenchResult bench_cpu_attention(const AttentionBenchCase& c, ThreadPool& pool, double min_seconds) {
  return bench_attention(c.mla ? *make_cpu_mla() : *make_cpu_attn(), c, pool, min_seconds);
}

AttentionBenchResult bench_attention(AttentionBackend& backend, const AttentionBenchCase& c, ThreadPool& pool,
                                     double min_seconds) {
  using Clock = std::chrono::steady_clock;
  const int64_t pages_each = (c.kv_len + c.page_size - 1) / c.page_size;
  AttentionBenchResult result;
  const double scale_bytes = has_token_scales(c.kv_dtype) ? static_cast<double>(sizeof(float)) : 0.0;
  const double row_bytes =
      (c.head_dim + (c.mla ? 0 : c.v_head_dim)) * static_cast<double>(size_of(c.kv_dtype)) +
      (c.mla ? 1 : 2) * scale_bytes;
  result.kv_bytes = static_cast<double>(c.batch) * c.kv_len * c.num_kv_heads * row_bytes;
  const double seen = static_cast<double>(c.q_len) * (c.kv_len - 0.5 * (c.q_len - 1));  // keys of all rows
  result.flops = 2.0 * c.batch * c.num_heads * (c.head_dim + c.v_head_dim) * seen;

  const int copies = 1 + static_cast<int>(static_cast<double>(c.rotate_bytes) / result.kv_bytes);
  std::vector<Cache> caches;
  for (int i = 0; i < copies; ++i)
    caches.emplace_back(c, pages_each);

  const AttentionSpec spec = spec_of(c);
  const size_t rows = static_cast<size_t>(c.batch) * static_cast<size_t>(c.q_len);
  AlignedArray<std::byte> q(rows * static_cast<size_t>(c.num_heads * c.head_dim) * size_of(c.dtype));
  AlignedArray<std::byte> out(rows * static_cast<size_t>(c.num_heads * c.v_head_dim) * size_of(c.dtype));
  fill(q.data(), c.dtype, rows * static_cast<size_t>(c.num_heads * c.head_dim));

  std::vector<int32_t> q_offsets, kv_lens(static_cast<size_t>(c.batch), c.kv_len);
  for (int b = 0; b <= c.batch; ++b)
    q_offsets.push_back(b * c.q_len);
  AttentionLimits limits{c.batch, c.batch * c.q_len, int64_t{c.batch} * c.kv_len, c.kv_len};
  const auto bytes = backend.workspace_bytes(spec, limits);
  FOVEA_CHECK(bytes.ok());
  AlignedArray<std::byte> workspace(*bytes);
  Stream stream(pool);
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.page_table = caches[0].table;  // the same order in each copy
  meta.page_table_stride = pages_each;
  const auto plan = backend.plan(spec, limits, meta, workspace, stream);
  FOVEA_CHECK(plan.ok());

  std::vector<double> times, reads;
  double total = 0;
  for (int i = 0; times.size() < 2 || total < min_seconds; ++i) {
    AttentionArgs args;
    args.q = q.data();
    args.q_row_stride = int64_t{c.num_heads} * c.head_dim;
    args.out = out.data();
    args.out_row_stride = int64_t{c.num_heads} * c.v_head_dim;
    const Cache& cache = caches[static_cast<size_t>(i % copies)];
    args.kv = cache.view(c);
    const auto start = Clock::now();
    if (c.q_len == 1)
      FOVEA_CHECK(backend.forward_decode(**plan, args, stream).ok());
    else
      FOVEA_CHECK(backend.forward_extend(**plan, args, stream).ok());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 0) continue;  // page faults, cold threads
    times.push_back(seconds);
    total += seconds;
    reads.push_back(plain_read_seconds(cache.k.data(), cache.k.size(), pool) +
                    (c.mla ? 0.0 : plain_read_seconds(cache.v.data(), cache.v.size(), pool)));
  }
  result.seconds = median(times);
  result.read_seconds = median(reads);
  result.runs = static_cast<int>(times.size());
  return result;
}

}  // namespace fovea
