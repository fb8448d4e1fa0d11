#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>

#include "attention_case.h"
#include "backends/torch_native/torch_native.h"
#include "base/cpu_features.h"
#include "base/float16.h"
#include "device/stream.h"
#include "kernels/reference/visibility.h"

namespace fovea::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint8_t kPoison = 0xa5;  // as floats: about -3e-16, never a result of ours
constexpr int kGuardRows = 2;

float get(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

AlignedArray<std::byte> poisoned(size_t bytes) {
  AlignedArray<std::byte> a(bytes);
  std::memset(a.data(), kPoison, bytes);
  return a;
}

bool is_poison(const std::byte* first, size_t bytes) {
  return std::all_of(first, first + bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

bool Output::operator==(const Output& other) const {
  return error == other.error && same_bits(o, other.o) && same_bits(lse, other.lse);
}

Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool) {
  AttentionSpec spec = problem.spec;
  spec.kv_x_packed = layout.kv == KvLayout::x_packed;
  const Batch batch(problem, layout);
  Stream stream(pool);
  Output out;

  constexpr size_t kGuardBytes = 256;
  const Result<size_t> bytes = backend.workspace_bytes(spec, batch.limits());
  if (!bytes) return out.error = "workspace_bytes: " + bytes.error().message, out;
  AlignedArray<std::byte> workspace = poisoned(*bytes + kGuardBytes);

  const int64_t rows = batch.meta().num_tokens();
  const int64_t width = int64_t{spec.num_heads} * spec.v_head_dim;
  const size_t row_bytes = static_cast<size_t>(width + layout.row_padding) * size_of(spec.dtype);
  AlignedArray<std::byte> o = poisoned((rows + 2 * kGuardRows) * row_bytes);
  const size_t lse_row = static_cast<size_t>(spec.num_heads) * sizeof(float);
  AlignedArray<std::byte> lse = poisoned((rows + 2 * kGuardRows) * lse_row);

  AttentionArgs args = batch.args();
  args.out = o.data() + kGuardRows * row_bytes;
  args.out_row_stride = width + layout.row_padding;
  args.lse = reinterpret_cast<float*>(lse.data() + kGuardRows * lse_row);

  auto plan = backend.plan(spec, batch.limits(), batch.meta(), {workspace.data(), *bytes}, stream);
  if (!plan) return out.error = "plan: " + plan.error().message, out;
  if (problem.phase == Phase::decode)
    backend.forward_decode(**plan, args, stream);
  else
    backend.forward_extend(**plan, args, stream);

  if (!is_poison(workspace.data() + *bytes, kGuardBytes)) out.error = "wrote past the workspace";
  if (!is_poison(o.data(), kGuardRows * row_bytes) ||
      !is_poison(o.data() + (rows + kGuardRows) * row_bytes, kGuardRows * row_bytes))
    out.error = "wrote outside the output's rows";
  if (!is_poison(lse.data(), kGuardRows * lse_row) ||
      !is_poison(lse.data() + (rows + kGuardRows) * lse_row, kGuardRows * lse_row))
    out.error = "wrote outside the LSE's rows";
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* data = o.data() + (row + kGuardRows) * row_bytes;
    for (int64_t e = 0; e < width; ++e)
      out.o.push_back(get(data, spec.dtype, e));
    if (!is_poison(data + width * size_of(spec.dtype), layout.row_padding * size_of(spec.dtype)))
      out.error = "wrote between the output's rows";
  }
  out.lse.assign(args.lse, args.lse + rows * spec.num_heads);
  return out;
}

Output reference(const Problem& problem, ThreadPool& pool) {
  Problem exact = problem;
  exact.spec.dtype = DType::f32;
  exact.spec.kv_dtype = KvCacheDType::float32;
  exact.spec.fp64_accumulate = true;
  exact.spec.page_size = 16;
  Layout plain;
  plain.poison_invisible = false;
  return run(*make_torch_native(), exact, plain, pool);
}

namespace {

/// What rounding of scores does to one row and head. With O = sum p_j v_j and weights p_j = e^s_j / sum e^s,
/// an error e_j of score j moves O to first order by sum p_j e_j (v_j - O), and the LSE by sum p_j e_j. A
/// score is a sum of D products and a few terms of its own; each of its roundings is at most u = 2^-24 of a
/// partial sum, which is seldom as large as the sum of all magnitudes, and they seldom point the same way:
/// four roundings of that sum, e_j = 4 u (|scale| sum_d |q_d k_d| + |s_j|), bound them with room for every
/// order of summation. Where no two large weights meet, v_j - O is 0 for the one that counts, and nothing is
/// allowed.
struct ScoreNoise {
  float* o;    ///< [Dv]
  float* lse;  ///< [1]
};

/// One row and head by the textbook; scores[j] = -inf where hidden.
void naive_row(const Problem& problem, const Sequence& s, const SequenceMask& mask, int i, int h, float* o,
               float* lse, ScoreNoise noise) {
  const AttentionSpec& spec = problem.spec;
  const int g = h / (spec.num_heads / spec.num_kv_heads);
  const float* q = s.q.data() + (int64_t{i} * spec.num_heads + h) * spec.head_dim;
  std::vector<float> scores(static_cast<size_t>(s.n_k), -kInf), sizes(static_cast<size_t>(s.n_k));
  float max = -kInf;
  for (int j = 0; j < s.n_k; ++j) {
    if (!visible(spec.mask, mask, i, j)) continue;
    const float* k = s.k.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.head_dim;
    float sum = 0, size = 0;
    for (int d = 0; d < spec.head_dim; ++d) {
      sum += q[d] * k[d];
      size += std::abs(q[d] * k[d]);
    }
    sum *= spec.scale;
    if (spec.softcap > 0) sum = spec.softcap * std::tanh(sum / spec.softcap);
    if (spec.has_alibi) sum -= problem.slopes[h] * static_cast<float>(std::abs(position(mask, i) - j));
    scores[j] = sum + tree_bias(mask, i, j);
    sizes[j] = size * std::abs(spec.scale) + std::abs(scores[j]);
    max = std::max(max, scores[j]);
  }
  float total = 0;
  std::fill_n(o, spec.v_head_dim, 0.0f);
  for (int j = 0; j < s.n_k && max > -kInf; ++j) {
    if (scores[j] == -kInf) continue;
    const float p = std::exp(scores[j] - max);
    total += p;
    const float* v = s.v.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.v_head_dim;
    for (int d = 0; d < spec.v_head_dim; ++d)
      o[d] += round_to(spec.dtype, p) * v[d];
  }
  *lse = max > -kInf ? max + std::log(total) : -kInf;
  const float denominator = total + (spec.has_sink ? std::exp(problem.sinks[h] - max) : 0.0f);
  for (int d = 0; d < spec.v_head_dim; ++d)
    o[d] = max > -kInf ? round_to(spec.dtype, o[d] / denominator) : 0.0f;
  for (int j = 0; j < s.n_k && max > -kInf; ++j) {
    if (scores[j] == -kInf) continue;
    const float p = std::exp(scores[j] - max);
    const float error = 4 * 0x1p-24f * sizes[j];
    const float* v = s.v.data() + (int64_t{j} * spec.num_kv_heads + g) * spec.v_head_dim;
    *noise.lse += p / total * error;
    for (int d = 0; d < spec.v_head_dim; ++d)
      noise.o[d] += p / denominator * error * std::abs(v[d] - o[d]);
  }
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
  const Batch batch(problem, {.poison_invisible = false});
  Output out;
  out.o.resize(int64_t{batch.meta().num_tokens()} * spec.num_heads * spec.v_head_dim);
  out.lse.resize(int64_t{batch.meta().num_tokens()} * spec.num_heads);
  out.o_noise.resize(out.o.size());
  out.lse_noise.resize(out.lse.size());
  int64_t at = 0;
  for (int b = 0; b < batch.meta().num_seqs(); ++b) {
    const SequenceMask mask = sequence_mask(spec.mask, batch.meta(), b);
    for (int i = 0; i < problem.seqs[b].n_q; ++i)
      for (int h = 0; h < spec.num_heads; ++h, ++at)
        naive_row(problem, problem.seqs[b], mask, i, h, out.o.data() + at * spec.v_head_dim, &out.lse[at],
                  {out.o_noise.data() + at * spec.v_head_dim, &out.lse_noise[at]});
  }
  return out;
}

namespace {

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

/// One unit in the last place of a number of size 1.
double ulp(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
  }
  return 0;
}

/// Errors that are no defect even where the naive computation happens to be exact.
double floor_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 2e-6;
    case DType::f16: return 2e-4;
    case DType::bf16: return 1e-3;
  }
  return 0;
}

}  // namespace

std::string judge(const Problem& problem, const Output& got, const Output& reference, const Output& naive) {
  if (!got.error.empty()) return got.error;
  if (!reference.error.empty()) return "reference: " + reference.error;
  const AttentionSpec& spec = problem.spec;
  std::ostringstream text;
  int64_t row = 0;
  for (size_t b = 0; b < problem.seqs.size(); ++b) {
    const int64_t heads = int64_t{problem.seqs[b].n_q} * spec.num_heads;
    const int64_t first = row * spec.v_head_dim, last = (row + heads) * spec.v_head_dim;
    const ErrorStats e = errors(got.o, reference.o, first, last);
    const ErrorStats n = errors(naive.o, reference.o, first, last);
    const ErrorStats l = errors(got.lse, reference.lse, row, row + heads);
    const ErrorStats nl = errors(naive.lse, reference.lse, row, row + heads);
    // The allowances below come from the textbook's errors, so they mean nothing where it and the oracle do
    // not compute the same thing. Both have scores of at least fp32, whatever the dtypes.
    for (int64_t i = row; i < row + heads; ++i)
      if (nl.special || std::abs(naive.lse[i] - reference.lse[i]) >
                            1e-4 + 1e-5 * std::abs(reference.lse[i]) + 8 * naive.lse_noise[i]) {
        if (reference.lse[i] == naive.lse[i]) continue;
        return "the textbook's LSE " + std::to_string(naive.lse[i]) + " is not the reference's " +
               std::to_string(reference.lse[i]);
      }
    const double eps = std::max(2 * ulp(spec.dtype) * e.max_ref, floor_of(spec.dtype));
    const auto noise = std::span(naive.o_noise).subspan(first, last - first);
    const double max_noise = noise.empty() ? 0 : *std::max_element(noise.begin(), noise.end());
    const double mean_noise =
        noise.empty() ? 0
                      : std::accumulate(noise.begin(), noise.end(), 0.0) / static_cast<double>(noise.size());
    const double max_allowed = (spec.softcap > 0 ? 3 : 2) * n.max + eps + max_noise;
    const double mean_allowed = 1.5 * n.mean + eps / 4 + mean_noise;
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
    for (int64_t i = row; i < row + heads && !l.special; ++i)
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

std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout,
                    ThreadPool& pool) {
  const std::string failure =
      judge(problem, run(backend, problem, layout, pool), reference(problem, pool), naive(problem));
  if (failure.empty()) return {};
  return std::string(backend.info().name) + ": " + failure + "in " + problem.describe();
}

void each_isa(const BackendInfo& backend, const std::function<void()>& fn) {
  if (backend.name == "TORCH_NATIVE") return fn();  // plain loops
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (set_isa(isa)) fn();
}

std::vector<const BackendRegistry::Entry*> cpu_backends() {
  std::vector<const BackendRegistry::Entry*> out;
  for (const auto& entry : builtin_backends().entries())
    if (entry.create && entry.info->capability.device == DeviceKind::cpu) out.push_back(&entry);
  return out;
}

}  // namespace fovea::test
