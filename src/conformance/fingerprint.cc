// A hash that distinguishes cases.
#include <bit>
#include <span>

#include "conformance/case_space.h"
#include "fovea/result.h"

namespace fovea::conformance {
namespace {

/// FNV-1a over 64-bit words, each mixed first.
class Hash {
 public:
  template <class... T>
  void add(T... values) {
    (word(bits_of(values)), ...);
  }
  template <class T>
  void add_all(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values)
      add(value);
  }
  uint64_t value() const { return hash_; }

 private:
  template <class T>
  static uint64_t bits_of(T value) {
    if constexpr (std::is_same_v<T, float>)
      return std::bit_cast<uint32_t>(value);
    else
      return static_cast<uint64_t>(value);
  }
  void word(uint64_t word) {
    word *= 0x9e3779b97f4a7c15u;
    hash_ = (hash_ ^ word ^ word >> 29) * 0x100000001b3u;
  }
  uint64_t hash_ = 0xcbf29ce484222325u;
};

void add(Hash& hash, const AttentionSpec& s) {
  hash.add(s.num_heads, s.num_kv_heads, s.head_dim, s.v_head_dim, s.scale, s.softcap, s.dtype, s.kv_dtype,
           s.kv_x_packed, s.kv_shuffle, s.type, s.page_size, s.has_sink, s.lse_includes_sink, s.has_alibi,
           s.use_mla, s.use_sparse, s.mla_nope_head_dim, s.mla_rope_head_dim, s.mla_v_head_dim,
           s.fp64_accumulate, s.sparse_topk);
  const MaskSpec& m = s.mask;
  hash.add(m.causal, m.window_left, m.window_right, m.chunk, m.sink_tokens, m.spans, m.packed, m.tree);
  for (unsigned f = 0; f < static_cast<unsigned>(Feature::count_); ++f)
    hash.add(s.needs.has(static_cast<Feature>(f)));
}

void add(Hash& hash, const Problem& p) {
  add(hash, p.spec);
  hash.add(p.phase, p.tree_size, p.shared_prefix, p.seqs.size());
  for (const Sequence& s : p.seqs) {
    hash.add(s.n_q, s.n_k);
    for (const std::vector<float>* values : {&s.q, &s.k, &s.v, &s.k_scales, &s.v_scales})
      hash.add_all(*values);
    for (const Span& span : s.spans)
      hash.add(span.first, span.last);
    hash.add_all(s.packed);
  }
  hash.add_all(p.sinks);
  hash.add_all(p.slopes);
  hash.add_all(p.tree_bias);
}

void add(Hash& hash, const Layout& l) {
  hash.add(l.shuffle, l.kv, l.page_lists, l.ragged, l.row_padding, l.poison_invisible, l.packed_hides,
           l.order, l.null_page, l.share_pages, l.place, l.kv_gap, l.past_kv_ready, l.declared.max_seqs,
           l.declared.max_tokens, l.declared.max_kv_tokens, l.declared.max_kv_len, l.declared.split_prefill);
}

}  // namespace

uint64_t Case::fingerprint() const {
  Hash hash;
  add(hash, problem);
  add(hash, layout);
  hash.add(threads, want_lse, second.has_value(), invariance ? static_cast<int>(*invariance) : -1,
           graph ? static_cast<int>(*graph) : -1);
  if (second) add(hash, *second);
  return hash.value();
}

}  // namespace fovea::conformance
