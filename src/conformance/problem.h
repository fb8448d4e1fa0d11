#pragma once
// Attention problems as plain fp32 arrays, independent of the memory layout.
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/random.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"

namespace fovea::conformance {

/// One sequence; values are already rounded to the dtypes of the spec.
struct Sequence {
  int n_q = 0, n_k = 0;
  std::vector<float> q;  ///< [n_q, Hq, D]
  std::vector<float> k;  ///< [n_k, Hkv, D]
  std::vector<float> v;  ///< [n_k, Hkv, Dv]; MLA: a copy of the beginning of each k
  /// [n_k, Hkv], for a cache with a scale for each token and head: k and v are integers times these scales.
  std::vector<float> k_scales, v_scales;
  std::vector<Span> spans;
  std::vector<uint8_t> packed;  ///< bit i * n_k + j
};

struct Problem {
  AttentionSpec spec;
  std::vector<Sequence> seqs;
  std::vector<float> sinks, slopes;  ///< [Hq]
  std::vector<float> tree_bias;      ///< [tree_size, tree_size]
  int tree_size = 0;
  /// The first keys and values of all sequences, up to this number, are the same (a shared prompt).
  int shared_prefix = 0;
  Phase phase = Phase::prefill;
  std::string describe() const;
};

/// The dtype that the cache of `spec` stores.
KvCacheDType kv_dtype_of(const AttentionSpec& spec);

/// The scales of an fp8 cache, not powers of two; 1 for other caches.
float k_scale_of(const AttentionSpec& spec);
float v_scale_of(const AttentionSpec& spec);

/// Whether an fp8 cache also has a scale for each head, and its value: never 1 if it has, else always 1.
bool has_head_scales(const AttentionSpec& spec);
float k_head_scale(const AttentionSpec& spec, int kv_head);
float v_head_scale(const AttentionSpec& spec, int kv_head);

/// Rounds to `dtype` and back.
float round_to(DType dtype, float value);

/// ALiBi slopes of `heads` query heads: those of the paper, and some that no head count gives, including 0.
std::vector<float> canonical_slopes(int heads);
std::vector<float> drawn_slopes(int heads, Random& random);

/// How values are drawn.
struct Values {
  float qk_gain = 1.0f;  ///< the spread of scores grows with its square; 0 = all scores equal
  bool coded_v = false;  ///< V encodes its position: (j + d + head) mod 7 - 3
};

/// A sequence with values drawn from `seed` only.
Sequence make_sequence(const AttentionSpec& spec, int n_q, int n_k, uint64_t seed, Values values = {});

/// A random problem within what `capability` claims. `page_size` of its spec is set.
Problem random_problem(uint64_t seed, const Capability& capability);

/// Rows [first, last) of sequence `s` alone, with the keys that a step computing them would have.
/// For masks that show no later keys.
Problem chunk_of(const Problem& problem, int s, int first, int last);
/// Sequence `s` alone.
Problem alone(const Problem& problem, int s);

}  // namespace fovea::conformance
