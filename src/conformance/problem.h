#pragma once
// Attention problems as plain fp32 arrays, whatever the memory they will lie in.
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/random.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// One sequence; values are already rounded to the dtypes of the spec.
struct Sequence {
  int n_q = 0, n_k = 0;
  std::vector<float> q;  ///< [n_q, Hq, D]
  std::vector<float> k;  ///< [n_k, Hkv, D]
  std::vector<float> v;  ///< [n_k, Hkv, Dv]
  /// [n_k, Hkv], of a cache with a scale for each token and head: k and v are integers times them.
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
  /// The first keys and values of all sequences, as far as they have so many, are the same (a prompt's).
  int shared_prefix = 0;
  Phase phase = Phase::prefill;
  std::string describe() const;
};

/// The dtype that the cache of `spec` stores.
KvCacheDType kv_dtype_of(const AttentionSpec& spec);

/// The scales of an fp8 cache, no powers of two; 1 for the others.
float k_scale_of(const AttentionSpec& spec);
float v_scale_of(const AttentionSpec& spec);

/// Whether an fp8 cache has a scale for each head beside those, and which: none is 1 then, and all are else.
bool has_head_scales(const AttentionSpec& spec);
float k_head_scale(const AttentionSpec& spec, int kv_head);
float v_head_scale(const AttentionSpec& spec, int kv_head);

/// Rounds to `dtype` and back.
float round_to(DType dtype, float value);

/// ALiBi's slopes of `heads` query heads: those of its paper, and ones that no count of heads gives, a head
/// without any among them.
std::vector<float> canonical_slopes(int heads);
std::vector<float> drawn_slopes(int heads, Random& random);

/// How values are drawn.
struct Values {
  float qk_gain = 1.0f;  ///< scores spread like its square; 0 = all scores equal
  bool coded_v = false;  ///< V tells its position: (j + d + head) mod 7 - 3
};

/// A sequence with values of `seed`, whatever else the problem holds.
Sequence make_sequence(const AttentionSpec& spec, int n_q, int n_k, uint64_t seed, Values values = {});

/// A problem within what `capability` claims, drawn from `seed`. `page_size` of its spec is set.
Problem random_problem(uint64_t seed, const Capability& capability);

/// Rows [first, last) of sequence `s` alone, with the keys that a step computing them would have.
/// For masks that look only backwards.
Problem chunk_of(const Problem& problem, int s, int first, int last);
/// Sequence `s` alone.
Problem alone(const Problem& problem, int s);

}  // namespace fovea::conformance
