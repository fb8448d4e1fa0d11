#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>

#include "conformance/run.h"

namespace fovea::conformance {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct ErrorStats {
  double max = 0, mean = 0, max_ref = 0;
  int64_t at = -1;       // where the largest is
  bool special = false;  // an infinity or NaN differs
};

ErrorStats errors(const std::vector<float>& got, const std::vector<float>& want, int64_t first,
                  int64_t last) {
  ErrorStats e;
  for (int64_t i = first; i < last; ++i) {
    if (!std::isfinite(want[i]) || !std::isfinite(got[i])) {
      const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
      if (!same) return {.at = i, .special = true};
      continue;
    }
    const double d = std::abs(static_cast<double>(got[i]) - want[i]);
    e.mean += d / static_cast<double>(last - first);
    e.max_ref = std::max(e.max_ref, std::abs(static_cast<double>(want[i])));
    if (d > e.max || e.at < 0) {
      e.max = d;
      e.at = i;
    }
  }
  return e;
}

/// One unit in the last place of 1.
double ulp(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
  }
  return 0;
}

/// The smallest positive number, which is one unit in the last place of subnormal numbers.
double smallest(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-149;
    case DType::f16: return 0x1p-24;
    case DType::bf16: return 0x1p-133;
  }
  return 0;
}

/// Errors that are accepted even where the naive computation happens to be exact.
double floor_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 2e-6;
    case DType::f16: return 2e-4;
    case DType::bf16: return 1e-3;
  }
  return 0;
}

/// Whether O must equal the reference up to the rounding to spec.dtype. For a quantised cache the reference
/// first rounds code x scale to fp32, which other backends need not do.
bool must_be_exact(const AttentionSpec& spec) {
  const KvCacheDType kv = kv_dtype_of(spec);
  return spec.fp64_accumulate && !is_fp8(kv) && !has_token_scales(kv);
}

}  // namespace

std::string find_disagreement(const Problem& problem, const Output& reference, const Output& naive) {
  if (!reference.error.empty()) return "reference: " + reference.error;
  const AttentionSpec& spec = problem.spec;
  std::ostringstream text;
  const auto differ = [&](const char* what, float textbook, float oracle, size_t seq, int64_t row_head) {
    text << "the textbook's " << what << " " << textbook << " is not the reference's " << oracle
         << " at sequence " << seq << " row " << row_head / spec.num_heads << " head "
         << row_head % spec.num_heads
         << ": one of the two has a wrong mask or score, independent of the backend; ";
    return text.str();
  };
  int64_t row = 0;
  for (size_t b = 0; b < problem.seqs.size(); ++b) {
    const int64_t heads = int64_t{problem.seqs[b].n_q} * spec.num_heads;
    // Both compute scores in at least fp32, for all dtypes. The textbook's sum of n_k weights has naive.cc's
    // relative error of sums, by which its logarithm is off.
    const double sums = (64 + 0.25 * problem.seqs[b].n_k) * 0x1p-24;
    for (int64_t i = row; i < row + heads; ++i) {
      const double got = naive.lse[i], want = reference.lse[i];
      if (got == want) continue;
      if (!(std::abs(got - want) <= 1e-4 + 1e-5 * std::abs(want) + sums + 8 * naive.lse_noise[i]))
        return differ("LSE", naive.lse[i], reference.lse[i], b, i - row);
    }
    for (int64_t i = row * spec.v_head_dim; i < (row + heads) * spec.v_head_dim; ++i) {
      const double off = std::abs(static_cast<double>(naive.o[i]) - reference.o[i]);
      if (!(off <= 1e-6 + smallest(spec.dtype) + naive.o_rounding[i] + 8 * naive.o_noise[i]))
        return differ("O", naive.o[i], reference.o[i], b, i / spec.v_head_dim - row);
    }
    row += heads;
  }
  return {};
}

std::string judge(const Problem& problem, const Output& got, const Output& reference, const Output& naive,
                  Errors* worst) {
  if (!got.error.empty()) return got.error;
  // The tolerances below derive from the textbook's errors: they are invalid where it computes something
  // else.
  if (const std::string differ = find_disagreement(problem, reference, naive); !differ.empty()) return differ;
  const AttentionSpec& spec = problem.spec;
  std::ostringstream text;
  int64_t row = 0;
  for (size_t b = 0; b < problem.seqs.size(); ++b) {
    const int64_t heads = int64_t{problem.seqs[b].n_q} * spec.num_heads;
    const int64_t first = row * spec.v_head_dim, last = (row + heads) * spec.v_head_dim;
    const ErrorStats e = errors(got.o, reference.o, first, last);
    const ErrorStats n = errors(naive.o, reference.o, first, last);
    const bool has_lse = !got.lse.empty();
    const ErrorStats l = has_lse ? errors(got.lse, reference.lse, row, row + heads) : ErrorStats{};
    if (worst != nullptr) {
      worst->o = std::max(worst->o, e.max);
      worst->lse = std::max(worst->lse, l.max);
    }
    const ErrorStats nl = errors(naive.lse, reference.lse, row, row + heads);
    const double eps = std::max(2 * ulp(spec.dtype) * e.max_ref, floor_of(spec.dtype));
    const auto noise = std::span(naive.o_noise).subspan(first, last - first);
    const double max_noise = noise.empty() ? 0 : *std::max_element(noise.begin(), noise.end());
    const double mean_noise =
        noise.empty() ? 0
                      : std::accumulate(noise.begin(), noise.end(), 0.0) / static_cast<double>(noise.size());
    const bool exact = must_be_exact(spec);
    const double rounding = ulp(spec.dtype) * e.max_ref + smallest(spec.dtype);
    const double max_allowed = exact ? rounding : (spec.softcap > 0 ? 3 : 2) * n.max + eps + max_noise;
    // Errors average out over many elements; the mean of a few may be as large as the maximum.
    constexpr int64_t kFewElements = 16;
    const double mean_allowed = exact                         ? rounding
                                : last - first < kFewElements ? max_allowed
                                                              : 1.5 * n.mean + eps / 4 + mean_noise;
    for (int64_t i = row; i < row + heads; ++i) {
      if (reference.lse[i] != -kInf || spec.lse_includes_sink) continue;
      for (int d = 0; d < spec.v_head_dim; ++d)
        if (got.o[i * spec.v_head_dim + d] != 0.0f) text << "row without keys isn't 0; ";
    }
    if (e.special || !(e.max <= max_allowed) || !(e.mean <= mean_allowed))
      text << "O of sequence " << b << ": max error " << e.max << " (allowed " << max_allowed << "), mean "
           << e.mean << " (allowed " << mean_allowed << "); at row "
           << (e.at - first) / spec.v_head_dim / spec.num_heads << " head "
           << (e.at - first) / spec.v_head_dim % spec.num_heads << " d " << (e.at - first) % spec.v_head_dim
           << " got " << got.o[e.at] << " want " << reference.o[e.at] << "; ";
    for (int64_t i = row; i < row + heads && has_lse && !l.special; ++i)
      if (const double want = reference.lse[i];
          std::isfinite(want) &&
          !(std::abs(got.lse[i] - want) <= 1e-5 + 2e-6 * std::abs(want) + 2 * nl.max + naive.lse_noise[i])) {
        text << "LSE of sequence " << b << " row " << (i - row) / spec.num_heads << " head "
             << (i - row) % spec.num_heads << " got " << got.lse[i] << " want " << want << "; ";
        break;
      }
    if (l.special)
      text << "LSE of sequence " << b << " row " << (l.at - row) / spec.num_heads << " got " << got.lse[l.at]
           << " want " << reference.lse[l.at] << "; ";
    row += heads;
  }
  return text.str();
}

}  // namespace fovea::conformance
