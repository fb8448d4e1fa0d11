#pragma once
// Attention by its definition: for each (row, head), the visible keys one at a time, in ascending order.
// The bits of a row depend only on its own visible keys and values, not on other rows, the page size,
// chunking or the thread count.
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"

namespace fovea {

class ThreadPool;

/// The largest head size of K and of V.
inline constexpr int kReferenceMaxHeadDim = 1024;

/// Computes one layer; accumulates in fp64 when spec.fp64_accumulate, else in fp32. Tensors are as in
/// AttentionArgs; `spec` and `meta` have been checked (attention/batch_check.h).
void reference_attention(const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args,
                         ThreadPool& pool);

}  // namespace fovea
