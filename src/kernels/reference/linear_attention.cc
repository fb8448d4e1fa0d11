#include "kernels/reference/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/float16.h"

namespace fovea {
namespace {

double element(const HeadRows& rows, DType dtype, int64_t t, int64_t h, int64_t d) {
  const int64_t at = t * rows.token_stride + h * rows.head_stride + d;
  switch (dtype) {
    case DType::f32: return double{static_cast<const float*>(rows.data)[at]};
    case DType::f16: return double{fp16_to_float(static_cast<const uint16_t*>(rows.data)[at])};
    case DType::bf16: return double{bf16_to_float(static_cast<const uint16_t*>(rows.data)[at])};
  }
  return 0.0;
}

std::vector<double> row_of(const HeadRows& rows, DType dtype, int64_t t, int64_t h, int64_t size) {
  std::vector<double> row(static_cast<size_t>(size));
  for (int64_t d = 0; d < size; ++d)
    row[static_cast<size_t>(d)] = element(rows, dtype, t, h, d);
  return row;
}

void normalize(std::vector<double>& row) {
  double squares = 0;
  for (const double x : row)
    squares += x * x;
  for (double& x : row)
    x /= std::sqrt(squares + 1e-6);
}

/// The recurrence of both rules; lightning attention has e = v.
LinearReference recurrence(const GatedDeltaRule& c, const float* log_decay) {
  const int64_t dk = c.dk, dv = c.dv, block = dk * dv;
  LinearReference r;
  r.out.assign(static_cast<size_t>(int64_t{c.sequences.tokens} * c.heads * dv), 0.0);
  r.states.assign(static_cast<size_t>(int64_t{c.sequences.count} * c.heads * block), 0.0);
  const double scale = c.scale != 0.0f ? double{c.scale} : 1.0 / std::sqrt(static_cast<double>(dk));
  for (int64_t b = 0; b < c.sequences.count; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      double* s = r.states.data() + (b * c.heads + h) * block;
      const int64_t slot = c.states.in_slots == nullptr ? b : c.states.in_slots[b];
      if (c.states.in != nullptr && slot >= 0)
        for (int64_t i = 0; i < block; ++i)
          s[i] = double{c.states.in[(slot * c.heads + h) * block + i]};
      const int64_t kh = h / (c.heads / c.k_heads);
      for (int64_t t = c.sequences.offsets[b]; t < c.sequences.offsets[b + 1]; ++t) {
        std::vector<double> q = row_of(c.q, c.dtype, t, kh, dk), k = row_of(c.k, c.dtype, t, kh, dk);
        std::vector<double> e = row_of(c.v, c.dtype, t, h, dv);
        if (c.normalize_qk) {
          normalize(q);
          normalize(k);
        }
        double g = 0;
        if (log_decay != nullptr)
          g = double{log_decay[h]};
        else if (c.g != nullptr)
          g = double{c.g[t * c.g_stride + h]};
        const double decay = std::exp(g);
        for (int64_t i = 0; i < block; ++i)
          s[i] *= decay;
        if (log_decay == nullptr) {
          const double beta = c.beta == nullptr ? 1.0 : double{c.beta[t * c.beta_stride + h]};
          for (int64_t j = 0; j < dv; ++j) {
            double known = 0;
            for (int64_t i = 0; i < dk; ++i)
              known += s[i * dv + j] * k[static_cast<size_t>(i)];
            e[static_cast<size_t>(j)] = beta * (e[static_cast<size_t>(j)] - known);
          }
        }
        double* out = r.out.data() + (t * c.heads + h) * dv;
        for (int64_t i = 0; i < dk; ++i)
          for (int64_t j = 0; j < dv; ++j) {
            s[i * dv + j] += k[static_cast<size_t>(i)] * e[static_cast<size_t>(j)];
            out[j] += scale * s[i * dv + j] * q[static_cast<size_t>(i)];
          }
      }
    }
  return r;
}

double bias_of(const HstuAttention& c, int64_t first, int64_t keys, int64_t i, int64_t j) {
  double bias = 0;
  if (c.position_bias != nullptr) bias += double{c.position_bias[c.max_seq_len - 1 + j - i]};
  if (c.time_bias != nullptr) {
    const int64_t x = std::llabs(c.times[first + std::min(i + 1, keys - 1)] - c.times[first + j]);
    bias += double{c.time_bias[std::count_if(c.time_bounds, c.time_bounds + c.time_buckets,
                                             [x](int64_t bound) { return bound <= x; })]};
  }
  return bias;
}

}  // namespace

LinearReference reference_lightning(const LightningAttention& call) {
  GatedDeltaRule c;
  c.dtype = call.dtype;
  c.heads = c.k_heads = call.heads;
  c.dk = call.dk;
  c.dv = call.dv;
  c.q = call.q;
  c.k = call.k;
  c.v = call.v;
  c.sequences = call.sequences;
  c.states = call.states;
  c.scale = call.scale;
  return recurrence(c, call.log_decay);
}

LinearReference reference_gated_delta(const GatedDeltaRule& call) {
  return recurrence(call, nullptr);
}

bool hstu_visible(const HstuAttention& c, int64_t keys, int64_t targets, int64_t i, int64_t j) {
  int64_t m = c.contextual > 0 ? keys - c.contextual + 1 : keys;
  if (c.num_targets != nullptr) m -= targets;
  m = std::max<int64_t>(m, 0);
  const auto id = [&](int64_t x) {
    if (c.contextual > 0) x = std::max<int64_t>(x - c.contextual + 1, 0);
    return c.num_targets != nullptr ? std::min(x, m) : x;
  };
  bool ok = i == j || id(i) > id(j);
  if (c.max_attn_len > 0)
    ok = ok && (id(i) - id(j) <= c.max_attn_len || (c.min_full > 0 && id(i) >= m - c.min_full));
  if (c.contextual > 0) ok = ok || (id(i) == 0 && id(j) < m);
  return ok;
}

std::vector<double> reference_hstu(const HstuAttention& c) {
  const int64_t rows = c.q_offsets == nullptr ? c.sequences.tokens : c.q_tokens;
  std::vector<double> out(static_cast<size_t>(rows * c.heads * c.dv), 0.0);
  const double alpha = c.alpha != 0.0f ? double{c.alpha} : 1.0 / std::sqrt(static_cast<double>(c.dk));
  const int32_t* queries = c.q_offsets == nullptr ? c.sequences.offsets : c.q_offsets;
  for (int64_t b = 0; b < c.sequences.count; ++b) {
    const int64_t first = c.sequences.offsets[b], n = c.sequences.offsets[b + 1] - first;
    const int64_t targets = c.num_targets == nullptr ? 0 : c.num_targets[b];
    for (int64_t row = queries[b]; row < queries[b + 1]; ++row)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t j = 0, i = n - queries[b + 1] + row; j < n; ++j) {
          if (!hstu_visible(c, n, targets, i, j)) continue;
          double z = 0;
          for (int64_t d = 0; d < c.dk; ++d)
            z += element(c.q, c.dtype, row, h, d) * element(c.k, c.dtype, first + j, h, d);
          z = alpha * z + bias_of(c, first, n, i, j);
          const double weight = z / (1.0 + std::exp(-z)) / c.max_seq_len;
          for (int64_t d = 0; d < c.dv; ++d)
            out[static_cast<size_t>((row * c.heads + h) * c.dv + d)] +=
                weight * element(c.v, c.dtype, first + j, h, d);
        }
  }
  return out;
}

}  // namespace fovea
