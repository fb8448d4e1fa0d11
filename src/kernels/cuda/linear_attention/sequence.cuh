#pragma once
// A sequence's rows and states, read from the device's arrays and kept inside the tensors.
#include "kernels/cuda/linear_attention/params.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

struct SequenceRows {
  int first, count;
};
FOVEA_DEVICE SequenceRows sequence_rows(const int32_t* offsets, int seq, int tokens, int max_len) {
  const int first = min(max(offsets[seq], 0), tokens), last = min(max(offsets[seq + 1], first), tokens);
  return {first, min(last - first, max_len)};
}

/// The state block of a sequence and head, or null.
template <class T>
FOVEA_DEVICE T* state_block(T* states, const int32_t* slots, int seq, int head, const RecurrenceParams& p) {
  if (states == nullptr) return nullptr;
  const int slot = slots == nullptr ? seq : slots[seq];
  if (slot < 0 || slot >= p.states.slots) return nullptr;
  return states + (static_cast<int64_t>(slot) * p.heads + head) * p.dk * p.dv;
}

}  // namespace fovea::cuda
