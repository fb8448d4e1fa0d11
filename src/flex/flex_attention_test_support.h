#pragma once
// A ragged, paged problem with the definition of flex_attention() in fp64.
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "fovea/flex_attention.h"

namespace fovea::flex {

using MaskFunction = std::function<bool(int b, int h, int q, int k)>;
using ScoreFunction = std::function<double(double s, int b, int h, int q, int k)>;

struct FlexProblem {
  AttentionSpec spec;
  std::vector<int32_t> q_offsets = {0}, kv_lens, pages;
  int64_t table_stride = 0;
  std::vector<float> q, k, v;           // as the kernel reads them: rounded to the dtype
  std::vector<uint16_t> q16, k16, v16;  // the same in 16 bits
  std::vector<float> o, lse;
  std::vector<uint16_t> o16;
  BatchMeta meta;
  FlexBlocks blocks;

  FlexProblem(std::vector<std::pair<int, int>> lengths, int heads, int kv_heads, int d, int dv, int page = 16,
              DType dtype = DType::f32, uint64_t seed = 1) {
    spec.num_heads = heads;
    spec.num_kv_heads = kv_heads;
    spec.head_dim = d;
    spec.v_head_dim = dv;
    spec.scale = 1.0f / std::sqrt(static_cast<float>(d));
    spec.dtype = dtype;
    spec.page_size = page;
    spec.mask.causal = false;
    int64_t count = 0;
    for (const auto& [n_q, n_k] : lengths) {
      q_offsets.push_back(q_offsets.back() + n_q);
      kv_lens.push_back(n_k);
      table_stride = std::max<int64_t>(table_stride, (n_k + page - 1) / page);
      count += (n_k + page - 1) / page;
    }
    std::mt19937_64 random(seed);
    std::vector<int32_t> free(static_cast<size_t>(count) + 3);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    pages.assign(lengths.size() * static_cast<size_t>(table_stride), -1);
    size_t next = 0;
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int i = 0; i < (kv_lens[b] + page - 1) / page; ++i)
        pages[b * static_cast<size_t>(table_stride) + static_cast<size_t>(i)] = free[next++];
    draw(q, q16, size_t(q_offsets.back()) * heads * d, random);
    draw(k, k16, free.size() * page * kv_heads * d, random);
    draw(v, v16, free.size() * page * kv_heads * dv, random);
    // Slots that no sequence uses are NaN.
    std::vector<bool> used(free.size() * page);
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int j = 0; j < kv_lens[b]; ++j)
        used[slot(static_cast<int>(b), j)] = true;
    for (size_t at = 0; at < used.size(); ++at) {
      if (used[at]) continue;
      for (int i = 0; i < kv_heads * d; ++i)
        k[at * kv_heads * d + i] = std::nanf(""), k16[at * kv_heads * d + i] = 0x7fff;
      for (int i = 0; i < kv_heads * dv; ++i)
        v[at * kv_heads * dv + i] = std::nanf(""), v16[at * kv_heads * dv + i] = 0x7fff;
    }
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = pages;
    meta.page_table_stride = table_stride;
  }

  size_t slot(int b, int j) const {
    const int page = spec.page_size;
    return static_cast<size_t>(pages[b * table_stride + j / page]) * page + j % page;
  }

  AttentionArgs args() {
    const bool wide = spec.dtype == DType::f32;
    AttentionArgs a;
    a.q = wide ? static_cast<const void*>(q.data()) : q16.data();
    a.q_row_stride = spec.num_heads * spec.head_dim;
    a.out = wide ? static_cast<void*>(o.data()) : o16.data();
    a.out_row_stride = spec.num_heads * spec.v_head_dim;
    a.lse = lse.data();
    a.kv.k = wide ? static_cast<const void*>(k.data()) : k16.data();
    a.kv.v = wide ? static_cast<const void*>(v.data()) : v16.data();
    a.kv.dtype = resolve(KvCacheDType::auto_, spec.dtype);
    a.kv.page_size = spec.page_size;
    a.kv.k_slot_stride = spec.num_kv_heads * spec.head_dim;
    a.kv.v_slot_stride = spec.num_kv_heads * spec.v_head_dim;
    a.kv.k_page_stride = a.kv.k_slot_stride * spec.page_size;
    a.kv.v_page_stride = a.kv.v_slot_stride * spec.page_size;
    a.kv.k_head_stride = spec.head_dim;
    a.kv.v_head_stride = spec.v_head_dim;
    return a;
  }

  Status run(const FlexProgram& program, std::span<const FlexBuffer> buffers, ThreadPool& pool) {
    Stream stream(pool);
    o.assign(size_t(q_offsets.back()) * spec.num_heads * spec.v_head_dim, std::nanf(""));
    o16.assign(o.size(), 0x7fff);
    lse.assign(size_t(q_offsets.back()) * spec.num_heads, std::nanf(""));
    const Status status = flex_attention(program, buffers, spec, meta, args(), stream, &blocks);
    if (spec.dtype != DType::f32)
      for (size_t i = 0; i < o.size(); ++i)
        o[i] = spec.dtype == DType::f16 ? fp16_to_float(o16[i]) : bf16_to_float(o16[i]);
    return status;
  }

  /// Compares O and LSE with the definition; returns the largest difference over its tolerance (1 = just
  /// right).
  double error(const MaskFunction& mask, const ScoreFunction& score) const {
    double worst = 0;
    const auto look = [&](double got, double want, double tolerance) {
      if (std::isinf(want) || std::isinf(got)) {
        if (got != want) worst = std::numeric_limits<double>::infinity();
      } else if (const double e = std::abs(got - want) / tolerance; !(e <= worst)) {
        worst = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
      }
    };
    const double unit = spec.dtype == DType::f32 ? 2e-6 : spec.dtype == DType::f16 ? 1e-3 : 8e-3;
    const int group = spec.num_heads / spec.num_kv_heads;
    for (int b = 0; b < static_cast<int>(kv_lens.size()); ++b)
      for (int i = q_offsets[b]; i < q_offsets[b + 1]; ++i)
        for (int h = 0; h < spec.num_heads; ++h) {
          std::vector<std::pair<double, int>> seen;
          double most = -std::numeric_limits<double>::infinity();
          for (int j = 0; j < kv_lens[b]; ++j) {
            if (mask && !mask(b, h, i - q_offsets[b], j)) continue;
            double s = 0;
            const size_t kv = slot(b, j) * spec.num_kv_heads + h / group;
            for (int d = 0; d < spec.head_dim; ++d)
              s +=
                  double{q[(size_t(i) * spec.num_heads + h) * spec.head_dim + d]} * k[kv * spec.head_dim + d];
            s *= double{spec.scale};
            if (score) s = score(s, b, h, i - q_offsets[b], j);
            if (s == -std::numeric_limits<double>::infinity()) continue;
            seen.emplace_back(s, j);
            most = std::max(most, s);
          }
          double sum = 0;
          std::vector<double> out(size_t(spec.v_head_dim));
          for (const auto& [s, j] : seen) {
            const double p = std::exp(s - most);
            sum += p;
            for (int d = 0; d < spec.v_head_dim; ++d)
              out[d] += p * v[(slot(b, j) * spec.num_kv_heads + h / group) * spec.v_head_dim + d];
          }
          const size_t row = size_t(i) * spec.num_heads + h;
          for (int d = 0; d < spec.v_head_dim; ++d)
            look(o[row * spec.v_head_dim + d], seen.empty() ? 0 : out[d] / sum,
                 unit * (1 + std::abs(most) / 8));
          look(lse[row], most + std::log(sum), 4e-6 * (1 + std::abs(most)));
        }
    return worst;
  }

 private:
  void draw(std::vector<float>& x, std::vector<uint16_t>& x16, size_t n, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    x.resize(n);
    x16.resize(n);
    for (size_t i = 0; i < n; ++i) {
      x[i] = normal(random);
      if (spec.dtype == DType::f32) continue;
      x16[i] = spec.dtype == DType::f16 ? float_to_fp16(x[i]) : float_to_bf16(x[i]);
      x[i] = spec.dtype == DType::f16 ? fp16_to_float(x16[i]) : bf16_to_float(x16[i]);
    }
  }
};

inline FlexBuffer integers(std::string_view name, const std::vector<int32_t>& x, int32_t rows = 0) {
  const auto n = static_cast<int32_t>(x.size());
  return {name, FlexElement::integer, x.data(), rows > 0 ? 2 : 1, std::max(rows, 1), n / std::max(rows, 1)};
}
inline FlexBuffer reals(std::string_view name, const std::vector<float>& x, int32_t rows = 0) {
  const auto n = static_cast<int32_t>(x.size());
  return {name, FlexElement::real, x.data(), rows > 0 ? 2 : 1, std::max(rows, 1), n / std::max(rows, 1)};
}
inline FlexBuffer booleans(std::string_view name, const std::vector<uint8_t>& x, int32_t rows = 0) {
  const auto n = static_cast<int32_t>(x.size());
  return {name, FlexElement::boolean, x.data(), rows > 0 ? 2 : 1, std::max(rows, 1), n / std::max(rows, 1)};
}

}  // namespace fovea::flex
