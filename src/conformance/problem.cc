#include "conformance/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <sstream>

#include "base/float16.h"
#include "base/float8.h"
#include "fovea/attention_spec.h"
#include "kernels/cache/ds_mla.h"

namespace fovea::conformance {
namespace {

/// Rounds `values` (rows of `width`, one for each head of a token) to values representable in a cache of
/// `dtype` with these scales; `token_scales` gets one scale per row where the dtype has them.
void round_to_cache(KvCacheDType dtype, std::span<const float> head_scales, int width,
                    std::vector<float>& values, std::vector<float>& token_scales) {
  if (has_token_scales(dtype)) {
    for (auto row = values.begin(); row != values.end(); row += width) {
      float most = 0;
      for (int d = 0; d < width; ++d)
        most = std::max(most, std::abs(row[d]));
      token_scales.push_back(std::max(most / 127, 0x1p-126f));
      for (int d = 0; d < width; ++d)
        row[d] = std::nearbyint(row[d] / token_scales.back()) * token_scales.back();
    }
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    float& x = values[i];
    const float scale = head_scales[i / static_cast<size_t>(width) % head_scales.size()];
    switch (dtype) {
      case KvCacheDType::float16: x = round_to(DType::f16, x); break;
      case KvCacheDType::bfloat16: x = round_to(DType::bf16, x); break;
      case KvCacheDType::fp8_e4m3: x = e4m3_to_float(float_to_e4m3(x / scale)) * scale; break;
      case KvCacheDType::fp8_e5m2: x = e5m2_to_float(float_to_e5m2(x / scale)) * scale; break;
      default: break;
    }
  }
}

}  // namespace

KvCacheDType kv_dtype_of(const AttentionSpec& spec) {
  return resolve(spec.kv_dtype, spec.dtype);
}

float k_scale_of(const AttentionSpec& spec) {
  return is_fp8(kv_dtype_of(spec)) ? 0.37f : 1.0f;
}

float v_scale_of(const AttentionSpec& spec) {
  if (spec.use_mla) return k_scale_of(spec);
  return is_fp8(kv_dtype_of(spec)) ? 0.021f : 1.0f;
}

bool has_head_scales(const AttentionSpec& spec) {
  return spec.needs.has(Feature::per_head_scales) && is_fp8(kv_dtype_of(spec));
}

float k_head_scale(const AttentionSpec& spec, int kv_head) {
  return has_head_scales(spec) ? std::array{0.6f, 2.5f, 0.9f}[static_cast<size_t>(kv_head) % 3] : 1.0f;
}

float v_head_scale(const AttentionSpec& spec, int kv_head) {
  return has_head_scales(spec) ? std::array{3.0f, 0.7f, 1.3f}[static_cast<size_t>(kv_head) % 3] : 1.0f;
}

float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::f32: return value;
    case DType::f16: return fp16_to_float(float_to_fp16(value));
    case DType::bf16: return bf16_to_float(float_to_bf16(value));
  }
  return value;
}

Sequence make_sequence(const AttentionSpec& spec, int n_q, int n_k, uint64_t seed, Values values) {
  Random random(seed);
  const KvCacheDType kv = kv_dtype_of(spec);
  Sequence s;
  s.n_q = n_q;
  s.n_k = n_k;
  s.q.resize(int64_t{n_q} * spec.num_heads * spec.head_dim);
  s.k.resize(int64_t{n_k} * spec.num_kv_heads * spec.head_dim);
  s.v.resize(int64_t{n_k} * spec.num_kv_heads * spec.v_head_dim);
  for (float& x : s.q)
    x = round_to(spec.dtype, values.qk_gain * random.normal());
  // Equal scores of MLA are those of Q = 0, as its V is a part of K.
  const float k_gain = spec.use_mla && values.qk_gain == 0 ? 1.0f : values.qk_gain;
  for (float& x : s.k)
    x = k_gain * random.normal();
  for (float& x : s.v)
    x = random.normal();
  // Where V is stored: for MLA, at the beginning of each record.
  std::vector<float>& stored = spec.use_mla ? s.k : s.v;
  const int width = spec.use_mla ? spec.head_dim : spec.v_head_dim;
  if (values.coded_v)
    for (size_t i = 0; i < s.v.size(); ++i) {
      const size_t head = i / static_cast<size_t>(spec.v_head_dim);  // row * Hkv + head
      const size_t d = i % static_cast<size_t>(spec.v_head_dim);
      stored[head * static_cast<size_t>(width) + d] =
          static_cast<float>((head / spec.num_kv_heads + head % spec.num_kv_heads + d) % 7) - 3.0f;
    }
  if (has_token_scales(kv))  // tokens of different magnitudes, some all zero
    for (int j = 0; j < n_k; ++j)
      for (int64_t e = 0, row = int64_t{spec.num_kv_heads} * width; e < row; ++e)
        stored[j * row + e] *= std::array{1.0f, 0.25f, 4.0f, 0.0f, 1.0f}[static_cast<size_t>(j) % 5];
  std::vector<float> k_scales, v_scales;
  for (int h = 0; h < spec.num_kv_heads; ++h) {
    k_scales.push_back(k_scale_of(spec) * k_head_scale(spec, h));
    v_scales.push_back(v_scale_of(spec) * v_head_scale(spec, h));
  }
  if (kv == KvCacheDType::fp8_ds_mla) {
    const int rope = spec.head_dim - spec.v_head_dim;
    std::vector<std::byte> record(static_cast<size_t>(ds_mla_bytes(spec.v_head_dim, rope)));
    for (float* row = s.k.data(); row != s.k.data() + s.k.size(); row += spec.head_dim) {
      store_ds_mla(row, spec.v_head_dim, rope, record.data());
      load_ds_mla(record.data(), spec.v_head_dim, rope, row);
    }
  }
  round_to_cache(kv, k_scales, spec.head_dim, s.k, s.k_scales);
  if (spec.use_mla) {
    for (int64_t j = 0; j < n_k; ++j)
      std::copy_n(s.k.begin() + j * spec.head_dim, spec.v_head_dim, s.v.begin() + j * spec.v_head_dim);
    s.v_scales = s.k_scales;
    return s;
  }
  round_to_cache(kv, v_scales, spec.v_head_dim, s.v, s.v_scales);
  return s;
}

std::vector<float> canonical_slopes(int heads) {
  int power = 1;  // the largest within `heads`
  while (2 * power <= heads)
    power *= 2;
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) {
    const int steps = h < power ? 2 * (h + 1) : 2 * (h - power) + 1;
    slopes.push_back(std::exp2(-4.0f * static_cast<float>(steps) / static_cast<float>(power)));
  }
  return slopes;
}

std::vector<float> drawn_slopes(int heads, Random& random) {
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h)
    slopes.push_back(static_cast<float>(random.uniform()) *
                     std::array{0.01f, 0.3f, 2.0f, 0.0f}[random.below(4)]);
  return slopes;
}

Problem alone(const Problem& problem, int s) {
  Problem one;
  one.spec = problem.spec;
  one.seqs = {problem.seqs[s]};
  one.sinks = problem.sinks;
  one.slopes = problem.slopes;
  one.tree_bias = problem.tree_bias;
  one.tree_size = problem.tree_size;
  one.shared_prefix = problem.shared_prefix;
  one.phase = problem.phase;
  return one;
}

Problem chunk_of(const Problem& problem, int s, int first, int last) {
  Problem part = alone(problem, s);
  Sequence& seq = part.seqs[0];
  const AttentionSpec& spec = problem.spec;
  const int64_t q_row = int64_t{spec.num_heads} * spec.head_dim;
  seq.q.assign(seq.q.begin() + first * q_row, seq.q.begin() + last * q_row);
  seq.n_k -= seq.n_q - last;
  seq.n_q = last - first;
  seq.k.resize(int64_t{seq.n_k} * spec.num_kv_heads * spec.head_dim);
  seq.v.resize(int64_t{seq.n_k} * spec.num_kv_heads * spec.v_head_dim);
  if (!seq.k_scales.empty()) {
    seq.k_scales.resize(int64_t{seq.n_k} * spec.num_kv_heads);
    seq.v_scales.resize(int64_t{seq.n_k} * spec.num_kv_heads);
  }
  return part;
}

std::string Problem::describe() const {
  std::ostringstream out;
  out << to_string(phase) << " " << to_string(spec.type) << " heads " << spec.num_heads << "/"
      << spec.num_kv_heads << " D " << spec.head_dim << "/" << spec.v_head_dim << " " << to_string(spec.dtype)
      << " kv " << to_string(spec.kv_dtype) << " page " << spec.page_size << " scale " << spec.scale;
  const MaskSpec& m = spec.mask;
  if (m.causal) out << " causal";
  if (m.window_left >= 0 || m.window_right >= 0) out << " window " << m.window_left << "," << m.window_right;
  if (m.chunk) out << " chunk " << m.chunk;
  if (m.sink_tokens) out << " sink_tokens " << m.sink_tokens;
  if (m.spans) out << " spans";
  if (m.packed) out << " packed";
  if (spec.use_sparse) out << " sparse " << spec.sparse_topk;
  if (m.tree) out << " tree " << tree_size;
  if (spec.softcap > 0) out << " softcap " << spec.softcap;
  if (spec.has_sink) out << (spec.lse_includes_sink ? " sink(in lse)" : " sink");
  if (spec.has_alibi) out << " alibi";
  out << " lengths";
  for (const Sequence& s : seqs)
    out << " " << s.n_q << ":" << s.n_k;
  return out.str();
}

}  // namespace fovea::conformance
