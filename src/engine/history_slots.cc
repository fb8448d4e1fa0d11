#include "engine/history_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace fovea {

HistorySlots::HistorySlots(Device& device, int slots, int64_t capacity)
    : device_(device),
      capacity_(capacity),
      states_(device, static_cast<size_t>(slots) * sizeof(cuda::NgramState)),
      tokens_(device, static_cast<size_t>(slots * capacity) * sizeof(int32_t)),
      slots_(static_cast<size_t>(slots)) {}

int64_t HistorySlots::bytes(int slots, int64_t capacity) {
  return slots *
         (static_cast<int64_t>(sizeof(cuda::NgramState)) + capacity * static_cast<int64_t>(sizeof(int32_t)));
}

void HistorySlots::keep(uint64_t sequence, uint64_t step) {
  if (const auto found = slot_of_.find(sequence); found != slot_of_.end()) slots_[found->second].step = step;
}

std::optional<int32_t> HistorySlots::find(uint64_t sequence) const {
  const auto found = slot_of_.find(sequence);
  return found == slot_of_.end() ? std::nullopt : std::optional(static_cast<int32_t>(found->second));
}

Result<std::optional<int32_t>> HistorySlots::open(const Sequence& sequence, uint64_t step,
                                                  uint64_t oldest_open, Stream& stream) {
  const auto oldest = std::ranges::min_element(slots_, {}, &Slot::step);
  if (oldest->step >= oldest_open) return std::optional<int32_t>();
  if (oldest->step > 0) slot_of_.erase(oldest->sequence);
  oldest->sequence = sequence.id;
  oldest->step = step;
  const auto slot = static_cast<size_t>(oldest - slots_.begin());
  slot_of_.emplace(sequence.id, slot);

  const size_t bytes = sequence.tokens.size() * sizeof(int32_t);
  FOVEA_CHECK(sequence.num_tokens() <= capacity_);
  cuda::NgramState state;
  state.length = sequence.num_tokens();
  std::ranges::fill(state.drafts, -1);
  // The copies of the sequence before have been made: its steps have ended.
  if (oldest->host.size() < sizeof(state) + bytes)
    oldest->host = HostBuffer(device_, std::bit_ceil(sizeof(state) + bytes));
  std::memcpy(oldest->host.data(), &state, sizeof(state));
  std::memcpy(oldest->host.data() + sizeof(state), sequence.tokens.data(), bytes);
  FOVEA_RETURN_IF_ERROR(device_.copy_from_host(states_.data() + slot * sizeof(state), oldest->host.data(),
                                               sizeof(state), stream));
  FOVEA_RETURN_IF_ERROR(
      device_.copy_from_host(tokens_.data() + slot * static_cast<size_t>(capacity_) * sizeof(int32_t),
                             oldest->host.data() + sizeof(state), bytes, stream));
  return std::optional(static_cast<int32_t>(slot));
}

cuda::NgramSlots HistorySlots::slots() const {
  return {reinterpret_cast<int32_t*>(tokens_.data()), reinterpret_cast<cuda::NgramState*>(states_.data()),
          capacity_};
}

}  // namespace fovea
