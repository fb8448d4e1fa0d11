#include "engine/token_counts.h"

#include <algorithm>

namespace fovea {
namespace {

constexpr size_t kFirstSlots = 64;

size_t slot_of(int32_t token, size_t slots) {
  // Fibonacci hashing: consecutive ids are spread by 2^32 / golden ratio.
  return (static_cast<uint32_t>(token) * 0x9E3779B9u >> 7) & (slots - 1);
}

}  // namespace

void TokenCounts::update(std::span<const int32_t> tokens, size_t prompt_len) {
  if (!with_prompt_) seen_ = std::max(seen_, std::min(prompt_len, tokens.size()));
  for (; seen_ < tokens.size(); ++seen_)
    entry_of(tokens[seen_]).answered += seen_ >= prompt_len;
}

TokenCounts::Entry& TokenCounts::entry_of(int32_t token) {
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  size_t slot = slot_of(token, slots_.size());
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1))
    if (Entry& entry = entries_[static_cast<size_t>(slots_[slot])]; entry.token == token) return entry;
  slots_[slot] = static_cast<int32_t>(entries_.size());
  return entries_.emplace_back(Entry{token, 0});
}

void TokenCounts::grow() {
  slots_.assign(std::max(kFirstSlots, 2 * slots_.size()), -1);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = slot_of(entries_[i].token, slots_.size());
    while (slots_[slot] >= 0)
      slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<int32_t>(i);
  }
}

}  // namespace fovea
