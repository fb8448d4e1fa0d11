#pragma once
// Which keys a row sees, directly from the definitions: for the textbook and other judging code, not for
// kernels. It shares no code with kernels/reference/visibility.h, which the kernels and the reference use, so
// that an error in a mask there is not repeated here.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "conformance/problem.h"
#include "fovea/attention_spec.h"

namespace fovea::conformance {

/// The tree bias of row i and key j: -inf hides the key. A sequence with more rows than the tree has nodes
/// has no tree; otherwise row i is node i, and the keys of the nodes are the last n_q.
inline float textbook_bias(const MaskSpec& mask, const Problem& problem, const Sequence& s, int i, int j) {
  if (!mask.tree || s.n_q > problem.tree_size) return 0.0f;
  const int before = s.n_k - s.n_q;  // keys before those of the tree
  if (j < before || j >= before + problem.tree_size) return 0.0f;
  return problem.tree_bias[static_cast<size_t>(i) * static_cast<size_t>(problem.tree_size) +
                           static_cast<size_t>(j - before)];
}

/// Of sparse attention, whether the row at position `here` lists key j: every n-th key back from its own, so
/// that no row lists more than `topk`.
inline bool textbook_lists(int topk, int64_t here, int64_t j) {
  const int64_t apart = (here + topk) / topk;
  return here >= 0 && (here - j) % apart == 0;
}

/// Whether row i of `s` sees key j under `mask`, which need not be the problem's own.
inline bool textbook_sees(const MaskSpec& mask, const Problem& problem, const Sequence& s, int i, int j) {
  // The last row is at the position of the last key.
  const int64_t here = int64_t{s.n_k} - 1 - (int64_t{s.n_q} - 1 - i);
  bool seen = true;
  if (mask.causal) seen = seen && j <= here;
  if (mask.window_right >= 0) seen = seen && j <= here + mask.window_right;
  if (mask.window_left >= 0) seen = seen && (int64_t{j} + mask.window_left >= here || j < mask.sink_tokens);
  if (mask.chunk > 0) {
    // The mathematical modulus: rows before the first key have negative positions.
    const int64_t into = ((here % mask.chunk) + mask.chunk) % mask.chunk;
    seen = seen && j >= here - into && j < here - into + mask.chunk;
  }
  if (mask.spans)
    seen = seen || std::any_of(s.spans.begin(), s.spans.end(), [&](const Span& span) {
             return std::clamp<int64_t>(here, span.first, span.last) == here &&
                    std::clamp(j, span.first, span.last) == j;
           });
  if (mask.packed) {
    const auto bit = static_cast<uint64_t>(i) * static_cast<uint64_t>(s.n_k) + static_cast<uint64_t>(j);
    seen = seen && ((s.packed[bit >> 3] >> (bit & 7)) & 1) != 0;
  }
  if (problem.spec.use_sparse) seen = seen && textbook_lists(problem.spec.sparse_topk, here, j);
  return seen && !std::isinf(textbook_bias(mask, problem, s, i, j));
}

}  // namespace fovea::conformance
