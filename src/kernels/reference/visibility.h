#pragma once
// Which keys a query sees: the single definition of every mask, on plain structs, for all backends and tests,
// on the CPU and in CUDA kernels. Query row i of a sequence stands at absolute position p = i + n_k - n_q;
// key j at position j.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "base/host_device.h"
#include "base/mutation.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"

namespace fovea {

/// The properties of one sequence that masks depend on.
struct SequenceMask {
  int64_t n_q = 0, n_k = 0;
  std::span<const Span> spans = {};  ///< bidirectional multimodal spans; used when MaskSpec::spans
  const uint8_t* packed = nullptr;   ///< bit i * n_k + j, lowest bit of a byte first; MaskSpec::packed
  const float* tree_bias = nullptr;  ///< [tree_size, tree_size]; null = no tree for this sequence
  int64_t tree_size = 0;
};

/// Sequence `b` of `meta`. A sequence with more new tokens than the tree has nodes is a plain prefill.
inline SequenceMask sequence_mask(const MaskSpec& mask, const BatchMeta& meta, int b) {
  SequenceMask seq;
  seq.n_q = meta.q_offsets[b + 1] - meta.q_offsets[b];
  seq.n_k = meta.kv_lens[b];
  if (mask.spans)
    seq.spans = meta.spans.subspan(meta.span_offsets[b], meta.span_offsets[b + 1] - meta.span_offsets[b]);
  if (mask.packed) seq.packed = meta.packed_mask.data() + meta.packed_offsets[b];
  if (mask.tree && seq.n_q <= meta.tree_size) {
    seq.tree_bias = meta.tree_bias.data();
    seq.tree_size = meta.tree_size;
  }
  return seq;
}

FOVEA_HOST_DEVICE inline int64_t position(const SequenceMask& seq, int64_t row) {
  return row + seq.n_k - seq.n_q;
}

/// floor(a / b) for b > 0 and any a (rows before the first key have negative positions).
FOVEA_HOST_DEVICE inline int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - (q * b > a ? 1 : 0);
}

/// How many keys before its own a window lets a query see, and the index of the chunk that holds a position.
FOVEA_HOST_DEVICE inline int64_t keys_left(const MaskSpec& mask) {
  return int64_t{mask.window_left} + (mutated(Mutation::window_wider) ? 1 : 0);
}
FOVEA_HOST_DEVICE inline int64_t chunk_of(const MaskSpec& mask, int64_t position) {
  return floor_div(position + (mutated(Mutation::chunk_shifted) ? 1 : 0), mask.chunk);
}
/// The first position of chunk `n`.
FOVEA_HOST_DEVICE inline int64_t chunk_begin(const MaskSpec& mask, int64_t n) {
  return n * mask.chunk - (mutated(Mutation::chunk_shifted) ? 1 : 0);
}

/// Causal, window, sink tokens and chunk, for a query at position p and a key at j.
FOVEA_HOST_DEVICE inline bool base_visible(const MaskSpec& mask, int64_t p, int64_t j) {
  if (mask.causal && j > p) return false;
  if (mask.window_right >= 0 && j - p > mask.window_right) return false;
  if (mask.window_left >= 0 && p - j > keys_left(mask) && j >= mask.sink_tokens) return false;
  return mask.chunk == 0 || chunk_of(mask, j) == chunk_of(mask, p);
}

FOVEA_HOST_DEVICE inline bool same_span(std::span<const Span> spans, int64_t p, int64_t j) {
  for (const Span& s : spans)
    if (s.first <= p && p <= s.last && s.first <= j && j <= s.last) return true;
  return false;
}

/// Whether query row i sees key j in [0, n_k); complete except for a tree's bias (see tree_bias).
FOVEA_HOST_DEVICE inline bool visible(const MaskSpec& mask, const SequenceMask& seq, int64_t i, int64_t j) {
  const int64_t p = position(seq, i);
  if (!base_visible(mask, p, j) && !same_span(seq.spans, p, j)) return false;
  if (seq.packed == nullptr) return true;
  const int64_t bit = i * seq.n_k + j;
  return (seq.packed[bit / 8] >> (bit % 8)) & 1;
}

/// The tree's term of the score of (i, j): 0 before the tree, -inf = hidden.
FOVEA_HOST_DEVICE inline float tree_bias(const SequenceMask& seq, int64_t i, int64_t j) {
  const int64_t column = j - (seq.n_k - seq.n_q);
  if (seq.tree_bias == nullptr || column < 0 || column >= seq.tree_size) return 0.0f;
  return seq.tree_bias[i * seq.tree_size + column];
}

/// Keys [first, last).
struct KeyRange {
  int64_t first = 0, last = 0;
  FOVEA_HOST_DEVICE bool empty() const { return last <= first; }
};

/// Ranges with all keys that some row of a block sees: `sinks` (StreamingLLM's first tokens, before
/// the window), then `body`. Disjoint, ascending, inside [0, n_k). Keys outside are seen by no row of the
/// block; keys inside still need visible().
struct KeyRanges {
  KeyRange sinks, body;
};

/// Ranges of rows [row_first, row_last), row_first < row_last.
FOVEA_HOST_DEVICE inline KeyRanges key_ranges(const MaskSpec& mask, const SequenceMask& seq,
                                              int64_t row_first, int64_t row_last) {
  const int64_t p_first = position(seq, row_first);
  const int64_t p_last = position(seq, row_last - 1);
  int64_t first = 0;
  int64_t last = seq.n_k;
  if (mask.causal) last = std::min(last, p_last + 1);
  if (mask.window_right >= 0) last = std::min(last, p_last + mask.window_right + 1);
  if (mask.chunk > 0) {
    first = std::max(first, chunk_begin(mask, chunk_of(mask, p_first)));
    last = std::min(last, chunk_begin(mask, chunk_of(mask, p_last) + 1));
  }
  const int64_t sinks_first = first;
  if (mask.window_left >= 0) first = std::max(first, p_first - keys_left(mask));
  for (const Span& s : seq.spans)
    if (s.first <= p_last && s.last >= p_first) {
      first = std::min<int64_t>(first, std::max(s.first, 0));
      last = std::max(last, std::min<int64_t>(seq.n_k, int64_t{s.last} + 1));
    }
  KeyRanges ranges;
  ranges.body = {first, std::max(first, last)};
  if (mask.window_left >= 0)
    ranges.sinks = {std::min(sinks_first, first), std::min({int64_t{mask.sink_tokens}, first, last})};
  if (ranges.sinks.empty()) ranges.sinks = {};
  return ranges;
}

}  // namespace fovea
