// The textbook in fp32: the error expected of a correct kernel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/run.h"
#include "conformance/textbook_mask.h"

namespace fovea::conformance {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The effect of rounding scores on one row and head. With O = sum p_j v_j and weights p_j = e^s_j / sum e^s,
/// an error e_j of score j moves O to first order by sum p_j e_j (v_j - O), and the LSE by sum p_j e_j. A
/// score is a sum of D products and a few other terms; each rounding is at most u = 2^-24 of a partial sum,
/// which is seldom as large as the sum of all magnitudes, and roundings seldom have the same sign. Four
/// roundings of that sum, e_j = 4 u (|scale| sum_d |q_d k_d| + |s_j|), are therefore a bound with margin for
/// every order of summation. Where a single weight dominates, its v_j - O is about 0, and the tolerance
/// vanishes.
struct ScoreNoise {
  float* o;    ///< [Dv]
  float* lse;  ///< [1]
  float* own;  ///< [Dv] bound of the textbook's own rounding errors of O
};

/// One unit in the last place of 1, which bounds the rounding error of numbers below 2 (half a unit below 1).
/// fp32 is covered by the error of sums.
float unit(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0.0f;
    case DType::f16: return 0x1p-10f;
    case DType::bf16: return 0x1p-7f;
  }
  return 0.0f;
}

/// Likewise for numbers near 0.
float least(DType dtype) {
  return dtype == DType::f16 ? 0x1p-24f : 0.0f;
}

/// One row and head by the textbook; scores[j] = -inf where hidden.
void naive_row(const Problem& problem, const Sequence& s, int i, int h, float* o, float* lse,
               ScoreNoise noise) {
  const AttentionSpec& spec = problem.spec;
  const int g = h / (spec.num_heads / spec.num_kv_heads);
  const float* q = s.q.data() + (int64_t{i} * spec.num_heads + h) * spec.head_dim;
  std::vector<float> scores(static_cast<size_t>(s.n_k), -kInf), sizes(static_cast<size_t>(s.n_k));
  float max = -kInf;
  for (int j = 0; j < s.n_k; ++j) {
    if (!textbook_sees(spec.mask, problem, s, i, j)) continue;
    const float* k = s.k.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.head_dim;
    float sum = 0, size = 0;
    for (int d = 0; d < spec.head_dim; ++d) {
      sum += q[d] * k[d];
      size += std::abs(q[d] * k[d]);
    }
    sum *= spec.scale;
    if (spec.softcap > 0) sum = spec.softcap * std::tanh(sum / spec.softcap);
    if (spec.has_alibi) sum -= problem.slopes[h] * static_cast<float>(std::abs(s.n_k - s.n_q + i - j));
    scores[j] = sum + textbook_bias(spec.mask, problem, s, i, j);
    sizes[j] = size * std::abs(spec.scale) + std::abs(scores[j]);
    max = std::max(max, scores[j]);
  }
  float total = 0;
  std::fill_n(o, spec.v_head_dim, 0.0f);
  for (int j = 0; j < s.n_k && max > -kInf; ++j) {
    if (scores[j] == -kInf) continue;
    const float p = std::exp(scores[j] - max);
    total += p;
    const float rounded = round_to(spec.dtype, p);
    const float* v = s.v.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.v_head_dim;
    for (int d = 0; d < spec.v_head_dim; ++d)
      o[d] += rounded * v[d];
  }
  *lse = max > -kInf ? max + std::log(total) : -kInf;
  const float denominator = total + (spec.has_sink ? std::exp(problem.sinks[h] - max) : 0.0f);
  for (int d = 0; d < spec.v_head_dim; ++d)
    o[d] = max > -kInf ? round_to(spec.dtype, o[d] / denominator) : 0.0f;
  // P and O are rounded to spec.dtype, and sequential sums of n_k terms to fp32: an error of at most u =
  // 2^-24 of each partial sum, seldom all of one sign, plus a few roundings of exp and the division.
  const float sums = (64 + 0.25f * static_cast<float>(s.n_k)) * 0x1p-24f;
  for (int j = 0; j < s.n_k && max > -kInf; ++j) {
    if (scores[j] == -kInf) continue;
    const float p = std::exp(scores[j] - max);
    const float error = 4 * 0x1p-24f * sizes[j];
    const float moved = p / denominator * error;
    const float own = (p * (unit(spec.dtype) + sums) + least(spec.dtype)) / denominator;
    const float* v = s.v.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.v_head_dim;
    *noise.lse += p / total * error;
    for (int d = 0; d < spec.v_head_dim; ++d) {
      noise.o[d] += moved * std::abs(v[d] - o[d]);
      noise.own[d] += own * std::abs(v[d]);
    }
  }
  for (int d = 0; d < spec.v_head_dim; ++d)
    noise.own[d] += std::abs(o[d]) * unit(spec.dtype);
  if (spec.has_sink && spec.lse_includes_sink) {
    const double a = *lse, b = problem.sinks[h], high = std::max(a, b);
    if (std::isfinite(high))
      *lse = static_cast<float>(high + std::log(std::exp(a - high) + std::exp(b - high)));
    else
      *lse = static_cast<float>(high);
  }
}

}  // namespace

Output naive(const Problem& problem) {
  const AttentionSpec& spec = problem.spec;
  int64_t rows = 0;
  for (const Sequence& s : problem.seqs)
    rows += s.n_q;
  Output out;
  out.o.resize(static_cast<size_t>(rows * spec.num_heads * spec.v_head_dim));
  out.lse.resize(static_cast<size_t>(rows * spec.num_heads));
  out.o_noise.resize(out.o.size());
  out.o_rounding.resize(out.o.size());
  out.lse_noise.resize(out.lse.size());
  int64_t at = 0;
  for (const Sequence& s : problem.seqs)
    for (int i = 0; i < s.n_q; ++i)
      for (int h = 0; h < spec.num_heads; ++h, ++at) {
        const int64_t o = at * spec.v_head_dim;
        naive_row(problem, s, i, h, out.o.data() + o, &out.lse[at],
                  {out.o_noise.data() + o, &out.lse_noise[at], out.o_rounding.data() + o});
      }
  return out;
}

}  // namespace fovea::conformance
