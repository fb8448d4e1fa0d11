#include "speculative/ngram_drafter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fovea {
namespace {

uint64_t mix(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

}  // namespace

/// Where the key is, or the free slot where it would be; one slot at least is free.
size_t HashTable::place(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (key * 0x9E3779B97F4A7C15u >> 32) & mask;
  while (slots_[at].number != 0 && slots_[at].key != key)
    at = (at + 1) & mask;
  return at;
}

uint32_t HashTable::find(uint64_t key) const {
  return slots_.empty() ? 0 : slots_[place(key)].number;
}

void HashTable::add(uint64_t key, uint32_t number) {
  if (4 * (used_ + 1) > 3 * slots_.size()) reserve(2 * used_ + 32);
  Slot& slot = slots_[place(key)];
  if (slot.number != 0) return;
  slot = {key, number};
  ++used_;
}

void HashTable::reserve(size_t keys) {
  if (4 * keys <= 3 * slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::bit_ceil(keys * 4 / 3 + 1)));
  for (const Slot& slot : old)
    if (slot.number != 0) slots_[place(slot.key)] = slot;
}

/// An n-gram enters when a token follows it: the suffix itself is not an occurrence.
void NgramIndex::add(std::span<const int32_t> tokens) {
  // With the prompt, so that few tables grow between two steps later.
  if (seen_ == 0)
    first_.reserve((tokens.size() + 512) * static_cast<size_t>(max_ - std::max(min_ - 1, 1) + 1));
  for (; seen_ + 1 < tokens.size(); ++seen_) {
    const size_t end = seen_ + 1;
    uint64_t hash = 0;
    for (size_t n = 1; n <= std::min(static_cast<size_t>(max_), end); ++n) {
      hash = mix(hash, tokens[end - n]);
      if (n + 1 >= static_cast<size_t>(min_)) first_.add(hash + n, static_cast<uint32_t>(end));
    }
  }
}

bool NgramIndex::may_find_next(std::span<const int32_t> tokens) {
  add(tokens);
  const auto least = static_cast<size_t>(min_ - 1);  // of a match with the next token, those that are known
  if (tokens.size() < least) return false;
  uint64_t hash = 0;
  for (size_t n = 1; n <= least; ++n)
    hash = mix(hash, tokens[tokens.size() - n]);
  return least == 0 || first_.find(hash + least) != 0;
}

std::span<const int32_t> NgramIndex::find(std::span<const int32_t> tokens, int most) {
  add(tokens);
  size_t found = 0;
  uint64_t hash = 0;
  for (size_t n = 1; n <= std::min(static_cast<size_t>(max_), tokens.size()); ++n) {
    hash = mix(hash, tokens[tokens.size() - n]);
    if (n < static_cast<size_t>(min_)) continue;
    const uint32_t at = first_.find(hash + n);
    if (at == 0) break;  // no longer suffix has occurred either
    // Two n-grams with one hash would cost a rejected draft; but vLLM's rule knows no hashes.
    if (!std::equal(tokens.end() - static_cast<std::ptrdiff_t>(n), tokens.end(),
                    tokens.begin() + at - static_cast<std::ptrdiff_t>(n)))
      break;
    found = at;
  }
  if (found == 0) return {};
  return tokens.subspan(found, std::min(static_cast<size_t>(most), tokens.size() - found));
}

void NgramDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const auto found = sequences_.try_emplace(job.id, min_, max_).first->second.find(job.tokens, job.most);
    job.drafts.assign(found.begin(), found.end());
  }
}

bool NgramDrafter::may_draft(const DraftJob& job) {
  return sequences_.try_emplace(job.id, min_, max_).first->second.may_find_next(job.tokens);
}

}  // namespace fovea
