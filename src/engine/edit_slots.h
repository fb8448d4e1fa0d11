#pragma once
// Memory on the device for what changes the logits of requests (kernels/cuda/sample/edit_block.h): one slot
// for each sequence of a step that has any.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/host_buffer.h"
#include "engine/logits_processor.h"
#include "engine/sequence.h"
#include "tensor/buffer.h"

namespace fovea {

class EditSlots {
 public:
  /// `slots`: maximum sequences of one step. Throws std::bad_alloc.
  EditSlots(Device& device, int slots, int64_t slot_bytes, int vocab);

  /// Penalties, allowed tokens, and lists of `list_bytes` bytes.
  static int64_t slot_bytes(int vocab, int64_t list_bytes);

  enum class Need : uint8_t { none, slot, host };
  /// What a request needs; host = more than a slot holds, or edits that the device cannot do.
  Need need(const LogitsProcessor* processor) const;

  /// Call it for every sequence of step `step` before block() of any: their blocks are not given to others.
  void keep(uint64_t sequence, uint64_t step);
  /// The sequence's block, at its address on the device; 0 = all slots are busy. A new block is built from
  /// sequence.tokens, which must be all of its tokens, and copied. `step`: the number of the step that uses
  /// it; blocks of steps before `oldest_open` may be given to other sequences.
  Result<uint64_t> block(const Sequence& sequence, const LogitsProcessor& processor, uint64_t step,
                         uint64_t oldest_open, Stream& stream);

 private:
  struct Slot {
    uint64_t sequence = 0, step = 0;  ///< the last step that used it; 0 = never
  };

  Device& device_;
  int vocab_;
  size_t slot_bytes_;
  Buffer memory_;
  HostBuffer host_;  // likewise; allocated at first use
  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, size_t> slot_of_;  // by sequence
  mutable std::vector<cuda::TokenBias> bias_;     // of the last edit_spec()
};

}  // namespace fovea
