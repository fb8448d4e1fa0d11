#pragma once
// Scores of an indexer's queries, for one instruction set (index_scores-inl.h).
#include <cstdint>

#include "fovea/dtype.h"

namespace fovea::index_scores {

/// Keys of a call (one tile), and the heads of a query, padded to whole groups.
inline constexpr int kKeys = 64;
inline constexpr int kHeadGroup = 16;

/// A query row. A score is the sum over heads of weight x max(0, q . k), times the key's scale.
struct Query {
  const float* q = nullptr;        ///< [dim, width] heads side by side; zeros past the heads
  const float* weights = nullptr;  ///< [width]; zeros past the heads
};

struct Kernels {
  /// Widens `n` <= kKeys keys of `dim` elements, not yet multiplied by scales, to out [n, dim].
  void (*widen)(const void* const* keys, int n, int dim, KvCacheDType dtype, float* out);
  /// Scores of `n` <= kKeys widened keys; `scales` [n]. A score's bits don't depend on the other keys.
  void (*score)(const Query& query, int width, int dim, const float* keys, const float* scales, int n,
                float* scores);
};

extern const Kernels kGenericKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

/// The kernels for current_isa().
const Kernels& current_kernels();

}  // namespace fovea::index_scores
