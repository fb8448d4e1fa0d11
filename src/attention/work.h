#pragma once
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
// The minimum work of one layer of a step, independent of the backend: the bound that its time is compared
// with.

namespace fovea {

struct AttentionWork {
  double bytes = 0;  ///< each visible key and value once per sequence, every query and output once
  double flops = 0;  ///< 2 (D + Dv) for each query head and key that it sees
  AttentionWork& operator+=(const AttentionWork& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

/// The work of `meta`, whose q_offsets and kv_lens must be in host memory. Visible keys are derived from the
/// positional masks, of which sparse attention sees sparse_topk at most; spans, packed and tree masks are
/// ignored. O(rows).
AttentionWork attention_work(const AttentionSpec& spec, const BatchMeta& meta);

}  // namespace fovea
