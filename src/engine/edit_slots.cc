#include "engine/edit_slots.h"

#include <algorithm>

namespace fovea {

EditSlots::EditSlots(Device& device, int slots, int64_t slot_bytes, int vocab)
    : device_(device),
      vocab_(vocab),
      slot_bytes_(static_cast<size_t>(slot_bytes)),
      memory_(device, static_cast<size_t>(slots) * slot_bytes_),
      slots_(static_cast<size_t>(slots)) {}

int64_t EditSlots::slot_bytes(int vocab, int64_t list_bytes) {
  const int32_t any = 0;
  cuda::EditSpec spec;
  spec.repetition_penalty = 2;
  spec.allowed = {&any, 1};
  return (cuda::edit_block_bytes(spec, vocab) + list_bytes + 255) / 256 * 256;
}

EditSlots::Need EditSlots::need(const LogitsProcessor* processor) const {
  if (processor == nullptr) return Need::none;
  if (processor->needs_host()) return Need::host;
  const cuda::EditSpec spec = processor->edit_spec(bias_);
  if (!cuda::needs_edit_block(spec)) return Need::none;
  return cuda::edit_block_bytes(spec, vocab_) <= static_cast<int64_t>(slot_bytes_) ? Need::slot : Need::host;
}

void EditSlots::keep(uint64_t sequence, uint64_t step) {
  if (const auto found = slot_of_.find(sequence); found != slot_of_.end()) slots_[found->second].step = step;
}

Result<uint64_t> EditSlots::block(const Sequence& sequence, const LogitsProcessor& processor, uint64_t step,
                                  uint64_t oldest_open, Stream& stream) {
  const auto there = [&](size_t slot) { return memory_.data() + slot * slot_bytes_; };
  if (const auto found = slot_of_.find(sequence.id); found != slot_of_.end()) {
    slots_[found->second].step = step;
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(there(found->second)));
  }
  const auto oldest = std::ranges::min_element(slots_, {}, &Slot::step);
  if (oldest->step >= oldest_open) return uint64_t{0};
  if (oldest->step > 0) slot_of_.erase(oldest->sequence);
  *oldest = {sequence.id, step};
  const auto slot = static_cast<size_t>(oldest - slots_.begin());
  slot_of_.emplace(sequence.id, slot);
  if (!host_) host_ = HostBuffer(device_, slots_.size() * slot_bytes_);

  const cuda::EditSpec spec = processor.edit_spec(bias_);
  const auto bytes = static_cast<size_t>(cuda::edit_block_bytes(spec, vocab_));
  auto* const host = reinterpret_cast<uint32_t*>(host_.data() + slot * slot_bytes_);
  cuda::build_edit_block(spec, vocab_, sequence.tokens, static_cast<size_t>(sequence.prompt_len),
                         {host, bytes / sizeof(uint32_t)});
  FOVEA_RETURN_IF_ERROR(device_.copy_from_host(there(slot), host, bytes, stream));
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(there(slot)));
}

}  // namespace fovea
