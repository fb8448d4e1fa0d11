#include "device_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace fovea::cuda {
namespace {

uint8_t encode8(Element e, float x) {
  if (e == Element::e4m3) return float_to_e4m3(x);
  if (e == Element::e5m2) return float_to_e5m2(x);
  return static_cast<uint8_t>(static_cast<int8_t>(std::lrint(std::clamp(x, -127.0f, 127.0f))));
}
float decode8(Element e, uint8_t x) {
  if (e == Element::e4m3) return e4m3_to_float(x);
  if (e == Element::e5m2) return e5m2_to_float(x);
  return static_cast<float>(static_cast<int8_t>(x));
}

/// Writes a contiguous row, and its dequantised values to `meaning`.
void put_row(const Problem& p, uint8_t* to, const std::vector<float>& row, float layer_scale,
             float* token_scale, float* meaning) {
  float scale = layer_scale;
  if (p.scales_per_token) {
    float top = 1e-6f;
    for (float x : row)
      top = std::max(top, std::fabs(x));
    *token_scale = top /
                   (p.kv == Element::int8   ? 127.0f
                    : p.kv == Element::e4m3 ? 448.0f
                                            : 57344.0f) /
                   layer_scale;
    scale *= *token_scale;
  }
  for (size_t d = 0; d < row.size(); ++d) {
    if (p.kv == Element::f32) {
      reinterpret_cast<float*>(to)[d] = row[d];
      meaning[d] = row[d] * scale;
    } else if (element_bytes(p.kv) == 2) {
      const uint16_t bits = to16(p.kv, row[d] / scale);
      reinterpret_cast<uint16_t*>(to)[d] = bits;
      meaning[d] = from16(p.kv, bits) * scale;
    } else {
      to[d] = encode8(p.kv, row[d] / scale);
      meaning[d] = decode8(p.kv, to[d]) * scale;
    }
  }
}

/// Which keys of a sequence kernels may read: those that some row sees, packed masks ignored; with spans,
/// which the schedule of device_runner.cuh does not take into account, all.
std::vector<bool> keys_read(const Problem& p, const Sequence& s) {
  std::vector<bool> read(s.n_k, p.mask.spans);
  SequenceMask mask;
  mask.n_q = s.n_q, mask.n_k = s.n_k;
  for (int i = 0; i < s.n_q; ++i)
    for (int j = 0; j < s.n_k; ++j)
      if (!read[j]) read[j] = base_visible(p.mask, position(mask, i), j);
  return read;
}

}  // namespace

HostCase make_case(const Problem& p, uint64_t shuffle) {
  HostCase c;
  c.problem = p;
  const int batch = static_cast<int>(p.seqs.size());
  const int page = p.ragged ? 1 : p.page_size;
  int max_pages = 0, used = 0;
  c.q_first = {0};
  for (const Sequence& s : p.seqs) {
    c.q_first.push_back(c.q_first.back() + s.n_q);
    const int pages = (s.n_k + page - 1) / page;
    max_pages = std::max(max_pages, pages);
    used += pages;
  }
  c.num_pages = p.ragged ? used + 1 : used + used / 3 + 3;
  c.table_stride = max_pages + 2;
  c.table.assign(static_cast<size_t>(batch) * c.table_stride, 0x7ffffff0);
  std::vector<int32_t> order(c.num_pages);
  std::iota(order.begin(), order.end(), 0);
  if (!p.ragged)
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>((gaussian(shuffle, i) + 8) * 12345) % i]);

  const int bytes = element_bytes(p.kv);
  const int64_t slots = static_cast<int64_t>(c.num_pages) * page;
  const HostCase::Strides k_at = c.strides(false), v_at = c.strides(true);
  const int64_t skew = int64_t{p.skew} * bytes;
  c.v_pool = c.num_pages * k_at.page * bytes + skew;
  c.v_pool += (bytes - c.v_pool % bytes) % bytes;
  const int64_t value_bytes = p.latent || p.joined ? 0 : c.num_pages * v_at.page * bytes;
  c.pool.assign(static_cast<size_t>(c.v_pool + value_bytes + skew), 0xff);  // NaN
  if (p.joined) c.v_pool = p.head_dim * bytes;
  if (p.kv == Element::int8) std::fill(c.pool.begin(), c.pool.end(), uint8_t{0x7f});
  if (p.scales_per_token) {
    c.k_scales.assign(static_cast<size_t>(slots) * p.kv_heads, std::numeric_limits<float>::quiet_NaN());
    c.v_scales = c.k_scales;
  }
  int next = 0;
  std::vector<uint8_t> dense;
  for (int b = 0; b < batch; ++b) {
    const Sequence& s = p.seqs[b];
    c.ragged_first.push_back(next);
    const int first_page = next;
    next += (s.n_k + page - 1) / page;
    const std::vector<bool> read = keys_read(p, s);
    std::vector<float> k(static_cast<size_t>(s.n_k) * p.kv_heads * p.head_dim);
    std::vector<float> v(static_cast<size_t>(s.n_k) * p.kv_heads * p.v_head_dim);
    for (int j = 0; j < s.n_k; ++j) {
      const int64_t slot_page = order[first_page + j / page];
      if (read[j])
        c.table[static_cast<size_t>(b) * c.table_stride + j / page] = static_cast<int32_t>(slot_page);
      float unread = 0;
      for (int h = 0; h < p.kv_heads; ++h) {
        const uint64_t stream = static_cast<uint64_t>(s.id) * 1000 + h;
        std::vector<float> values(p.head_dim);
        for (int d = 0; d < p.head_dim; ++d)
          values[d] = gaussian(2 * stream, static_cast<uint64_t>(j) * 1024 + d);
        const int64_t scale_at = (slot_page * page + j % page) * p.kv_heads + h;
        dense.resize(static_cast<size_t>(std::max(p.head_dim, p.v_head_dim)) * bytes);
        put_row(p, dense.data(), values, p.k_scale,
                p.scales_per_token && read[j] ? &c.k_scales[scale_at] : &unread,
                k.data() + (static_cast<size_t>(j) * p.kv_heads + h) * p.head_dim);
        const int64_t k_first = slot_page * k_at.page + j % page * k_at.slot + h * k_at.head;
        const int64_t x = 16 / bytes;
        for (int d = 0; read[j] && d < p.head_dim; ++d)
          std::memcpy(
              c.pool.data() + skew + (k_first + (p.x_packed ? d / x * k_at.chunk + d % x : d)) * bytes,
              dense.data() + d * bytes, bytes);
        if (p.latent) {
          std::copy_n(k.data() + static_cast<size_t>(j) * p.head_dim, p.v_head_dim,
                      v.data() + static_cast<size_t>(j) * p.v_head_dim);
          continue;
        }
        values.resize(p.v_head_dim);
        for (int d = 0; d < p.v_head_dim; ++d)
          values[d] = p.large * (gaussian(2 * stream + 1, static_cast<uint64_t>(j) * 1024 + d) +
                                 static_cast<float>(j % 7) * 0.25f);
        put_row(p, dense.data(), values, p.v_scale,
                p.scales_per_token && read[j] ? &c.v_scales[scale_at] : &unread,
                v.data() + (static_cast<size_t>(j) * p.kv_heads + h) * p.v_head_dim);
        const int64_t slot = j % page, run = v_at.slots == 0 ? 0 : slot / x;
        const int64_t v_first =
            slot_page * v_at.page + run * v_at.slots + (slot - run * x) * v_at.slot + h * v_at.head;
        for (int d = 0; read[j] && d < p.v_head_dim; ++d)
          std::memcpy(c.pool.data() + c.v_pool + (v_first + (p.x_packed ? d * v_at.dim : d)) * bytes,
                      dense.data() + d * bytes, bytes);
      }
    }
    c.k.push_back(std::move(k));
    c.v.push_back(std::move(v));
    // Queries are generated from their position, so that another chunk of the same sequence has the same
    // queries.
    for (int i = 0; i < s.n_q; ++i)
      for (int h = 0; h < p.heads(); ++h)
        for (int d = 0; d < p.head_dim; ++d) {
          const uint64_t position = static_cast<uint64_t>(i + s.n_k - s.n_q + (1 << 20));
          const float value = p.sharp * gaussian(7777 + s.id, (position * 512 + h) * 1024 + d);
          if (p.q == Element::f32) {
            c.q_float.push_back(value);
            continue;
          }
          const uint16_t bits = to16(p.q, value);
          c.q.push_back(bits);
          c.q_float.push_back(from16(p.q, bits));
        }
  }
  for (int h = 0; h < p.heads(); ++h) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    c.sinks.push_back(h % 5 == 4 ? -kInfinity : h % 7 == 1 ? kInfinity : gaussian(5, h) * 2);
    c.slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(p.heads())));
  }
  for (int i = 0; i < p.tree_size; ++i)
    for (int j = 0; j < p.tree_size; ++j)
      c.tree_bias.push_back(j == 0 || j == i || (j < i && (i + j) % 3 == 0)
                                ? (j % 4 == 1 ? 0.5f : 0.0f)
                                : -std::numeric_limits<float>::infinity());
  c.span_offsets = {0};
  c.packed_offsets = {0};
  for (const Sequence& s : p.seqs) {
    if (p.mask.spans) {
      for (int first = 3; first < s.n_k; first += 97)
        c.spans.push_back({first, first + 40});
    }
    c.span_offsets.push_back(static_cast<int32_t>(c.spans.size()));
    if (p.mask.packed) {
      const size_t begin = c.packed.size();
      c.packed.resize(begin + (static_cast<size_t>(s.n_q) * s.n_k + 7) / 8);
      for (size_t i = begin; i < c.packed.size(); ++i)
        c.packed[i] = static_cast<uint8_t>((gaussian(99, i) + 8) * 4096);
    }
    c.packed_offsets.push_back(static_cast<int64_t>(c.packed.size()));
  }
  return c;
}

/// The naive result in fp32 of query row i and head h of sequence b, with sequential sums. `seen`: the exact
/// scores, -inf for keys that are not visible.
static void naive_float(const HostCase& c, int b, int i, int h, const std::vector<double>& seen, double sink,
                        double* out) {
  const Problem& p = c.problem;
  const size_t row = (static_cast<size_t>(c.q_first[b] + i)) * p.heads() + h;
  const SequenceMask mask = c.sequence(b);
  std::vector<float> score(seen.size(), -std::numeric_limits<float>::infinity());
  float top = static_cast<float>(sink), sum = 0;
  for (size_t j = 0; j < seen.size(); ++j) {
    if (std::isinf(seen[j])) continue;
    const float* k = c.k[b].data() + (j * p.kv_heads + h / p.group) * p.head_dim;
    float x = 0;
    for (int d = 0; d < p.head_dim; ++d)
      x += c.q_float[row * p.head_dim + d] * k[d];
    x *= p.real_scale();
    if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
    if (p.alibi)
      x -= c.slopes[h] * std::fabs(static_cast<float>(position(mask, i) - static_cast<int64_t>(j)));
    score[j] = x + tree_bias(mask, i, static_cast<int64_t>(j));
    top = std::max(top, score[j]);
  }
  std::vector<float> o(p.v_head_dim, 0.0f);
  for (size_t j = 0; j < seen.size(); ++j) {
    const float w = std::exp(score[j] - top);
    if (w == 0) continue;
    sum += w;
    const float* v = c.v[b].data() + (j * p.kv_heads + h / p.group) * p.v_head_dim;
    for (int d = 0; d < p.v_head_dim; ++d)
      o[d] += w * v[d];
  }
  if (sink > -std::numeric_limits<double>::infinity())
    sum += std::isinf(sink) ? static_cast<float>(sink) : std::exp(static_cast<float>(sink) - top);
  for (int d = 0; d < p.v_head_dim; ++d)
    out[d] = o[d] / sum;
}

Expected reference(const HostCase& c) {
  const Problem& p = c.problem;
  const int heads = p.heads();
  Expected e;
  e.out.assign(static_cast<size_t>(c.tokens()) * heads * p.v_head_dim, 0);
  e.naive = e.out;
  e.lse.assign(static_cast<size_t>(c.tokens()) * heads, -std::numeric_limits<double>::infinity());
  for (int b = 0; b < static_cast<int>(p.seqs.size()); ++b) {
    const Sequence& s = p.seqs[b];
    const SequenceMask mask = c.sequence(b);
    for (int i = 0; i < s.n_q; ++i)
      for (int h = 0; h < heads; ++h) {
        const size_t row = (static_cast<size_t>(c.q_first[b] + i)) * heads + h;
        const float* q = c.q_float.data() + row * p.head_dim;
        std::vector<double> score(s.n_k, -std::numeric_limits<double>::infinity());
        double top = -std::numeric_limits<double>::infinity();
        for (int j = 0; j < s.n_k; ++j) {
          if (!visible(p.mask, mask, i, j)) continue;
          const float* k = c.k[b].data() + (static_cast<size_t>(j) * p.kv_heads + h / p.group) * p.head_dim;
          double x = 0;
          for (int d = 0; d < p.head_dim; ++d)
            x += static_cast<double>(q[d]) * k[d];
          x *= p.real_scale();
          if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
          if (p.alibi) x -= c.slopes[h] * std::fabs(static_cast<double>(position(mask, i) - j));
          x += tree_bias(mask, i, j);
          score[j] = x;
          top = std::max(top, x);
        }
        const double sink = p.sinks ? c.sinks[h] : -std::numeric_limits<double>::infinity();
        if (p.sinks && p.lse_includes_sink) e.lse[row] = sink;
        if (top > -std::numeric_limits<double>::infinity()) {
          double sum = 0;
          for (int j = 0; j < s.n_k; ++j)
            sum += std::exp(score[j] - top);
          const double with_sink = sum + std::exp(sink - top);  // inf: the sink takes all of the softmax
          double* out = e.out.data() + row * p.v_head_dim;
          double* naive = e.naive.data() + row * p.v_head_dim;
          for (int j = 0; j < s.n_k; ++j) {
            const double w = std::exp(score[j] - top);
            if (w == 0) continue;
            const double rounded = round_to(p.q, static_cast<float>(w));
            const float* v =
                c.v[b].data() + (static_cast<size_t>(j) * p.kv_heads + h / p.group) * p.v_head_dim;
            for (int d = 0; d < p.v_head_dim; ++d) {
              out[d] += w / with_sink * v[d];
              naive[d] += rounded / with_sink * v[d];
            }
          }
          for (int d = 0; d < p.v_head_dim; ++d)
            naive[d] = round_to(p.q, static_cast<float>(naive[d]));
          if (p.q == Element::f32) naive_float(c, b, i, h, score, sink, naive);
          if (!p.sinks || !p.lse_includes_sink)
            e.lse[row] = top + std::log(sum);
          else  // factor out the larger of the two
            e.lse[row] =
                sink > top ? sink + std::log1p(sum * std::exp(top - sink)) : top + std::log(with_sink);
        }
      }
  }
  return e;
}

}  // namespace fovea::cuda
