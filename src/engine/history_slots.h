#pragma once
// Memory on a device for the tokens of sequences, one slot for each that samples there, from which the device
// looks up n-gram drafts (kernels/cuda/ngram).
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/host_buffer.h"
#include "engine/sequence.h"
#include "kernels/cuda/ngram/ngram.h"
#include "tensor/buffer.h"

namespace fovea {

class HistorySlots {
 public:
  /// `slots`: maximum sequences of one step; `capacity`: tokens of each. Throws std::bad_alloc.
  HistorySlots(Device& device, int slots, int64_t capacity);

  /// Bytes on the device that the constructor allocates.
  static int64_t bytes(int slots, int64_t capacity);

  /// Call it for every sequence of step `step` before open() of any.
  void keep(uint64_t sequence, uint64_t step);
  std::optional<int32_t> find(uint64_t sequence) const;
  /// A slot with sequence.tokens, which must be all of its tokens, queued to be copied. Slots of steps from
  /// `oldest_open` on are not given to others; nullopt = all are theirs.
  Result<std::optional<int32_t>> open(const Sequence& sequence, uint64_t step, uint64_t oldest_open,
                                      Stream& stream);
  cuda::NgramSlots slots() const;

 private:
  struct Slot {
    uint64_t sequence = 0, step = 0;  ///< the last step that used it; 0 = never
    HostBuffer host;                  ///< state and tokens
  };

  Device& device_;
  int64_t capacity_;
  Buffer states_, tokens_;
  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, size_t> slot_of_;  // by sequence
};

}  // namespace fovea
