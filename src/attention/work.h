#pragma once
// What one layer of a step has to do at least, whichever backend does it: the floor that its time is compared
// with.
#include "fovea/attention_backend.h"

namespace fovea {

struct AttentionWork {
  double bytes = 0;  ///< each key and value that some row sees once a sequence, every query and output once
  double flops = 0;  ///< 2 (D + Dv) of each query head and key that it sees
  AttentionWork& operator+=(const AttentionWork& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

/// Of `meta`, whose q_offsets and kv_lens lie in the host's memory. What a row sees is taken from the mask by
/// position; spans, packed and tree masks are not looked at. O(rows).
AttentionWork attention_work(const AttentionSpec& spec, const BatchMeta& meta);

}  // namespace fovea
